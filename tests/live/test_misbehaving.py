"""A run against a real server that is stopped, killed, cut off or used by others: nothing lost, nothing made up."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from audit.capture import Progress
from audit.errors import ServerError
from audit.local.launch import LaunchSettings
from audit.local.models import resolve_model
from audit.local.owned import OwnedServer, start_embedded
from audit.plan import Plan
from audit.stream import digest
from tests.integration.auditing import REPOSITORY, judge, lines, plan_of, run, target, verify
from tests.integration.between import between
from tests.integration.test_resume import taken_up
from tests.integration.test_stopping import invoked, wait_until

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

SETTINGS = LaunchSettings(slots=2, ctx_per_slot=512, threads=1)
PLAN = plan_of(
    {"name": "repeat_greedy", "prompts": ["a"], "count": 3},
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2]},
    steps=64,
)
WAVE = "concurrent_greedy_c2/a/0/w0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedServer]:
    """Return a server with a model of random weights."""
    logs = tmp_path_factory.mktemp("logs")
    with start_embedded(resolve_model("tiny-llama-f32"), SETTINGS, log_dir=logs) as started:
        yield started


def place(unit: str, plan: Plan = PLAN) -> int:
    """Return how many units of a plan come before one."""
    return [unit.unit for block in plan.unfold(digest(plan.to_bytes())) for unit in block.units].index(unit)


def before(unit: str, act: Callable[[], object], plan: Plan = PLAN) -> Callable[[Progress], None]:
    """Return what a run reports to, which acts right before a unit."""
    at = place(unit, plan)

    def report(progress: Progress) -> None:
        if progress.done == at:
            act()

    return report


def test_a_server_that_is_stopped_for_a_while_is_waited_for(tmp_path: Path, server: OwnedServer) -> None:
    """SIGSTOP before a unit, SIGCONT later: the run only takes longer, and the record is sound."""

    def pause() -> None:
        os.kill(server.pid, signal.SIGSTOP)
        threading.Timer(1.0, os.kill, (server.pid, signal.SIGCONT)).start()

    assert run(tmp_path / "run", PLAN, target(server.url), report=before(WAVE, pause)) is not None
    found = judge(tmp_path / "run")
    assert found.document["sound"] is True
    assert [line["failure"] for line in found.lines("complete")] == [None] * len(found.lines("complete"))


def test_a_server_that_is_killed_in_a_wave_is_resumed_as_itself_and_refused_as_another(
    tmp_path: Path, server: OwnedServer
) -> None:
    """Every member of the wave failed and comes again, with canary and baselines; other settings are refused."""
    history, pid = tmp_path / "run" / "history.jsonl", server.pid

    def kill_in_the_wave() -> None:
        def kill() -> None:
            wait_until(lambda: f'"trial":"{WAVE}/1"'.encode() in history.read_bytes())
            os.kill(pid, signal.SIGKILL)

        threading.Thread(target=kill).start()

    plan = PLAN.model_copy(update={"steps": 400})
    with pytest.raises(ServerError, match="cannot be reached"):
        run(tmp_path / "run", plan, target(server.url), report=before(WAVE, kill_in_the_wave, plan))
    failed = {line["trial"] for line in lines(tmp_path / "run", "complete") if line["failure"] is not None}
    assert failed >= {f"{WAVE}/0", f"{WAVE}/1"}
    other = LaunchSettings(slots=3, ctx_per_slot=512, threads=1)
    with (
        start_embedded(resolve_model("tiny-llama-f32"), other, log_dir=tmp_path) as another,
        pytest.raises(ServerError, match="slots was 2, is 3"),
    ):
        taken_up(tmp_path / "run", target(another.url))
    server.restart()
    assert taken_up(tmp_path / "run", target(server.url)) is not None
    (resumed,) = lines(tmp_path / "run", "resume")
    after = [line["trial"] for line in lines(tmp_path / "run", "invoke") if line["n"] > resumed["n"]]
    assert after[0] == "canary/first"
    assert {f"{WAVE}/0", f"{WAVE}/1", "baseline/greedy/a"} <= set(after)
    found = judge(tmp_path / "run")
    assert found.document["sound"] is True
    assert all(cell["excluded"]["failed"] == 0 for cell in found.document["cells"])


@dataclass
class Wire:
    """What a proxy does to what the server says: pieces of so many bytes, each later by so much, cut after so many."""

    piece: int = 1 << 16
    delay_s: float = 0.0
    cut_after: int | None = None
    cuts: int = 0
    passed: int = field(default=0, repr=False)


@contextmanager
def proxy(port: int, wire: Wire) -> Iterator[str]:
    """Stand between a client and a server whose replies come in pieces."""

    async def down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            for at in range(0, len(data), wire.piece):
                wire.passed += wire.piece
                if wire.cut_after is not None and wire.passed > wire.cut_after:
                    wire.passed, wire.cut_after, wire.cuts = 0, None, wire.cuts + 1
                    writer.transport.abort()
                    return
                writer.write(data[at : at + wire.piece])
                await writer.drain()
                await asyncio.sleep(wire.delay_s)

    with between(port, downward=down) as own:
        yield f"http://127.0.0.1:{own}"


def test_replies_in_pieces_and_late_are_the_same_replies(tmp_path: Path, server: OwnedServer) -> None:
    """Pieces of 1,009 bytes, a turn of the loop between them, through canary, waves and whole replies: sound."""
    with proxy(server.port, Wire(piece=1_009, delay_s=0.0005)) as url:
        assert run(tmp_path / "run", PLAN, target(url)) is not None
    found = judge(tmp_path / "run")
    assert found.document["sound"] is True
    assert all(cell["excluded"]["failed"] == 0 for cell in found.document["cells"])


def test_a_reply_that_is_cut_is_a_failure_and_comes_again(tmp_path: Path, server: OwnedServer) -> None:
    """The connection breaks in the middle of one reply: a failed attempt with what came of it; resume repeats it."""
    wire = Wire(piece=512)
    asked = iter(range(10**6))

    def cut(progress: Progress) -> None:
        # Behind the snapshot's answers, in the middle of the completion.
        wire.passed, wire.cut_after = 0, 30_000 if progress.done == place("repeat_greedy/a/1") else None

    with proxy(server.port, wire) as url:
        stopped = run(
            tmp_path / "run",
            PLAN,
            target(url),
            report=cut,
            stopped=lambda: next(asked) > place("repeat_greedy/a/1"),
        )
        assert stopped is None
        assert wire.cuts == 1
        (failed,) = [line for line in lines(tmp_path / "run", "complete") if line["failure"] is not None]
        assert failed["failure"]["kind"] == "transport"
        assert failed["failure"]["body"] is not None
        assert taken_up(tmp_path / "run", target(url)) is not None
    attempts = [line["attempt"] for line in lines(tmp_path / "run", "complete") if line["trial"] == failed["trial"]]
    assert attempts == [0, 1]
    assert judge(tmp_path / "run").document["sound"] is True


def test_a_second_client_taints_and_makes_nothing_divergent(tmp_path: Path, server: OwnedServer) -> None:
    """Somebody else generates while two units run: they are tainted, and the others stay what they are."""
    done = threading.Event()

    def generate() -> None:
        while not done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            body = json.dumps({"prompt": "Somebody else", "n_predict": 200, "ignore_eos": True, "id_slot": 1})
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
            connection.close()

    other = threading.Thread(target=generate)
    at = place("repeat_greedy/a/1")

    def report(progress: Progress) -> None:
        if progress.done == at:
            other.start()
        if progress.done == at + 2:
            done.set()
            other.join()

    assert run(tmp_path / "run", PLAN, target(server.url), report=report) is not None
    found = judge(tmp_path / "run")
    tainted = sum(cell["excluded"]["tainted"] for cell in found.document["cells"])
    assert tainted >= 1
    reasons = {reason for cell in found.document["cells"] for reason in cell["reasons"]}
    assert reasons & {"idle", "accounting"}
    assert found.check("canary")[0] == "held"


@pytest.mark.parametrize("moment", ["loading", "running"])
def test_a_server_of_our_own_is_stopped_with_the_run_and_started_again_by_the_resume(
    tmp_path: Path, moment: str
) -> None:
    """Ctrl-C while it loads ends at once and leaves nothing; in the run the printed command finishes what was begun."""
    plan, out = tmp_path / "plan.json", tmp_path / "run"
    plan.write_bytes(PLAN.to_bytes())
    options = ["--local", "tiny-llama-f32", "--slots", "2", "--ctx", "512", "--threads", "1"]
    arguments = [sys.executable, "-m", "audit", "run", *options, "--plan", str(plan), "--out", str(out)]
    with subprocess.Popen(arguments, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert "starting llama.cpp" in child.stderr.readline()
        if moment == "running":
            wait_until(lambda: invoked(out))
        child.send_signal(signal.SIGINT)
        stderr = child.communicate(timeout=300)[1]
    assert child.returncode == 130
    if moment == "loading":
        assert stderr.splitlines()[-1] == "interrupted: nothing was sent"
        assert not (out / "manifest.json").exists()
        return
    _, *words = shlex.split(stderr.splitlines()[-1])
    resumed = subprocess.run(
        [sys.executable, "-m", "audit", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert verify(out)[0] == 0
