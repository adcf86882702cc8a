"""A run folder is written once, chained, sealed over everything, and read back with every digest checked."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from audit.errors import EvidenceError, UsageError
from audit.plan import Plan
from audit.record import Attested, Begin, End, Interrupt, Manifest, Process, Registration, ServerLine, to_bytes
from audit.rows import Rows
from audit.store import Run, RunWriter, write_derived
from audit.stream import Step, Stream, canonical, digest
from tests.unit import toy_plan

PLAN = Plan.parse(toy_plan.plan()).to_bytes()
STREAM = Stream(1, (Step(5, -0.5, ((5, -0.5),)),))
ROWS = Rows(np.array([[-0.5, -1.0]], dtype=np.float32))
FILES = {"PREREG.md": b"# why\n", "plan.json": PLAN, "plan.toml": b"", "predictions.json": b"{}\n"}
ATTESTED = Attested(
    build_info=None,
    model=None,
    models=None,
    n_ctx=None,
    process=Process(start=None, media_marker=None),
    props=digest(b"{}\n"),
    server_header=None,
    slots=1,
    vocabulary=None,
)
LINE = ServerLine(server="a", phase="start", attested=ATTESTED, declaration=None)


def registration(files: dict[str, bytes]) -> Registration | None:
    """Return what a manifest says of registered files."""
    named = {name: {"sha256": digest(data), "blob": "0"} for name, data in files.items()}
    return Registration(name="x", digest=digest(b""), files=named, commit=None, status="uncommitted") if files else None


def manifest(files: dict[str, bytes], **changes: Any) -> Manifest:  # noqa: ANN401 - any field
    """Return a manifest of no server."""
    values: dict[str, Any] = {
        "format": 1, "kind": "audit", "plan": digest(PLAN), "registered": digest(PLAN),
        "registration": registration(files), "program": {}, "dependencies": {}, "python": "", "machine": {},
        "servers": [], "prompts": {}, **changes,
    }  # fmt: skip
    return Manifest(**values)


def begun(folder: Path, *, files: dict[str, bytes] | None = None) -> RunWriter:
    """Begin a run."""
    writer = RunWriter(folder)
    writer.begin(manifest(files or {}), plan=PLAN, registration=files or {})
    return writer


def sealed(folder: Path, *, files: dict[str, bytes] | None = None) -> str:
    """Write a small run with one file of every kind, and return its seal."""
    writer = begun(folder, files=files)
    writer.put("streams", STREAM.to_bytes())
    writer.put("rows", ROWS.to_bytes())
    writer.put("bodies", b"<html>")
    writer.put_fact(b"{}\n")
    writer.append(LINE)
    writer.append(End(reason="finished"))
    return writer.seal()


def everything(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def history(folder: Path) -> list[bytes]:
    """Return the lines of the history."""
    return (folder / "history.jsonl").read_bytes().splitlines(keepends=True)


def test_the_history_is_a_chain_that_begins_at_the_manifest(tmp_path: Path) -> None:
    """Each line names the digest of the one before, the first that of the manifest; numbers rise from 0."""
    sealed(tmp_path / "run")
    previous = (tmp_path / "run" / "manifest.json").read_bytes()
    at_ns = 0
    for number, data in enumerate(history(tmp_path / "run")):
        line = json.loads(data)
        assert (line["n"], line["prev"]) == (number, digest(previous))
        assert line["at_ns"] >= at_ns
        assert data == canonical(line)
        previous, at_ns = data, line["at_ns"]
    kinds = [json.loads(data)["line"] for data in history(tmp_path / "run")]
    assert kinds == ["begin", "server", "end"]
    assert [type(line).__name__ for line in Run.open(tmp_path / "run").lines()] == ["Begin", "ServerLine", "End"]


def test_a_line_is_in_the_file_when_the_call_returns(tmp_path: Path) -> None:
    """Whatever happens to the process then, the line is kept."""
    writer = begun(tmp_path / "run")
    for count in range(2, 5):
        writer.append(Interrupt(reason="x"))
        assert len(history(tmp_path / "run")) == count
    writer.sync()
    writer.close()
    writer.close()
    assert len(list(Run.open(tmp_path / "run").lines())) == 4
    assert Run.open(tmp_path / "run").seal is None


def test_times_are_of_the_monotonic_clock_with_one_wall_clock_anchor(tmp_path: Path) -> None:
    """The anchor is the process's; `begin` says what time it was."""
    before = time.time_ns()
    writer = begun(tmp_path / "run")
    assert 0 <= writer.since_anchor(time.monotonic_ns()) < 60 * 10**9
    writer.close()
    (begin,) = Run.open(tmp_path / "run").lines()
    assert isinstance(begin, Begin)
    assert before <= begin.wall_ns <= time.time_ns()
    assert 0 <= begin.at_ns < 60 * 10**9


@pytest.mark.parametrize("content", ["file", "folder", "link", "hidden"])
def test_a_folder_that_holds_something_is_refused(tmp_path: Path, content: str) -> None:
    """A run is never mixed with anything, and what is there stays as it is."""
    folder = tmp_path / "run"
    folder.mkdir()
    made: dict[str, Callable[[], object]] = {
        "file": lambda: (folder / "x").write_text("kept"),
        "folder": (folder / "streams").mkdir,
        "link": lambda: (folder / "history.jsonl").symlink_to(tmp_path / "elsewhere"),
        "hidden": lambda: (folder / ".x").write_text("kept"),
    }
    made[content]()
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UsageError, match=r"run is not empty"):
        RunWriter(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert not (tmp_path / "elsewhere").exists()


def test_an_empty_or_missing_folder_is_taken_once(tmp_path: Path) -> None:
    """Parents are made; a second writer is refused."""
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b"):
        begun(folder).close()
        with pytest.raises(UsageError, match="is not empty"):
            RunWriter(folder)


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    """A file in the way is the user's to change."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match=r"file.*: a run cannot be written here: "):
            RunWriter(folder)


def test_equal_bytes_share_a_file_and_others_do_not(tmp_path: Path) -> None:
    """A store is addressed by content: the number of files is the number of distinct outputs."""
    writer = begun(tmp_path / "run")
    names = [writer.put("streams", data) for data in (b"a", b"b", b"a")]
    writer.close()
    assert names == [digest(b"a"), digest(b"b"), digest(b"a")]
    files = everything(tmp_path / "run" / "streams")
    assert files == {digest(data).removeprefix("sha256:") + ".jsonl": data for data in (b"a", b"b")}


def test_evidence_is_written_once(tmp_path: Path) -> None:
    """A file that exists is never replaced, also not through a link."""
    folder = tmp_path / "run"
    writer = begun(folder)
    before = everything(folder)
    with pytest.raises(EvidenceError, match=r"plan\.json exists already"):
        writer.begin(manifest({}), plan=b"{}\n", registration={})
    (folder / "SHA256SUMS").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EvidenceError, match="SHA256SUMS exists already"):
        writer.seal()
    (folder / "SHA256SUMS").unlink()
    assert everything(folder) == before
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_medium_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says about writing is the user's to change, and no crash."""
    writer = begun(tmp_path / "run")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UsageError, match=r"history\.jsonl: cannot be written: No space left"):
        writer.append(End(reason="finished"))
    monkeypatch.undo()
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(UsageError, match=r"facts/.*: cannot be written: No space left"):
        writer.put_fact(b"{}\n")
    monkeypatch.undo()
    writer.close()


def test_the_seal_lists_every_file_and_nothing_else(tmp_path: Path) -> None:
    """Lines are sorted by path, digests are those of the bytes, what a crash left half-written is gone."""
    folder = tmp_path / "run"
    writer = begun(folder, files=FILES)
    writer.put("streams", STREAM.to_bytes())
    (folder / "streams" / "0.jsonl.partial").write_bytes(b"half")
    seal = writer.seal()
    files = everything(folder)
    listed = files.pop("SHA256SUMS")
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    assert listed == lines.encode()
    assert seal == digest(listed) == Run.open(folder).seal
    assert {name for name in files if "/" not in name} == {"history.jsonl", "manifest.json", "plan.json"}
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["registration", "streams"]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Manifest, plan, registered files, and each kind of content by its digest."""
    folder = tmp_path / "run"
    sealed(folder, files=FILES)
    run = Run.open(folder)
    assert run.manifest == manifest(FILES)
    assert run.plan.to_bytes() == PLAN
    assert run.registration() == FILES
    assert run.stream(STREAM.logprob_digest) == STREAM
    assert run.rows(digest(ROWS.to_bytes()), (1, 2)).to_bytes() == ROWS.to_bytes()
    assert run.fact(digest(b"{}\n")) == {}
    assert run.has("bodies", digest(b"<html>"))
    assert not run.has("bodies", digest(b"other"))
    assert Run.open(folder).registration() == FILES


def read_all(folder: Path) -> None:
    """Read everything that a run holds."""
    run = Run.open(folder)
    assert run.seal is not None
    list(run.lines())
    assert run.plan.name
    run.registration()
    for kind in ("streams", "rows", "facts"):
        for path in sorted((folder / kind).iterdir()):
            name = "sha256:" + path.name.split(".")[0]
            read: dict[str, Callable[[str], object]] = {"streams": run.stream, "facts": run.fact}
            assert read.get(kind, partial(run.rows, shape=(1, 2)))(name) is not None


PLACES = ["manifest.json", "plan.json", "history.jsonl", "registration/plan.toml", "streams", "rows", "facts"]


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path, place: str) -> None:
    """One byte more, and reading says which file is not what it was."""
    sealed(tmp_path / "run", files=FILES)
    read_all(tmp_path / "run")
    path = tmp_path / "run" / place
    path = path if path.is_file() else next(path.iterdir())
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(EvidenceError, match=path.name):
        read_all(tmp_path / "run")


@pytest.mark.parametrize("place", ["plan.json", "history.jsonl", "streams", "rows", "facts"])
def test_a_missing_file_is_named(tmp_path: Path, place: str) -> None:
    """What the record needs and this copy lacks is an error of the evidence, not a crash."""
    sealed(tmp_path / "run")
    path = tmp_path / "run" / place
    path = path if path.is_file() else next(path.iterdir())
    run = Run.open(tmp_path / "run")
    path.unlink()
    readers: dict[str, Callable[[], object]] = {
        "plan.json": lambda: run.plan,
        "history.jsonl": lambda: list(run.lines()),
        "streams": lambda: run.stream(STREAM.logprob_digest),
        "rows": lambda: run.rows(digest(ROWS.to_bytes()), (1, 2)),
        "facts": lambda: run.fact(digest(b"{}\n")),
    }
    with pytest.raises(EvidenceError, match=path.name):
        readers[place]()


def without(number: int) -> Callable[[list[bytes]], list[bytes]]:
    """Drop a line."""
    return lambda lines: lines[:number] + lines[number + 1 :]


EDITS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a line less": (without(1), "line 1 does not follow"),
    "the first line less": (without(0), "line 0 does not follow"),
    "two lines exchanged": (lambda lines: [lines[0], lines[2], lines[1]], "line 1 does not follow"),
    "a line twice": (lambda lines: [*lines, lines[-1]], "line 3 does not follow"),
    "a fact changed": (lambda lines: [lines[0], lines[1].replace(b'"a"', b'"b"'), lines[2]], "line 2 does not follow"),
    "an incomplete last line": (lambda lines: [*lines[:2], lines[2][:-1]], "line 2 is incomplete"),
    "a line that is none": (lambda lines: [*lines, b"{}\n"], "cannot be read"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_history_is_found_at_its_line(tmp_path: Path, what: str) -> None:
    """Lost, doubled, exchanged, changed or cut: the first line that does not follow is named."""
    sealed(tmp_path / "run")
    edit, message = EDITS[what]
    (tmp_path / "run" / "history.jsonl").write_bytes(b"".join(edit(history(tmp_path / "run"))))
    with pytest.raises(EvidenceError, match=message):
        list(Run.open(tmp_path / "run").lines())


def test_a_history_that_lost_its_end_is_found_by_the_seal(tmp_path: Path) -> None:
    """A shorter chain is still a chain, but not the one that was sealed."""
    sealed(tmp_path / "run")
    (tmp_path / "run" / "history.jsonl").write_bytes(b"".join(history(tmp_path / "run")[:-1]))
    run = Run.open(tmp_path / "run")
    assert len(list(run.lines())) == 2
    with pytest.raises(EvidenceError, match=r"history\.jsonl is not the file that was sealed"):
        _ = run.seal


def test_a_seal_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """A damaged seal is an error of the evidence."""
    sealed(tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").write_text("nothing\n")
    with pytest.raises(EvidenceError, match="SHA256SUMS is no list"):
        _ = Run.open(tmp_path / "run").seal


def test_another_plan_than_the_manifests_is_refused(tmp_path: Path) -> None:
    """The plan is named by digest."""
    writer = RunWriter(tmp_path / "run")
    writer.begin(manifest({}, plan=digest(b"other")), plan=PLAN, registration={})
    writer.close()
    with pytest.raises(EvidenceError, match="not the plan that the manifest names"):
        _ = Run.open(tmp_path / "run").plan


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (None, UsageError, "is no run: it holds no manifest.json"),
        (b'{"format":2,"kind":"audit","novel":1}', UsageError, "has format 2, this program reads format 1"),
        (b'{"format":1}', EvidenceError, "manifest.json: .*missing required field"),
        (b"<html>", EvidenceError, "manifest.json: "),
        (b"[" * 100_000, EvidenceError, "manifest.json: "),
        (
            to_bytes(manifest({})).replace(b'"kind":"audit"', b'"kind":"mood"'),
            UsageError,
            "a run of kind mood, not",
        ),
    ],
)
def test_what_is_no_run_of_this_format_is_refused(
    tmp_path: Path, data: bytes | None, error: type[Exception], message: str
) -> None:
    """Another format is named with ours before anything else is looked at."""
    if data is not None:
        (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(error, match=message):
        Run.open(tmp_path)


def test_derived_files_are_listed_apart_and_replaced_whole(tmp_path: Path) -> None:
    """Their list is rewritten; what is no longer derived is gone; evidence and seal stay byte for byte."""
    folder = tmp_path / "run"
    sealed(folder, files=FILES)
    before = everything(folder)
    write_derived(folder, {"findings.json": b"{}\n", "old.csv": b"1\n"})
    write_derived(folder, {"findings.json": b"[]\n", "cells.csv": b"2\n"})
    after = everything(folder)
    lines = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n"
        for name, data in (("cells.csv", b"2\n"), ("findings.json", b"[]\n"))
    )
    derived = {"findings.json": b"[]\n", "cells.csv": b"2\n", "DERIVED.SHA256SUMS": lines.encode()}
    assert after == {**before, **derived}
    read_all(folder)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "history.jsonl",
        "SHA256SUMS",
        "DERIVED.SHA256SUMS",
        "omitted.json",
        "streams",
        "../x",
        "a/b",
        "",
        "..",
    ],
)
def test_a_derived_file_never_takes_the_place_of_evidence(tmp_path: Path, name: str) -> None:
    """Neither when it is written nor when the list of old ones names it."""
    folder = tmp_path / "run"
    sealed(folder)
    write_derived(folder, {"findings.json": b"{}\n"})
    before = everything(folder)
    with pytest.raises(EvidenceError, match="cannot be a derived file"):
        write_derived(folder, {"cells.csv": b"1\n", name: b"x"})
    assert everything(folder) == before
    (folder / "DERIVED.SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(EvidenceError, match="cannot be a derived file"):
        write_derived(folder, {"cells.csv": b"1\n"})
    assert everything(folder) == {**before, "DERIVED.SHA256SUMS": f"{'0' * 64}  {name}\n".encode()}


def test_a_derived_file_does_not_follow_a_link_to_evidence(tmp_path: Path) -> None:
    """A link with a derived file's name is replaced; what it points to stays."""
    folder = tmp_path / "run"
    sealed(folder)
    before = everything(folder)
    (folder / "findings.json").symlink_to(folder / "manifest.json")
    write_derived(folder, {"findings.json": b"{}\n"})
    assert not (folder / "findings.json").is_symlink()
    assert {name: data for name, data in everything(folder).items() if name in before} == before


def test_nothing_is_derived_from_an_unsealed_run(tmp_path: Path) -> None:
    """Without a seal nobody can tell evidence from what was made of it."""
    begun(tmp_path / "run").close()
    before = everything(tmp_path / "run")
    with pytest.raises(UsageError, match="is unsealed"):
        write_derived(tmp_path / "run", {"manifest.json": b"x"})
    assert everything(tmp_path / "run") == before


def test_a_registered_file_that_is_not_the_manifests_is_refused(tmp_path: Path) -> None:
    """One that was changed before the seal, or that no registration names."""
    for name, files in (("a", {**FILES, "plan.toml": b"other"}), ("b", {**FILES, "notes.md": b"x"})):
        writer = RunWriter(tmp_path / name)
        writer.begin(manifest(FILES), plan=PLAN, registration=files)
        writer.close()
        with pytest.raises(EvidenceError, match="is not the registered file"):
            Run.open(tmp_path / name).registration()
    assert msgspec.structs.replace(manifest(FILES), registration=None) == manifest({})
