"""The dumper's files and lines, read strictly: a missing, short or empty dump equals nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from audit.dumper import DumpJob, build_commands, job_text, read_dump, read_lines, write_sources
from audit.errors import ReplyError, RowsError
from audit.identity.dumping import DumpingRunner
from audit.identity.running import Job
from tests.integration.comparing import PLAN, VOCABULARY, asset

# A program that obeys the dumper's words and numbers each logit by its place; what is wrong with it is its argument.
TOY = """#!{python}
import os, struct, sys
words = open(sys.argv[1]).read().split()
out, fault = words[words.index("out") + 1], {fault!r}
captures = []
at = 0
print("library /nowhere/libtoy.so")
print("load_tensors: CPU model buffer size = 1 MiB", file=sys.stderr)
while at < len(words):
    if words[at] == "capture":
        name, rows = words[at + 1], int(words[at + 3])
        ids = int(words[at + 5])
        forced = words[at + 6 + ids + 2 : at + 6 + ids + 2 + int(words[at + 6 + ids + 1])]
        tokens = forced or [str(7 + row) for row in range(rows)]
        data = struct.pack("<%df" % (rows * {vocabulary}), *range(rows * {vocabulary}))
        if fault == "row" : data = data[: -4 * {vocabulary}]
        if fault == "short": data = data[:-3]
        if fault == "empty": data = b""
        if fault != "missing":
            open(os.path.join(out, name + ".f32"), "wb").write(data)
        if fault == "silent": sys.exit(0)
        print("capture", name, rows, {vocabulary} + (fault == "vocabulary"), *tokens)
        sys.stdout.flush()
        if fault == "crash": os.abort()
        if fault == "hang":
            import time
            time.sleep(60)
    at += 1
print("end")
"""


def toy(folder: Path, fault: str = "") -> DumpingRunner:
    """Return a runner of the toy program."""
    program = folder / "toy"
    text = TOY.replace("{python}", sys.executable).replace("{fault!r}", repr(fault))
    program.write_text(text.replace("{vocabulary}", str(VOCABULARY)), encoding="ascii")
    program.chmod(0o755)
    return DumpingRunner(program=program, folder=folder, environment={"PATH": os.environ["PATH"]})


def jobs() -> list[Job]:
    """Return one free and one forced job."""
    ids = asset("llama").prompts["short"][0]
    return [
        Job(form="free", prompt="short", ids=ids),
        Job(form="forced", prompt="short", ids=ids, forced=tuple(range(PLAN.rows))),
    ]


def test_rows_and_tokens_come_back(tmp_path: Path) -> None:
    """Both forms are answered, with the path that the log tells."""
    came = toy(tmp_path).run(asset("llama"), PLAN, jobs())
    assert came.failure is None
    assert [answer.failure for answer in came.answers] == [None, None]
    rows = came.answers[0].rows
    assert rows is not None
    assert rows.shape == (PLAN.rows, VOCABULARY)
    assert rows[1, 2] == VOCABULARY + 2
    assert came.answers[1].tokens == tuple(range(PLAN.rows))
    assert came.path == {"weights": ["CPU"], "cache": [], "compute": [], "features": []}
    assert [library.name for library in came.libraries] == ["libtoy.so"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("row", "rows"),
        ("short", "dump"),
        ("empty", "dump"),
        ("missing", "dump"),
        ("vocabulary", "dump"),
        ("silent", "dump"),
    ],
)
def test_a_dump_that_is_not_whole_is_a_failure(tmp_path: Path, fault: str, kind: str) -> None:
    """Whatever is wrong with the file: no rows come of it, and the kind says why."""
    came = toy(tmp_path, fault).run(asset("llama"), PLAN, jobs())
    assert [answer.failure.kind if answer.failure else "" for answer in came.answers] == [kind, kind]
    assert [answer.rows for answer in came.answers] == [None, None]


def test_what_was_dumped_before_a_crash_is_an_answer(tmp_path: Path) -> None:
    """The first capture is there, the second failed with the process, and how it ended is said."""
    came = toy(tmp_path, "crash").run(asset("llama"), PLAN, jobs())
    assert came.failure is not None
    assert (came.failure.kind, "signal 6" in came.failure.message) == ("crash", True)
    assert came.answers[0].failure is None
    assert came.answers[1].failure == came.failure


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    """The time limit is a failure of its own."""
    plan = PLAN.model_copy(update={"timeout_s": 1.0})
    came = toy(tmp_path, "hang").run(asset("llama"), plan, jobs())
    assert came.failure is not None
    assert came.failure.kind == "timeout"


def test_a_program_that_is_not_there_cannot_start(tmp_path: Path) -> None:
    """It is an answer like any other."""
    runner = DumpingRunner(program=Path(sys.executable), folder=tmp_path, environment={})
    came = runner.run(asset("llama"), PLAN, jobs())
    assert came.failure is not None
    assert came.failure.kind == "crash"


def test_sizes_come_from_what_was_asked_and_never_from_the_file(tmp_path: Path) -> None:
    """A file that is a row too long is refused too."""
    job = DumpJob(name="x", rows=2, ids=[1])
    lines = read_lines("capture x 2 4 7 8\nend\n")
    (tmp_path / "x.f32").write_bytes(bytes(4 * 4 * 2))
    assert np.array_equal(read_dump(lines, tmp_path, job, vocabulary=4), np.zeros((2, 4), np.float32))
    (tmp_path / "x.f32").write_bytes(bytes(4 * 4 * 3))
    with pytest.raises(ReplyError, match="48 bytes, 32 were asked"):
        read_dump(lines, tmp_path, job, vocabulary=4)
    (tmp_path / "x.f32").write_bytes(bytes(4 * 4))
    with pytest.raises(RowsError, match="1 rows for 2 tokens"):
        read_dump(lines, tmp_path, job, vocabulary=4)


def test_a_line_that_is_cut_short_was_not_written() -> None:
    """A process that died in the middle of a line did not finish its capture."""
    assert read_lines("capture x 2 4 7 8").captures == {}
    assert read_lines("end").ended is False


def test_a_path_with_a_space_is_refused() -> None:
    """The program reads words."""
    with pytest.raises(ReplyError, match="space"):
        job_text(Path("/a b"), Path("/o"), [], ctx=1, batch=1, ubatch=1, threads=1, gpu_layers=0)


def test_the_source_is_written_into_the_tree(tmp_path: Path) -> None:
    """The tree gets a folder with the program and its cmake file, and the commands build that one."""
    write_sources(tmp_path)
    assert {path.name for path in (tmp_path / "determinism-dump").iterdir()} == {"CMakeLists.txt", "dump.cpp"}
    assert "--target determinism-dump -j 3" in build_commands(tmp_path, jobs=3)
