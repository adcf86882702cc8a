"""Two streams are told apart at the first place where their bytes differ, with the distance in ULP and nats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.compare import Difference, consequence, first_difference, ulp_distance
from audit.errors import EvidenceError
from audit.stream import Step, Stream

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def f32(value: float) -> float:
    """Round to the nearest float32."""
    return float(np.float32(value))


def up(value: float, ulp: int = 1) -> float:
    """Move a float32 by `ulp` values towards plus infinity."""
    bits = np.float32(value)
    for _ in range(ulp):
        bits = np.nextafter(bits, np.float32(np.inf), dtype=np.float32)
    return float(bits)


A, B, C = f32(-0.3), f32(-1.7), f32(-3.1)
STEP = Step(5, A, ((5, A), (6, B), (7, C)))


def stream(*steps: Step, n_probs: int = 3) -> Stream:
    """Make a stream of these steps."""
    return Stream(n_probs, steps)


def difference(one: Stream, other: Stream) -> Difference:
    """Return the first difference, which must exist."""
    found = first_difference(one, other)
    assert found is not None
    return found


def test_a_stream_does_not_differ_from_itself() -> None:
    """Self against self is no difference, and has no consequence but zero."""
    one = stream(STEP, STEP)
    assert first_difference(one, stream(STEP, STEP)) is None
    assert first_difference(one, one, tokens_only=True) is None
    assert consequence(one, one) == (0.0, 0.0, 0, 2)


def test_one_ulp_of_the_last_entry_is_a_difference_of_one_ulp() -> None:
    """The smallest change of a logprob is found, with its rank and the reference's margin."""
    moved = STEP._replace(top=((5, A), (6, B), (7, up(C))))
    found = difference(stream(STEP, moved), stream(STEP, STEP))
    assert found == (1, "logprob", 2, up(C), C, 1, up(C) - C, A - B)


def test_the_tokens_own_logprob_comes_before_the_top_k() -> None:
    """Where a step differs in both, the step's own logprob is shown, with rank -1."""
    moved = Step(5, up(A, 3), ((5, up(A, 3)), (6, B), (7, C)))
    found = difference(stream(moved), stream(STEP))
    assert (found.rank, found.ulp, found.value, found.reference_value) == (-1, 3, up(A, 3), A)


def test_another_token_is_a_token_difference_and_ends_the_comparison() -> None:
    """At another token the tokens' own logprobs are shown, however equal the top-k are."""
    other = Step(6, B, STEP.top)
    found = difference(stream(STEP, other, STEP), stream(STEP, STEP, STEP))
    assert (found.step, found.level, found.rank) == (1, "token", -1)
    assert (found.value, found.reference_value, found.nats, found.margin) == (B, A, B - A, A - B)


def test_another_id_in_the_top_k_has_no_distance() -> None:
    """Logprobs of two tokens have no ULP between them, although both are shown."""
    swapped = STEP._replace(top=((5, A), (8, B), (7, C)))
    found = difference(stream(swapped), stream(STEP))
    assert (found.level, found.rank, found.ulp, found.nats) == ("logprob", 1, None, None)
    assert (found.value, found.reference_value) == (B, B)


def test_a_missing_entry_is_a_difference() -> None:
    """A short top-k differs at the rank that is missing, and a hole at the token's own logprob."""
    short = STEP._replace(top=STEP.top[:2])
    assert (difference(stream(short), stream(STEP)).rank, difference(stream(short), stream(STEP)).value) == (2, None)
    hole = Step(5, None, ())
    found = difference(stream(hole), stream(STEP))
    assert (found.rank, found.value, found.reference_value, found.ulp) == (-1, None, A, None)
    assert difference(stream(STEP), stream(hole)).margin is None


@pytest.mark.parametrize("longer", [True, False])
def test_a_prefix_differs_in_length(longer: bool) -> None:
    """Where one stream ends before the other, the step after the shorter one's end is named."""
    pair = (stream(STEP, STEP), stream(STEP))
    found = difference(*(pair if longer else pair[::-1]))
    assert (found.step, found.level, found.rank, found.ulp) == (1, "length", -1, None)
    assert (found.value, found.reference_value) == ((A, None) if longer else (None, A))
    assert found.margin == (None if longer else A - B)


def test_zeros_of_both_signs_differ_by_no_ulp() -> None:
    """-0.0 has another canonical text than 0.0, so the digests differ, and so must the comparison."""
    plus, minus = stream(Step(5, 0.0, ((5, 0.0),)), n_probs=1), stream(Step(5, -0.0, ((5, -0.0),)), n_probs=1)
    assert plus.logprob_digest != minus.logprob_digest
    assert difference(plus, minus)[:3] == (0, "logprob", -1)
    assert difference(plus, minus).ulp == 0


def test_only_tokens_are_compared_where_only_they_are_asked_for() -> None:
    """With `tokens_only`, other logprobs and another n_probs are no difference, but another token is."""
    bare = stream(Step(5, None, ()), Step(5, None, ()), n_probs=0)
    assert first_difference(bare, stream(STEP, STEP), tokens_only=True) is None
    found = first_difference(bare, stream(STEP, Step(9, C, ())), tokens_only=True)
    assert found == (1, "token", -1, None, C, None, None, None)


def test_logprobs_of_another_n_probs_are_not_compared() -> None:
    """The server sums the softmax in another order for another n_probs."""
    with pytest.raises(EvidenceError, match="n_probs 2 is compared with one of 3"):
        first_difference(stream(STEP, n_probs=2), stream(STEP))


def test_a_logprob_that_is_no_float32_has_no_ulp() -> None:
    """A number beyond float32 is shown in nats only."""
    found = difference(stream(Step(5, -1e300, ())), stream(Step(5, A, ())))
    assert (found.ulp, found.nats) == (None, -1e300 - A)


@given(st.lists(st.tuples(st.integers(0, 3), FLOAT32), min_size=1, max_size=6), st.integers(0, 5))
def test_streams_differ_exactly_where_their_digests_do(pairs: list[tuple[int, float]], at: int) -> None:
    """A change anywhere up to the first other token is found at its step, and none where there is none."""
    steps = [Step(token, value, ((token, value),)) for token, value in pairs]
    at %= len(steps)
    changed = [*steps]
    changed[at] = steps[at]._replace(top=((steps[at].token, steps[at].logprob), (9, -1.0)))
    one, other = stream(*steps), stream(*changed)
    assert first_difference(one, one) is None
    assert one.logprob_digest != other.logprob_digest
    assert difference(other, one).step == at


def test_ulp_distance_counts_floats_across_zero() -> None:
    """Golden distances: adjacent floats, both zeros, the two sides of zero, one binade."""
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    left, right = [1.0, 0.0, -tiny, 1.0, -1.0], [up(1.0), -0.0, tiny, 2.0, -2.0]
    assert ulp_distance(left, right).tolist() == [1, 0, 2, 2**23, 2**23]
    assert ulp_distance(left, right).dtype == np.int64


@given(FLOAT32, FLOAT32)
def test_ulp_distance_is_a_distance(a: float, b: float) -> None:
    """It is symmetric, never negative, and 0 only for equal values."""
    there, back = int(ulp_distance(a, b)), int(ulp_distance(b, a))
    assert there == back >= 0
    assert (there == 0) == (a == b)


def test_ulp_distance_refuses_what_has_none() -> None:
    """Infinities, NaN, numbers beyond float32 and unlike shapes are errors, never a distance."""
    for value in (math.inf, math.nan, 1e300):
        with pytest.raises(EvidenceError, match="no finite float32"):
            ulp_distance([1.0], [value])
    with pytest.raises(EvidenceError, match=r"shape \(1,\)"):
        ulp_distance([1.0], [1.0, 2.0])


def test_a_consequence_is_taken_up_to_the_first_other_token() -> None:
    """The reference's token is looked up in the other top-k where the tokens part, and nothing after counts."""
    parted = Step(6, B, ((6, B), (5, C), (7, A)))
    one, other = stream(Step(5, up(A), STEP.top), parted, parted), stream(STEP, STEP, parted)
    found = consequence(one, other)
    assert found is not None
    change = (up(A) - A) + (C - A)
    assert (found.nats, found.steps) == (change, 2)
    assert found.perplexity_percent == pytest.approx(100 * (math.exp(-change / 2) - 1))
    # The tokens 5 and 6 changed places.
    assert found.rank_swaps == 1


def test_no_common_step_has_no_consequence() -> None:
    """Holes and streams without logprobs leave nothing to add up; a probability of zero has no perplexity."""
    assert consequence(stream(Step(5, None, ())), stream(STEP)) is None
    sentinel = -3.4028234663852886e38
    found = consequence(stream(Step(5, sentinel, ())), stream(STEP))
    assert found is not None
    assert found.perplexity_percent is None
