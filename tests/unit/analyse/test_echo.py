"""What a reply says of its request: settings, counts, and which token was taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from audit.analyse import findings
from audit.analyse.echo import biased_tokens, counts_agree, echo_agrees, is_greedy
from audit.record import Reply
from audit.stream import Step, Stream
from tests.unit.analyse.simulated import VOCABULARY, Subject, plan_of, write

SENT: dict[str, Any] = {"prompt": [1, 2, 3], "n_predict": 8, "n_probs": 3, "temperature": 0.0, "grammar": ""}
COUNTS = {"tokens_evaluated": 3, "cache_n": 1, "prompt_n": 2, "predicted_n": 8, "tokens_predicted": 8}
NOTHING = dict.fromkeys(Reply.__struct_fields__)
REPLY = msgspec.convert(
    {**NOTHING, "token": "t", "steps": 8, "holes": 0, "above_zero": 0, "saturated": 0, **COUNTS}, Reply
)
REPEATS = plan_of({"name": "repeat_greedy", "count": 3})
ONE = "repeat_greedy/p/0"


def status(folder: Path, check: str, change: Callable[[Step], Step], **facts: object) -> tuple[str, int]:
    """Return how a check ends where one step of one trial is changed, and by how many it falls short."""
    subject = Subject(plan=REPEATS)

    def changed(stream: Stream) -> Stream:
        # A step without the id that the simulated server biases.
        at = next(index for index, step in enumerate(stream.steps) if 0 not in dict(step.top))
        return stream._replace(steps=(*stream.steps[:at], change(stream.steps[at]), *stream.steps[at + 1 :]))

    subject.streams[ONE] = changed
    subject.replies[ONE] = lambda values: values.update(facts)
    entries = {entry["check"]: entry for entry in findings(write(folder, subject))["instrument"]}
    return entries[check]["status"], entries[check]["n"] - entries[check]["k"]


def renamed(step: Step, ids: dict[int, int]) -> Step:
    """Give entries of the top-k other ids."""
    return step._replace(top=tuple((ids.get(rank, token), value) for rank, (token, value) in enumerate(step.top)))


def test_counts_agree_with_prompt_each_other_and_steps() -> None:
    """What the server said fits; what it did not say is not held against it."""
    assert counts_agree(SENT, REPLY)
    for name in COUNTS:
        assert counts_agree(SENT, msgspec.structs.replace(REPLY, **{name: None})), name


@pytest.mark.parametrize("name", COUNTS)
def test_one_token_more_in_any_count_is_seen(name: str) -> None:
    """Each count is held by another one."""
    assert not counts_agree(SENT, msgspec.structs.replace(REPLY, **{name: COUNTS[name] + 1}))


def test_more_steps_than_asked_do_not_agree() -> None:
    """Even where all counts say so alike; fewer are another matter, which the number of steps decides."""
    nine = msgspec.structs.replace(REPLY, steps=9, predicted_n=9, tokens_predicted=9)
    seven = msgspec.structs.replace(REPLY, steps=7, predicted_n=7, tokens_predicted=7)
    assert (counts_agree(SENT, nine), counts_agree(SENT, seven)) == (False, True)


@pytest.mark.parametrize("sent", [None, [], {}, {"prompt": 3}, {"prompt": "abc", "n_predict": 8}])
def test_a_request_that_is_none_agrees_with_nothing(sent: object) -> None:
    """A stored request of another shape is no reason to stop."""
    assert not counts_agree(sent, REPLY)
    assert not is_greedy(sent)
    assert not echo_agrees(sent, [])


def test_only_requests_of_the_most_probable_token_are_greedy() -> None:
    """A grammar leaves no choice, and without logprobs nobody sees which one was made."""
    assert is_greedy(SENT)
    assert not any(map(is_greedy, ({**SENT, "temperature": 0.5}, {**SENT, "grammar": "g"}, {**SENT, "n_probs": 0})))


def test_biased_tokens_are_those_that_the_echo_names() -> None:
    """A bias without a token, or an echo without a list, names none."""
    assert biased_tokens({"logit_bias": [{"token": 4, "bias": None}, {"bias": 1}, 7]}) == {4}
    assert biased_tokens({"logit_bias": 4}) == biased_tokens(None) == frozenset()


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("short", lambda step: step._replace(top=step.top[:-1])),
        ("rising", lambda step: renamed(step._replace(top=(step.top[0], *step.top[:0:-1])), {})),
        ("an id twice", lambda step: renamed(step, {2: step.top[1][0]})),
        ("beyond the vocabulary", lambda step: renamed(step, {2: VOCABULARY})),
        ("below zero", lambda step: renamed(step, {2: -1})),
        ("not the token's own", lambda step: step._replace(logprob=step.top[1][1])),
        ("not behind the last", lambda step: renamed(step, {0: (step.token + 7) % VOCABULARY})),
        ("a token beyond the vocabulary", lambda step: step._replace(token=VOCABULARY, logprob=-9.0)),
    ],
)
def test_entries_that_are_no_top_k_fail_the_instrument(
    tmp_path: Path, what: str, change: Callable[[Step], Step]
) -> None:
    """One step of one stream is enough, and is counted as one."""
    assert status(tmp_path / "run", "top_k", change) == ("failed", 1), what


def test_a_token_behind_the_last_entry_is_a_top_k(tmp_path: Path) -> None:
    """A sampled token need not be among the most probable; its logprob then stands behind theirs."""
    changed = status(tmp_path / "run", "top_k", lambda step: step._replace(token=(step.token + 7) % 16, logprob=-9.0))
    assert changed == ("held", 0)


def test_a_step_with_a_null_is_a_hole_and_no_top_k(tmp_path: Path) -> None:
    """It is left out of the count, and the trial is equal to nothing."""
    run = tmp_path / "run"
    null = status(run, "top_k", lambda step: step._replace(top=(*step.top[:-1], (step.top[-1][0], None))))
    assert null == ("held", 0)
    assert [Stream.from_bytes(path.read_bytes()).holes for path in (run / "streams").iterdir()].count(1) == 1


def test_a_greedy_reply_that_passes_over_a_more_probable_token_fails(tmp_path: Path) -> None:
    """The second of the top-k was taken: that is another sampler than was asked for."""
    second = status(
        tmp_path / "run", "greedy", lambda step: step._replace(token=step.top[1][0], logprob=step.top[1][1])
    )
    assert second == ("failed", 1)


def test_a_token_that_the_server_biased_may_be_passed_over(tmp_path: Path) -> None:
    """End-of-text stays the most probable where `ignore_eos` forbids it."""

    def over_the_biased(step: Step) -> Step:
        first, second, third = step.top
        top = (
            (0, first[1]),
            (7 if second[0] == 0 else second[0], second[1]),
            (9 if third[0] == 0 else third[0], third[1]),
        )
        return Step(top[1][0], top[1][1], top)

    assert status(tmp_path / "run", "greedy", over_the_biased) == ("held", 0)


def test_counts_that_disagree_fail_the_instrument(tmp_path: Path) -> None:
    """One reply says that it generated more than it named."""
    assert status(tmp_path / "run", "counts", lambda step: step, predicted_n=9) == ("failed", 1)
