"""A difference is told in words that are true of it, and its digits are cut where they part."""

from __future__ import annotations

import pytest

from audit.compare import first_difference
from audit.report.difference import Digits, difference_words, side_by_side, step_rows
from audit.stream import Step, Stream
from tests.unit.analyse.simulated import moved


def stream(*tokens: int) -> Stream:
    """Return a stream in which each token leads its top-k."""
    return Stream(2, tuple(Step(token, -0.5, ((token, -0.5), (token + 100, -1.25))) for token in tokens))


REFERENCE = stream(*range(10))


def words(other: Stream) -> str:
    """Return the sentences about a stream and the reference."""
    return " ".join(difference_words(other, REFERENCE, first_difference(other, REFERENCE)))


def test_equal_streams_are_told_as_such() -> None:
    """With the number of steps."""
    assert words(REFERENCE) == "They are the same stream: 10 steps, every token and every logprob."


def test_a_moved_logprob_is_told_with_values_ulp_nats_and_margin() -> None:
    """The interface's own words: they agree through a step, then at the next."""
    told = words(moved(REFERENCE, 7))
    assert told.startswith("They agree through step 6, every token and every logprob. At step 7 the same token, 7, has")
    assert "-0.49999997019767761" in told or "-0.4999999701976776" in told
    assert "1 float32 values, or 2.98e-08 nats, apart" in told
    assert "two best tokens are 0.75 nats apart there; the token stayed the same, and no later token differs." in told


def test_another_token_is_told_with_both() -> None:
    """And with the margin that was not enough."""
    told = words(stream(0, 1, 2, 42, 4))
    assert "At step 3 the trial has token 42 with logprob -0.5, its reference token 3 with -0.5." in told
    assert "so that a change of that size is enough to choose another token" in told


@pytest.mark.parametrize(
    ("other", "begin"),
    [
        (moved(REFERENCE, 0), "They differ already at step 0, the first generated token."),
        (moved(REFERENCE, 1), "They agree at step 0, token and logprobs."),
        (stream(0, 1, 2), "They agree through step 2, every token and every logprob. Then one of them ends"),
    ],
)
def test_where_it_begins_is_told(other: Stream, begin: str) -> None:
    """At the first step, at the second, and where a stream is shorter."""
    assert words(other).startswith(begin)


def test_a_rank_with_another_token_is_told_without_a_distance() -> None:
    """Two logprobs of two tokens have no distance."""
    step = REFERENCE.steps[4]
    other = REFERENCE._replace(
        steps=(*REFERENCE.steps[:4], step._replace(top=(step.top[0], (7, -1.25))), *REFERENCE.steps[5:])
    )
    assert "At step 4 the chosen tokens are equal, and rank 1 of the top-k is another token." in words(other)


def test_digits_are_cut_where_they_part() -> None:
    """The chosen token first, then the ranks; decimal and hexadecimal each by itself."""
    own, first, second = side_by_side(moved(REFERENCE, 7).steps[7], REFERENCE.steps[7])
    assert (own.rank, first.rank, second.rank) == ("own", "0", "1")
    assert own.trial is not None
    assert own.reference is not None
    assert own.reference.decimal == Digits("-0.", "5")
    assert own.trial.decimal.differs.startswith("49999997")
    assert own.trial.token == Digits("7", "")
    assert own.differs
    assert first.differs, "the first of the top-k is the token's own"
    assert not second.differs
    assert second.trial is not None
    assert second.trial.hexadecimal == Digits((-1.25).hex(), "")


def test_another_token_is_marked_whole_and_a_missing_side_is_none() -> None:
    """Digits of two ids are not alike because they begin alike."""
    own, *_ = side_by_side(stream(42).steps[0], stream(43).steps[0])
    assert own.trial is not None
    assert own.trial.token == Digits("", "42")
    assert [pair.reference for pair in side_by_side(REFERENCE.steps[0], None)] == [None] * 3


def test_steps_around_stop_at_the_first_other_token() -> None:
    """Three before, three after, and none beyond the token that differs."""
    assert [row["step"] for row in step_rows(moved(REFERENCE, 5), REFERENCE)] == [2, 3, 4, 5, 6, 7, 8]
    rows = step_rows(stream(0, 1, 2, 3, 4, 42, 6, 7, 8, 9), REFERENCE)
    assert [row["step"] for row in rows] == [2, 3, 4, 5]
    assert [row["difference"] for row in rows] == [False, False, False, True]
    assert rows[-1]["logprob"] is None
    assert [row["step"] for row in step_rows(REFERENCE, REFERENCE)] == [7, 8, 9]
