"""The verifier on identity records that somebody edited, linked and sealed again: each contradiction has its name."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.export import export_digests
from audit.identity.evidence import IdentityRun
from audit.identity.findings import identity_findings
from audit.identity.gate import derive_identity
from audit.stream import canonical
from tests.integration.comparing import build, plain, record, verify

JSON = Any
Lines = list[JSON]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record of two builds with other numbers."""
    folder = tmp_path_factory.mktemp("original") / "run"
    record(folder, build("old"), build("new", plain(2)), families=("llama",))
    return folder


def reseal(folder: Path) -> None:
    """Link the history again and write both lists of sums, as a forger would."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_bytes().splitlines()]
    previous = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    written = b""
    for number, line in enumerate(lines):
        data = canonical({**line, "n": number, "prev": f"sha256:{previous}"})
        previous = hashlib.sha256(data).hexdigest()
        written += data
    (folder / "history.jsonl").write_bytes(written)
    derived = {"findings.json", "report.html", "report.md"}
    for name, kept in (("SHA256SUMS", False), ("DERIVED.SHA256SUMS", True)):
        paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        chosen = [path for path in paths if (path in derived) == kept and not path.endswith("SHA256SUMS")]
        sums = [f"{hashlib.sha256((folder / path).read_bytes()).hexdigest()}  {path}\n" for path in sorted(chosen)]
        (folder / name).write_text("".join(sums), encoding="ascii")


def forged(original: Path, folder: Path, edit: Callable[[Lines], Lines]) -> Path:
    """Copy a record, edit the lines of its history, and seal it again."""
    shutil.copytree(original, folder)
    lines = edit([json.loads(line) for line in (folder / "history.jsonl").read_bytes().splitlines()])
    (folder / "history.jsonl").write_bytes(b"".join(map(canonical, lines)))
    reseal(folder)
    return folder


def captures(lines: Lines, **wanted: JSON) -> Lines:
    """Return the capture lines with these values."""
    return [
        line for line in lines if line["line"] == "capture" and all(line[key] == value for key, value in wanted.items())
    ]


def other_forced(lines: Lines) -> Lines:
    """Force the new build to other tokens."""
    captures(lines, build="new", form="forced")[0]["tokens"][0] ^= 1
    return lines


def other_digest(lines: Lines) -> Lines:
    """Say another digest of a row."""
    rows = captures(lines, build="new", form="free")[0]["rows"]
    rows["digests"][0] = "sha256:" + "0" * 64
    return lines


def old_first(lines: Lines) -> Lines:
    """Let the old build begin."""
    return [
        {**line, "build": {"old": "new", "new": "old"}[line["build"]]} if "build" in line else line for line in lines
    ]


def no_end(lines: Lines) -> Lines:
    """Leave out the end of a process."""
    ends = [line for line in lines if line["line"] == "process" and line["phase"] == "end"]
    return [line for line in lines if line is not ends[-1]]


def unnamed_rows(lines: Lines) -> Lines:
    """Leave out a capture whose rows nobody else has."""
    gone = captures(lines, build="new", form="free", prompt="short")
    return [line for line in lines if line not in gone]


def both(lines: Lines) -> Lines:
    """Give a capture rows and a failure."""
    captures(lines)[0]["failure"] = {"kind": "crash", "message": "it did"}
    return lines


def twice(lines: Lines) -> Lines:
    """Answer one prompt twice."""
    line = captures(lines)[0]
    place = lines.index(line)
    return [*lines[:place], line, *lines[place:]]


def after_the_end(lines: Lines) -> Lines:
    """Write on after the end."""
    return [*lines, lines[-1]]


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (other_forced, "ids"),
        (other_digest, "rows"),
        (old_first, "order"),
        (no_end, "pairs"),
        (unnamed_rows, "store"),
        (both, "rows"),
        (twice, "pairs"),
        (after_the_end, "lines"),
    ],
)
def test_an_edited_history_contradicts_itself(
    original: Path, tmp_path: Path, edit: Callable[[Lines], Lines], check: str
) -> None:
    """Though every digest and the seal fit the edited text, the verifier names what does not."""
    code, report = verify(forged(original, tmp_path / "r", edit))
    assert code == 4
    assert check in {found["check"] for found in report["contradictions"]}


def test_the_forger_alone_changes_nothing(original: Path, tmp_path: Path) -> None:
    """Linking and sealing again gives the same record, so the edits are what is found."""
    code, report = verify(forged(original, tmp_path / "r", lambda lines: lines))
    assert (code, report["contradictions"]) == (0, [])


def test_a_flipped_bit_of_a_row_is_found(original: Path, tmp_path: Path) -> None:
    """The bytes no longer have their name's digest."""
    shutil.copytree(original, tmp_path / "r")
    path = next((tmp_path / "r" / "rows").iterdir())
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    assert verify(tmp_path / "r")[0] == 4


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found["pairs"][0]["families"][0].update(verdict="IDENTICAL"),
        lambda found: found["pairs"][0]["cells"][0]["difference"].update(ulp_max=1),
        lambda found: found["pairs"][0]["cells"][0]["difference"]["first"].update(token=0, step=1),
        lambda found: found["determinism"][0].update(identical=0),
        lambda found: found["classes"][0].update(classes=[["new", "old"]]),
        lambda found: found["instrument"][1].update(k=0),
        lambda found: found.update(sound=False),
    ],
)
def test_an_edited_finding_is_found(original: Path, tmp_path: Path, edit: Callable[[JSON], None]) -> None:
    """Every field of findings.json is computed again."""
    shutil.copytree(original, tmp_path / "r")
    path = tmp_path / "r" / "findings.json"
    found = json.loads(path.read_bytes())
    edit(found)
    path.write_bytes(canonical(found))
    reseal(tmp_path / "r")
    code, report = verify(tmp_path / "r")
    assert (code, {found["check"] for found in report["contradictions"]}) == (4, {"findings"})


def test_a_copy_without_rows_is_judged_from_digests(original: Path, tmp_path: Path) -> None:
    """Verdict and classes follow from digests; magnitudes are unchecked and not invented."""
    assert export_digests(original, tmp_path / "copy") > 0
    assert not (tmp_path / "copy" / "rows").exists()
    code, report = verify(tmp_path / "copy")
    assert (code, report["contradictions"]) == (0, [])
    assert report["findings"]["pairs"][0]["counts"]["DIFFERENT"] == 1
    assert report["unchecked"]["findings that this copy cannot show"] > 0
    with pytest.raises(UsageError, match="without its rows"):
        derive_identity(tmp_path / "copy")
    here = identity_findings(IdentityRun.open(tmp_path / "copy"))
    assert here["pairs"][0]["cells"][0]["verdict"] == "DIFFERENT"
    assert here["instrument"][0]["status"] == "not available"


def test_findings_are_a_pure_function_of_the_folder(original: Path, tmp_path: Path) -> None:
    """Deleted and made again they are the same bytes."""
    shutil.copytree(original, tmp_path / "r")
    before = (tmp_path / "r" / "findings.json").read_bytes()
    (tmp_path / "r" / "findings.json").unlink()
    derive_identity(tmp_path / "r")
    assert (tmp_path / "r" / "findings.json").read_bytes() == before
