"""How a run ends before its time: signals, a closed terminal, a closed pipe, a full disk; and how it goes on."""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.capture import capture
from audit.client import Address
from audit.errors import UsageError
from audit.fake import FakeThread
from audit.order import Order
from audit.plan import Plan
from audit.sitting import Target
from audit.store import RunWriter
from audit.stream import digest
from tests.integration.auditing import REPOSITORY, Owner, fake_of, lines, plan_of, verify

SMALL = plan_of({"name": "repeat_greedy", "prompts": ["a"], "count": 3})
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
DEADLINE_S = 300


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return a small plan's file."""
    path = tmp_path / "plan.json"
    path.write_bytes(SMALL.to_bytes())
    return path


def wait_until(truth: Callable[[], bool]) -> None:
    """Return when something is true, which it will be soon."""
    end = time.monotonic() + DEADLINE_S
    while not truth():
        assert time.monotonic() < end
        time.sleep(0.01)


def invoked(run: Path) -> bool:
    """Tell whether a run has sent something."""
    path = run / "history.jsonl"
    return path.exists() and b'"line":"invoke"' in path.read_bytes()


def command(fake: FakeThread, plan: Path, run: Path) -> list[str]:
    """Return the command that begins a run."""
    return [sys.executable, "-m", "audit", "run", "--server", f"s={fake.url}", "--plan", str(plan), "--out", str(run)]


def start(arguments: list[str], **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - any argument of Popen
    """Start a command of ours."""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(arguments, cwd=REPOSITORY, text=True, **more)


def finish(arguments: list[str]) -> int:
    """Run a command of ours to its end and return its exit code."""
    return subprocess.run(
        arguments, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    ).returncode


def printed_command(stderr: str) -> list[str]:
    """Return the last line, which is a command, as one would run it here."""
    name, *words = shlex.split(stderr.splitlines()[-1])
    assert name == "determinism"
    assert "--resume" in words
    return [sys.executable, "-m", "audit", *words]


@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_ends_after_the_current_trial_and_the_printed_command_goes_on(
    tmp_path: Path, plan: Path, number: signal.Signals
) -> None:
    """Exit 130, an interrupt line, every invoke answered; the last line on stderr is what finishes the run."""
    out = tmp_path / "a run"
    with fake_of(step_ms=20.0) as fake:
        with start(command(fake, plan, out)) as child:
            wait_until(lambda: invoked(out))
            child.send_signal(number)
            stdout, stderr = child.communicate(timeout=DEADLINE_S)
        assert (child.returncode, stdout) == (130, "")
        assert lines(out, "interrupt")[-1]["reason"] == "stopped by the user"
        assert len(lines(out, "invoke")) == len(lines(out, "complete"))
        assert verify(out)[0] == 2
        done = subprocess.run(
            printed_command(stderr), cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=DEADLINE_S
        )
    assert (done.returncode, done.stdout) == (0, f"{out}\n")
    assert verify(out)[0] == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_two_signals_end_at_once(tmp_path: Path, plan: Path, number: signal.Signals) -> None:
    """In the middle of a trial that would take minutes: exit 130, the request stays unknown, and the run goes on."""
    out = tmp_path / "run"
    with fake_of(step_ms=20_000.0) as fake:
        with start(command(fake, plan, out)) as child:
            wait_until(lambda: invoked(out))
            child.send_signal(number)
            assert child.stderr is not None
            said = ""
            while "once more stops at once" not in said:
                said = child.stderr.readline()
                assert said
            child.send_signal(number)
            _, stderr = child.communicate(timeout=DEADLINE_S)
        assert child.returncode == 130
    assert lines(out, "interrupt")[-1]["reason"] == "stopped at once by the user"
    assert len(lines(out, "invoke")) == len(lines(out, "complete")) + 1
    arguments = printed_command(stderr)
    with fake_of(step_ms=0.0) as fake:
        arguments[arguments.index("--server") + 1] = f"s={fake.url}"
        assert finish(arguments) == 0
    assert verify(out)[0] == 0


class Loading(Owner):
    """A server of ours that would load for ever, until it is aborted."""

    entered, aborted = threading.Event(), threading.Event()

    def restart(self) -> None:
        """Load."""
        self.entered.set()
        self.aborted.wait()

    def abort(self) -> None:
        """Give up."""
        self.aborted.set()


def test_a_restart_under_way_is_aborted_when_a_run_ends_at_once(tmp_path: Path) -> None:
    """The thread that waits for the server ends, so that the program does, and the interrupt is a line."""
    plan = plan_of({"name": "restart", "prompts": ["a"]}, controls=False)

    async def cancelled(fake: FakeThread) -> None:
        order = Order(plan=plan, registered=digest(plan.to_bytes()))
        owned = Target(address=Address(label="s", url=fake.url), owned=Loading(fake))
        task = asyncio.create_task(capture(order, [owned], tmp_path / "run", report=lambda _: None))
        await asyncio.to_thread(Loading.entered.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with fake_of(step_ms=0.0) as fake:
        asyncio.run(cancelled(fake))
    assert Loading.aborted.is_set()
    assert lines(tmp_path / "run", "interrupt")[-1]["reason"] == "stopped at once by the user"
    assert len(lines(tmp_path / "run", "invoke")) == len(lines(tmp_path / "run", "complete"))


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path, plan: Path) -> None:
    """Under nohup a closed terminal ends nothing."""
    out = tmp_path / "run"
    with (
        fake_of(step_ms=5.0) as fake,
        start(command(fake, plan, out), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as child,
    ):
        wait_until(lambda: invoked(out))
        child.send_signal(signal.SIGHUP)
        child.communicate(timeout=DEADLINE_S)
        assert child.returncode == 0
    assert verify(out)[0] == 0


def test_a_terminal_that_is_closed_stops_the_run_cleanly(tmp_path: Path, plan: Path) -> None:
    """The kernel sends SIGHUP and every write to the terminal fails: exit 130, an interrupt line, nothing corrupted."""
    out = tmp_path / "run"
    with fake_of(step_ms=20.0) as fake:
        arguments = command(fake, plan, out)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(REPOSITORY)
            os.execv(arguments[0], arguments)  # noqa: S606 - this interpreter
        wait_until(lambda: invoked(out))
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 130
        assert lines(out, "interrupt")[-1]["reason"] == "stopped by the user"
        resumed = [sys.executable, "-m", "audit", "run", "--resume", str(out), "--server", f"s={fake.url}"]
        assert finish(resumed) == 0
    assert verify(out)[0] == 0


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_goes_away_corrupts_nothing(tmp_path: Path, plan: Path, closed: str) -> None:
    """A pipe whose other end is closed: the run is sealed all the same, and no traceback is left."""
    out = tmp_path / "run"
    reading, writing = os.pipe()
    os.close(reading)
    with fake_of(step_ms=0.0) as fake, start(command(fake, plan, out), **{closed: writing}) as child:
        os.close(writing)
        stdout, stderr = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == (2 if closed == "stdout" else 0)
    assert "Traceback" not in f"{stdout}{stderr}"
    assert "Exception ignored" not in f"{stdout}{stderr}"
    assert verify(out)[0] == 0


# The disk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3_000, 10_000, 20_000])
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(tmp_path: Path, plan: Path, size: int) -> None:
    """No file may grow beyond a size, as on a full disk: exit 2, one error, the command that goes on, and it does."""
    out = tmp_path / "run"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    with fake_of(step_ms=0.0, vocabulary=99) as fake:
        with start(command(fake, plan, out), preexec_fn=limit) as child:
            stdout, stderr = child.communicate(timeout=DEADLINE_S)
        assert (child.returncode, stdout) == (2, "")
        assert "cannot be written: File too large" in stderr
        assert "Traceback" not in stderr
        assert finish(printed_command(stderr)) == 0
    code, report = verify(out)
    assert (code, report["contradictions"]) == (0, [])
    (resumed,) = lines(out, "resume")
    assert resumed["cut"] >= 0


def test_a_line_that_is_written_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may take a part of what it is given; the rest follows, and nothing is written twice."""
    from audit.record import End

    write = os.write
    writer = RunWriter(tmp_path / "run")
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    writer.append(End(reason="finished"))
    writer.append(End(reason="finished"))
    monkeypatch.undo()
    assert [line["n"] for line in lines(tmp_path / "run", "end")] == [0, 1]


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A read-only file system, a medium that fails: one line with the path and the system's own words."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(30, "Read-only file system")

    if call == "open":
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(UsageError, match=r"run: a run cannot be written here: Read-only file system"):
            RunWriter(tmp_path / "run")
        return
    writer = RunWriter(tmp_path / "run")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(UsageError, match=r"history\.jsonl: cannot be brought to the medium: Read-only file system"):
        writer.close()


def test_a_plan_beside_a_resume_is_refused(tmp_path: Path, plan: Path) -> None:
    """The plan is in the folder; another one, or another folder, is a contradiction and not a choice."""
    from audit.cli import _run

    for extra in (["--plan", str(plan)], ["--quick"], ["--out", str(tmp_path / "x")]):
        assert _run(["run", "--resume", str(tmp_path), "--server", "s=http://127.0.0.1:9", *extra]) == 2
    assert isinstance(SMALL, Plan)
    assert not (tmp_path / "x").exists()
