"""Two trials or streams are found by their names, compared, and told with what they shared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.report.diff import diff_document, diff_text, explain, sides
from audit.store import Run
from tests.unit.report.reported import WAVE, eventful, hostile


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the eventful run."""
    return eventful(tmp_path_factory.mktemp("diff") / "run")


def text(*operands: object) -> str:
    """Return what a command line says."""
    return diff_text(explain(*sides([str(operand) for operand in operands])))


def test_a_trial_is_compared_with_its_reference(run: Run) -> None:
    """Where it is named alone: the words, the step, ULP, nats and margin, and what the two shared."""
    told = text(run.folder, f"a:{WAVE}/0")
    assert "a:baseline/greedy/p" in told
    assert "They agree through step 2, every token and every logprob." in told
    assert (
        "the same prompt; the same slot; the trial in a wave of 2; the reference alone; nothing from the cache" in told
    )
    row = next(line for line in told.splitlines() if line.startswith(">"))
    assert row.split()[1] == "3"
    assert row.split()[-4] == "1"
    assert row.split()[-1] == "differs", "the first of the top-k is the token's own"
    assert "[" in next(line for line in told.splitlines() if line.startswith("own"))


def test_members_of_one_wave_are_told_as_such(run: Run) -> None:
    """Two named trials share the wave and not the slot."""
    told = text(run.folder, f"a:{WAVE}/0", f"a:{WAVE}/1")
    assert "slots 0 and 1; members of one wave of 2" in told


def test_equal_trials_are_one_stream(run: Run) -> None:
    """No table of a difference that is not there."""
    told = text(run.folder, "a:repeat_greedy/p/0", "a:repeat_greedy/p/1")
    assert "They are the same stream: 8 steps" in told
    assert "steps around it" not in told


def test_a_reused_cache_is_told(run: Run) -> None:
    """Tokens that came from the cache, on either side."""
    assert "69 and 0 prompt tokens from the cache" in text(run.folder, "a:cache/cached/0/warm1")


def test_trials_of_two_runs_and_two_files_can_be_compared(run: Run, tmp_path: Path) -> None:
    """RUN:SERVER:TRIAL, RUN:TRIAL where there is one server, and a stream by its file."""
    other = eventful(tmp_path / "other")
    told = text(f"{run.folder}:a:repeat_greedy/p/0", f"{other.folder}:b:repeat_greedy/p/1")
    assert "They are the same stream" in told
    one, two = (explain(*sides([str(run.folder), f"a:{WAVE}/0"])).trial, f"{run.folder}:a:{WAVE}/1")
    file = run.folder / "streams" / f"{one.digest.removeprefix('sha256:')}.jsonl"
    assert "They agree through step 2" in text(file, two)
    assert "They are the same stream" in text(file, file)


def test_the_document_holds_the_same(run: Run) -> None:
    """Values are JSON numbers, digests whole, circumstances by name."""
    document = json.loads(json.dumps(diff_document(explain(*sides([str(run.folder), f"a:{WAVE}/0"])))))
    assert document["difference"]["step"] == 3
    assert document["difference"]["ulp"] == 1
    assert document["trial"]["circumstances"]["members"] == 2
    assert document["reference"]["circumstances"]["trial"] == "baseline/greedy/p"
    assert document["trial"]["stream"] != document["reference"]["stream"]
    assert [row["step"] for row in document["steps"] if row["difference"]] == [3]
    assert document["top_k"][0]["differs"]
    assert document["consequence"]["steps"] == 8


def test_streams_of_other_n_probs_are_compared_by_tokens(run: Run) -> None:
    """And that is said."""
    told = text(run.folder, "a:without_logprobs/p/0", "a:baseline/greedy/p")
    assert "only tokens are compared" in told
    assert "They are the same stream" in told


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (["a:nothing/p/0"], "has no trial 'a:nothing/p/0'"),
        (["c:repeat_greedy/p/0"], "has no trial 'c:repeat_greedy/p/0'"),
        (["repeat_greedy/p/0"], "repeat_greedy/p/0 is a trial of 2 servers"),
        (["a:baseline/greedy/p"], "a:baseline/greedy/p is compared with no other trial"),
        (["a:canary/first", "a:canary/last"], "holds rows of the whole vocabulary and no stream"),
        (["b:stream_vs_whole/p/0"], "was not completed"),
        ([], "0 trials are named"),
        (["a:x", "a:y", "a:z"], "3 trials are named"),
    ],
)
def test_what_cannot_be_compared_is_said(run: Run, operands: list[str], message: str) -> None:
    """What is wrong, with the value, and what to do next."""
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        sides([str(run.folder), *operands])
    assert caught.value.hint


@pytest.mark.parametrize(
    "operands", [["/nowhere", "/nothing"], ["/nowhere"], ["/nowhere", "x", "y"], ["/nowhere:t", "x"]]
)
def test_what_is_neither_run_nor_file_is_said(operands: list[str]) -> None:
    """A command line that names nothing is refused with its form."""
    with pytest.raises(UsageError) as caught:
        sides(operands)
    assert "RUN:TRIAL" in (caught.value.hint or "")


def test_a_stream_that_is_left_out_is_said(tmp_path: Path) -> None:
    """A copy without streams has nothing to compare."""
    run = eventful(tmp_path / "run")
    for path in (run.folder / "streams").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="leaves the stream of a:repeat_greedy/p/0 out"):
        sides([str(run.folder), "a:repeat_greedy/p/0"])


def test_a_hostile_label_commands_no_terminal(tmp_path: Path) -> None:
    """The text is printable ASCII in lines."""
    told = text(hostile(tmp_path / "run").folder, f"{WAVE}/0")
    assert told.isascii()
    assert all(line.isprintable() for line in told.splitlines())
