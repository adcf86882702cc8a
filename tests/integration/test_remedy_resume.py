"""A remedy that was interrupted, taken up again: what was started stays, the rest is done, both programs agree."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from audit.cli import _run as run_command_line
from audit.cli.remedy import perform
from audit.errors import EvidenceError, UsageError
from audit.remedy.catalogue import named
from audit.remedy.launcher import Known
from audit.remedy.measure import measure
from audit.remedy.page import derive_remedy
from tests.integration.auditing import verify
from tests.integration.remedying import FakeLauncher, Remedied, agree, measured
from tests.integration.test_remedy import SLOW, only_waves

JSON = Any
SETTINGS = ("kvu", "no-repack", "t-1", "swa-full")


def one_helps(names: frozenset[str]) -> dict[str, JSON]:
    """Let no-repack cure batches."""
    return {**SLOW, "jitter_concurrent": "no-repack" not in names}


LAUNCHER = FakeLauncher(faults=one_helps, unknown=frozenset({"swa-full"}), broken=frozenset({"t-1"}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Remedied:
    """Return a remedy that nobody interrupted: one setting helps, one does not, one does not start, one is unknown."""
    return measured(
        tmp_path_factory.mktemp("whole") / "run", one_helps, *SETTINGS, plan=only_waves(),
        unknown=LAUNCHER.unknown, broken=LAUNCHER.broken,
    )  # fmt: skip


def lines_of(folder: Path) -> list[dict[str, JSON]]:
    """Return the history."""
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def cut_after(folder: Path, copy: Path, count: int, *, torn: bytes = b"") -> Path:
    """Return a copy as a process leaves it that was killed after so many lines, in the middle of the next start."""
    shutil.copytree(folder, copy)
    for name in (copy / "DERIVED.SHA256SUMS").read_text().splitlines():
        (copy / name.split("  ", 1)[1]).unlink()
    for name in ("SHA256SUMS", "DERIVED.SHA256SUMS"):
        (copy / name).unlink()
    kept = (copy / "history.jsonl").read_bytes().splitlines(keepends=True)[:count]
    (copy / "history.jsonl").write_bytes(b"".join(kept) + torn)
    arms = {line["arm"] for line in map(json.loads, kept) if line["line"] == "arm"}
    for at, arm in enumerate(sorted(path for path in (copy / "arms").iterdir() if path.name not in arms)):
        if at:
            shutil.rmtree(arm)
        else:
            (arm / "SHA256SUMS").unlink()
    return copy


def taken_up(
    folder: Path, *, launcher: FakeLauncher = LAUNCHER, names: Sequence[str] = SETTINGS, **more: JSON
) -> list[str]:
    """Take a remedy up, to its seal, and return what was said."""
    said: list[str] = []
    assert measure(None, launcher, named(names), folder, perform=asyncio.run, say=said.append, **more) is not None
    return said


def facts(line: dict[str, JSON]) -> dict[str, JSON]:
    """Return what a line says, without where and when, and without what is another at each start."""
    return {key: value for key, value in line.items() if key not in {"n", "prev", "at_ns", "seal", "wall_ns"}}


def test_a_remedy_is_taken_up_behind_every_line(whole: Remedied, tmp_path: Path) -> None:
    """Whichever line was the last: the same starts stand in the end, the old ones with their seals; both agree."""
    old = lines_of(whole.folder)
    assert [line["line"] for line in old].count("arm") >= 5
    assert {"build", "untried", "failed", "arm", "end"} < {line["line"] for line in old}
    for count in range(len(old)):
        folder = cut_after(whole.folder, tmp_path / str(count), count, torn=b'{"at_' if count % 2 else b"")
        began = lines_of(whole.folder)[:count]
        said = taken_up(folder)
        new = lines_of(folder)
        assert new[:count] == began
        assert [facts(line) for line in new if line["line"] != "resume"] == [facts(line) for line in old]
        assert [line["cut"] for line in new if line["line"] == "resume"] == ([5 * (count % 2)] if count else [])
        assert sum("as recorded" in one for one in said) == sum(line["line"] in {"arm", "failed"} for line in began)
        document = derive_remedy(folder)
        agree(folder, document)
        assert Remedied(folder, document, said).statuses("no-repack") == whole.statuses("no-repack")


def test_a_remedy_that_only_lacks_its_seal_is_sealed(whole: Remedied, tmp_path: Path) -> None:
    """No line is added behind the end."""
    folder = cut_after(whole.folder, tmp_path / "run", len(lines_of(whole.folder)))
    assert taken_up(folder) == []
    assert lines_of(folder) == lines_of(whole.folder)
    agree(folder, derive_remedy(folder))


def test_what_there_was_no_time_for_is_not_tried_later(tmp_path: Path) -> None:
    """The record decides over what it holds, not the clock of the process that goes on."""
    run = measured(tmp_path / "run", one_helps, "kvu", "no-repack", plan=only_waves(), budget_s=0.0)
    assert [one["reason"] for one in run.document["untried"]] == ["time", "time"]
    folder = cut_after(run.folder, tmp_path / "again", len(lines_of(run.folder)) - 2)
    taken_up(folder, names=("kvu", "no-repack"))
    document = derive_remedy(folder)
    agree(folder, document)
    assert [one["setting"] for one in document["untried"]] == ["kvu"]
    assert [line["settings"] for line in lines_of(folder) if line.get("role") == "screen"] == [["no-repack"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherBuild(FakeLauncher):
    """A launcher of another build."""

    def known(self) -> Known:
        """Say less."""
        return Known(build="other", help={"help": "nothing"}, variables=frozenset())


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherLine(FakeLauncher):
    """A launcher that adds something to each line."""

    def line(self) -> list[str]:
        """Return another line."""
        return [*super().line(), "-c", "16384"]


@pytest.mark.parametrize(
    ("launcher", "names", "said"),
    [
        (OtherBuild(faults=one_helps), SETTINGS, "goes on with the build fake, and .* the build other"),
        (OtherLine(faults=one_helps), SETTINGS, "the server line was llama-server -m fake --port .* -c 16384"),
        (dataclasses.replace(LAUNCHER, slots=4), SETTINGS, "slots was 8 .* and is 4"),
        (dataclasses.replace(LAUNCHER, threads=2), SETTINGS, "threads was 1 .* and is 2"),
        (
            dataclasses.replace(LAUNCHER, model_sha256="sha256:0"),
            SETTINGS,
            "the model was fake-512 sha256:5.* sha256:0",
        ),
        (
            LAUNCHER,
            ("no-repack", "kvu", "t-1", "swa-full"),
            "a start to screen kvu, and .* a start to screen no-repack",
        ),
        (LAUNCHER, ("swa-full", "kvu"), "a start to screen no-repack, and .* it would end there"),
    ],
)
def test_another_command_is_refused_and_starts_nothing(
    whole: Remedied, tmp_path: Path, launcher: FakeLauncher, names: Sequence[str], said: str
) -> None:
    """The record is as resumable afterwards as before."""
    folder = cut_after(whole.folder, tmp_path / "run", len(lines_of(whole.folder)) - 2)
    arms = sum(line["line"] == "arm" for line in lines_of(folder))
    with pytest.raises(UsageError, match=said):
        measure(None, launcher, named(names), folder, perform=asyncio.run, say=lambda _: None)
    assert sum(line["line"] == "arm" for line in lines_of(folder)) == arms
    taken_up(folder)
    agree(folder, derive_remedy(folder))


def test_a_start_that_is_not_what_was_sealed_is_refused(whole: Remedied, tmp_path: Path) -> None:
    """A swapped audit is found before anything is decided by it."""
    folder = cut_after(whole.folder, tmp_path / "run", len(lines_of(whole.folder)) - 1)
    first, second = [folder / "arms" / line["arm"] for line in lines_of(folder) if line["line"] == "arm"][:2]
    shutil.rmtree(first)
    shutil.copytree(second, first)
    with pytest.raises(EvidenceError, match="is not the audit whose seal the history names"):
        taken_up(folder)


def test_the_command_stops_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped within its second start, it is unsealed and says how to go on; taken up, it ends like any other."""
    folder = tmp_path / "run"
    seal = measure(
        only_waves(), LAUNCHER, named(["no-repack"]), folder,
        perform=asyncio.run, say=lambda _: None, stopped=lambda: any(folder.glob("arms/0001-*")),
    )  # fmt: skip
    assert seal is None
    assert [line["line"] for line in lines_of(folder)] == ["begin", "build", "arm", "interrupt"]
    assert len(list((folder / "arms").iterdir())) == 2
    code, report = verify(folder)
    assert (code, report["sentence"][:8]) == (2, "unsealed")
    assert perform(None, LAUNCHER, folder, names=["no-repack"]) == 0
    shown = capsys.readouterr()
    assert "0001-screen-no-repack was interrupted, and is begun again" in shown.err
    assert "remedy" in shown.out
    assert run_command_line(["remedy", "--model", "tiny-llama-f32", "--resume", str(folder)]) == 2
    assert "is sealed, so nothing is left to do" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [("--plan", "p.toml"), ("--rounds", "1"), ("--confirm", "1"), ("--out", "o")])
def test_what_the_record_holds_cannot_be_given_again(
    flag: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, naming the flag."""
    assert run_command_line(["remedy", "--model", "tiny-llama-f32", "--resume", str(tmp_path), *flag]) == 2
    assert f"{flag[0]} cannot stand beside --resume" in capsys.readouterr().err
