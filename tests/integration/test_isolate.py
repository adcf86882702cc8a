"""A divergent cell of an audit is isolated on a look-alike, and the pack shows it with curl alone."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.cli import _run as run_command_line
from audit.client import Address
from audit.errors import ServerError, UsageError
from audit.fake import FakeThread
from audit.remedy.cobatch import Cobatch, Found, Member, cut_after, find_cobatch, halvings, variations
from audit.remedy.isolate import Bench, Isolated, Tried, isolate
from audit.remedy.pack import Counted, Packed, is_weak, make_pack, sentence_of
from audit.report import derive
from audit.store import Run
from tests.integration.auditing import fake_of, plan_of, run, target

JSON = Any
CELL = "cross_batch_together"
# Of four prompts one is another's neighbour; long windows, since a script of curl starts a program a request.
PROMPTS = {
    "a": {"text": "Once upon a time there was"}, "b": {"text": "def median(values):"},
    "c": {"text": "A town by a river kept a book"}, "d": {"text": "x = 1"},
}  # fmt: skip
STEP_MS = 15.0


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeThread]:
    """A look-alike whose rows move beside another prompt, and only then."""
    with fake_of(jitter_mixed_batch=True, step_ms=STEP_MS) as served:
        yield served


@pytest.fixture(scope="module")
def audited(fake: FakeThread, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit in which the mixed batch diverges and equal requests do not."""
    folder = tmp_path_factory.mktemp("audited") / "run"
    plan = plan_of(
        {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2]},
        {"name": CELL, "prompts": ["a"], "neighbours": list(PROMPTS), "count": 4, "minimum": 1},
        {"name": "control_prompt", "prompts": ["a", "b"]},
        controls=False,
        prompts=PROMPTS,
    )
    assert run(folder, plan, target(fake.url)) is not None
    derive(folder)
    return folder


def member(*ids: int, steps: int = 12, delay_ms: float = 0.0, slot: int = 0) -> Member:
    """Return a request that is never sent."""
    return Member({"prompt": list(ids), "n_predict": steps, "id_slot": slot, "n_probs": 5}, delay_ms)


def test_the_wave_of_a_divergent_trial_is_found(audited: Path) -> None:
    """The watched request is the one that moved, its neighbours are the others of its wave, with their delays."""
    found = find_cobatch(Run.open(audited), f"s:{CELL}")
    assert found.trial.startswith(f"{CELL}/a/")
    assert len(found.cobatch.neighbours) == 3
    assert (found.cobatch.victim.delay_ms, {one.delay_ms for one in found.cobatch.neighbours}) == (2.0, {0.0})
    assert {one.body["id_slot"] for one in found.cobatch.neighbours} == {1, 2, 3}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("concurrent_greedy_c2", "no usable trial of concurrent_greedy_c2 diverged"),
        ("control_prompt", "control_prompt is no wave"),
        ("concurrent_greedy_c9", "has no cell 'concurrent_greedy_c9'"),
        (f"t:{CELL}", "has no cell"),
    ],
)
def test_what_cannot_be_isolated_is_refused(audited: Path, cell: str, words: str) -> None:
    """Nothing diverged, nobody was beside it, or there is no such cell."""
    with pytest.raises(UsageError, match=words):
        find_cobatch(Run.open(audited), cell)


def test_the_command_leaves_a_pack_that_shows_it_without_us(
    audited: Path, fake: FakeThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One neighbour of another prompt suffices; the script says how many of its runs differ, as the README does."""
    pack = tmp_path / "pack"
    words = ["isolate", str(audited), CELL, "--server", f"s={fake.url}", "--tries", "2", "--out", str(pack)]
    code = run_command_line(words)
    said = capsys.readouterr()
    result = json.loads((pack / "result.json").read_bytes())
    counted = Counted(**result["counted"])
    assert code == (3 if is_weak(counted) else 0)
    assert f"{counted.k} of {counted.n} runs show it, counted by {counted.by}." in said.out
    assert (pack / "README.md").read_text().count(f"{counted.k} of {counted.n} runs show it") == 1
    tried = {(one["factor"], one["words"]): (one["k"], one["n"]) for one in result["tried"]}
    assert tried["number", "0 of 3 neighbours"] == (0, 2)
    assert tried["content", "neighbours ask the watched prompt"] == (0, 2)
    assert {factor for factor, _ in tried} == {"number", "length", "content", "order", "slot", "start offset"}
    assert result["whole"]["k"] > 0
    assert len(list(pack.glob("neighbour-*.json"))) in {1, 3}
    if shutil.which("curl") is None:
        pytest.skip("curl")
    done = subprocess.run(
        ["sh", str(pack / "repro.sh"), fake.url, "2"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.endswith(" of 2 runs differ\n")


def test_where_the_server_does_not_move_it_is_said(
    audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On another server the co-batch may move nothing, and then there is no pack."""
    with fake_of(step_ms=2.0) as clean:
        words = [
            "isolate",
            str(audited),
            CELL,
            "--server",
            f"s={clean.url}",
            "--runs",
            "2",
            "--out",
            str(tmp_path / "p"),
        ]
        assert run_command_line(words) == 2
    assert "moved in 0 of 2 runs on this server" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_a_request_that_does_not_repeat_alone_is_nobodys_fault() -> None:
    """Then there is nothing to compare with."""
    body = {
        "n_probs": 5,
        "n_predict": 8,
        "prompt": [5, 6, 7],
        "id_slot": 0,
        "cache_prompt": False,
        "return_tokens": True,
    }
    body |= {"temperature": 0.0, "samplers": ["temperature"], "seed": 1, "ignore_eos": True, "stream": False}
    with fake_of(step_ms=1.0, jitter_repeated=True) as unsteady:
        bench = Bench(address=Address(label="s", url=unsteady.url), timeout_s=10.0)
        cobatch = Cobatch(Member(body), (Member({**body, "id_slot": 1}),))
        with pytest.raises(ServerError, match="does not repeat when it is sent alone"):
            asyncio.run(isolate(cobatch, bench, slots=8, tries=1, runs=1, say=lambda _: None))


def test_no_server_and_two_servers_are_refused(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cell is isolated on one."""
    assert run_command_line(["isolate", str(audited), CELL]) == 2
    assert run_command_line(["isolate", str(audited), CELL, "--server", "a=http://127.0.0.1:1", "--local", "x"]) == 2
    assert capsys.readouterr().err.count("a cell is isolated on one server") == 2


def test_each_variation_changes_one_factor() -> None:
    """Whoever reads that a slot moved must know that nothing else did."""
    whole = Cobatch(member(1, 2, 3, 4), tuple(member(9, 8, 7, at, slot=at) for at in (1, 2, 3)))
    found = {(one.factor, one.words): one.cobatch for one in variations(whole, slots=4, alone_ms=50.0)}
    assert [len(found["number", f"{count} of 3 neighbours"].neighbours) for count in (0, 1)] == [0, 1]
    halved = found["length", "neighbours' prompts cut to half"]
    assert [one.prompt for one in halved.neighbours] == [[9, 8]] * 3
    turned = found["content", "neighbours' prompts with their tokens in reverse"]
    assert turned.neighbours[0].prompt == [9, 1, 7, 8]
    moved = found["slot", "every request one slot further"]
    assert [one.body["id_slot"] for one in (moved.victim, *moved.neighbours)] == [1, 2, 3, 0]
    late = found["start offset", "the watched request 25 ms later"]
    assert (late.victim.delay_ms, late.neighbours) == (25.0, whole.neighbours)
    assert all(one.victim.body["prompt"] == [1, 2, 3, 4] for one in found.values())


def test_a_member_is_halved_down_to_one_token_of_each() -> None:
    """And never to nothing."""
    assert [(what, len(one.prompt), one.steps) for what, one in halvings(member(1, 2, 3, steps=4))] == [
        ("prompt", 1, 4), ("n_predict", 3, 2),
    ]  # fmt: skip
    assert list(halvings(member(1, steps=1))) == []


@pytest.mark.parametrize(("step", "steps"), [(0, 8), (9, 10), (40, 12)])
def test_the_watched_request_is_cut_behind_the_step_that_moved(step: int, steps: int) -> None:
    """It keeps the eight steps that a comparison needs, and is never made longer."""
    assert cut_after(Cobatch(member(1), ()), step).victim.steps == steps


@pytest.mark.parametrize(("k", "n", "weak"), [(4, 10, True), (5, 10, False), (1, 2, False), (1, 3, True), (0, 1, True)])
def test_fewer_than_five_of_ten_are_weak(k: int, n: int, weak: bool) -> None:
    """Or the same share of another number of runs; the pack says so itself."""
    assert is_weak(Counted(k, n, "x")) is weak
    said = sentence_of(Packed(Cobatch(member(1), ()), Counted(k, n, "x")))
    assert ("This pack is weak" in said) is weak


def test_without_curl_our_own_count_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is left for others, and the README says who counted."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    cobatch = Cobatch(member(1, delay_ms=2.0), (member(2),))
    shown = Tried("smallest", "beside 1", 3, 10)
    isolated = Isolated(whole=shown, tried=[shown], stages=(cobatch, cobatch, cobatch), shown=shown, first_step=3)
    found = Found("s", CELL, f"{CELL}/a/0/w0/0", 8, {}, cobatch)
    packed = make_pack(tmp_path / "p", found, isolated, server_line="llama-server", url="http://x", runs=10)
    assert packed.counted == Counted(3, 10, "our client")
    assert "counted by our client. This pack is weak" in (tmp_path / "p" / "README.md").read_text()
    assert "sleep 0.002; ask victim.json" in (tmp_path / "p" / "repro.sh").read_text()
    with pytest.raises(UsageError, match="is not empty"):
        make_pack(tmp_path / "p", found, isolated, server_line="x", url="http://x", runs=1)


def test_reporting_a_divergence_gives_advice_on_stderr_alone(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`report` and `diff` repeat upstream's words with their source; no file of the run holds them."""
    trial = find_cobatch(Run.open(audited), CELL).trial
    for words in (["report", str(audited)], ["diff", str(audited), trial], ["across", str(audited), str(audited)]):
        assert run_command_line(words) == 0
        said = capsys.readouterr()
        assert "advice: llama.cpp says" in said.err
        assert "tools/server/README.md" in said.err
        assert "advice" not in said.out
    assert not any(b"advice:" in path.read_bytes() for path in audited.rglob("*") if path.is_file())
