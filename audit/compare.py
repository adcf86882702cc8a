"""Two streams in, the first place where they differ out, with its size in ULP and nats.

Streams are compared up to and including the first step whose token differs: after it the texts differ, and so does
everything that follows. What is missing, short or no number equals nothing. This module reads no file and gives no
verdict; whether two trials are identical is decided from their digests, and this module says where and by how much not.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from audit.errors import EvidenceError
from audit.stream import Step, Stream

__all__ = [
    "OWN_RANK",
    "Consequence",
    "Difference",
    "consequence",
    "first_difference",
    "is_float32",
    "margin_of",
    "ulp_distance",
]

OWN_RANK = -1  # the rank of the step's own token; an entry of the top-k has its index
_PAIR = 2  # a margin needs a best and a second-best token
_SIGN_BIT = np.int64(0x80000000)


class Difference(NamedTuple):
    """The first place where a stream differs from its reference.

    `value` and `reference_value` are logprobs in nats, None where a stream has none; `ulp` counts the float32 values
    between them, `nats` is value minus reference value; `margin` is the reference's best minus second-best logprob.
    """

    step: int
    level: Literal["token", "logprob", "length"]
    rank: int
    value: float | None
    reference_value: float | None
    ulp: int | None
    nats: float | None
    margin: float | None


class Consequence(NamedTuple):
    """What a difference does to the reference's tokens, over the steps that both reached by the same tokens.

    `nats` is the change of their summed logprob, `perplexity_percent` of their perplexity (None where no float holds
    it, since a probability fell to zero); `rank_swaps` counts the pairs of tokens that both top-k hold in opposite
    order; `steps` is how many steps the sum is over.
    """

    nats: float
    perplexity_percent: float | None
    rank_swaps: int
    steps: int


def ulp_distance(a: ArrayLike, b: ArrayLike) -> NDArray[np.int64]:
    """Count the float32 values between `a` and `b`, element by element.

    Adjacent floats are 1 apart; +0.0 and -0.0 are 0 apart; the count crosses zero.

    Args:
        a: logprobs in nats, any shape, rounded to float32.
        b: logprobs in nats, same shape.

    Returns: distances in ULP, same shape, int64, each >= 0.
    Raises: EvidenceError for different shapes, and where a value is no finite float32.
    Source: the metric of numpy.testing.assert_array_max_ulp.
    """
    with np.errstate(over="ignore"):
        left, right = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
    if left.shape != right.shape:
        raise EvidenceError(f"logprobs of shape {left.shape} cannot be compared with logprobs of shape {right.shape}")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise EvidenceError("a logprob is no finite float32, so that no distance can be counted")
    return np.asarray(np.abs(_ordinal(left) - _ordinal(right)), dtype=np.int64)


def first_difference(stream: Stream, reference: Stream, *, tokens_only: bool = False) -> Difference | None:
    """Find the first place where `stream` differs from `reference`, or None where it does nowhere.

    Values differ where their canonical text does, so that -0.0 is not 0.0, as for the digests. A step's own token comes
    before its top-k. With `tokens_only` ids are compared and logprobs only shown.

    Raises: EvidenceError where logprobs were asked for with another `n_probs`, which cannot be compared.
    """
    if stream.n_probs != reference.n_probs and not tokens_only:
        raise EvidenceError(f"a stream with n_probs {stream.n_probs} is compared with one of {reference.n_probs}")
    for index, (step, other) in enumerate(zip(stream.steps, reference.steps, strict=False)):
        if step.token != other.token:
            return _difference(index, "token", OWN_RANK, step.logprob, other.logprob, reference=other)
        rank = None if tokens_only else _first_rank(step, other)
        if rank is not None:
            return _at_rank(index, rank, step, other)
    if len(stream.steps) == len(reference.steps):
        return None
    index = min(len(stream.steps), len(reference.steps))
    value, reference_value = (_own(of, index) for of in (stream, reference))
    kept = reference.steps[index] if index < len(reference.steps) else None
    return _difference(index, "length", OWN_RANK, value, reference_value, reference=kept)


def consequence(stream: Stream, reference: Stream) -> Consequence | None:
    """Say what the difference does to the reference's own tokens, or None where no step can be compared.

    Counted are the steps up to and including the first whose token differs, since until then both servers had read the
    same text. The stream's logprob of the reference's token is its own where the tokens are equal, else the one in its
    top-k; a step where either is missing is left out.
    """
    change, steps, swaps = 0.0, 0, 0
    for step, other in zip(stream.steps, reference.steps, strict=False):
        value = step.logprob if step.token == other.token else dict(step.top).get(other.token)
        if value is not None and other.logprob is not None:
            change += value - other.logprob
            steps += 1
        swaps += _swaps(step, other)
        if step.token != other.token:
            break
    if not steps:
        return None
    with np.errstate(over="ignore"):
        percent = float(100.0 * np.expm1(-change / steps))
    return Consequence(change, percent if np.isfinite(percent) else None, swaps, steps)


def _ordinal(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Number the float32 values in order, both zeros 0."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits + _SIGN_BIT), bits)


def _differs(value: float | None, other: float | None) -> bool:
    return repr(value) != repr(other)


def _first_rank(step: Step, other: Step) -> int | None:
    """Return the first rank at which two steps of the same token differ."""
    if _differs(step.logprob, other.logprob):
        return OWN_RANK
    for rank, (entry, expected) in enumerate(zip(step.top, other.top, strict=False)):
        if entry[0] != expected[0] or _differs(entry[1], expected[1]):
            return rank
    return None if len(step.top) == len(other.top) else min(len(step.top), len(other.top))


def _at_rank(index: int, rank: int, step: Step, other: Step) -> Difference:
    if rank == OWN_RANK:
        return _difference(index, "logprob", rank, step.logprob, other.logprob, reference=other)
    entry, expected = (of.top[rank] if rank < len(of.top) else (None, None) for of in (step, other))
    found = _difference(index, "logprob", rank, entry[1], expected[1], reference=other)
    return found if entry[0] == expected[0] else found._replace(ulp=None, nats=None)


def _difference(
    index: int,
    level: Literal["token", "logprob", "length"],
    rank: int,
    value: float | None,
    reference_value: float | None,
    *,
    reference: Step | None,
) -> Difference:
    ulp = nats = None
    if value is not None and reference_value is not None:
        nats = value - reference_value
        # A logprob that is no float32 is kept as the server sent it, and has no place among the float32 values.
        ulp = int(ulp_distance(value, reference_value)) if is_float32(value) and is_float32(reference_value) else None
    return Difference(index, level, rank, value, reference_value, ulp, nats, margin_of(reference))


def is_float32(value: float) -> bool:
    """Tell whether a logprob is a float32 value, as every one that a server reports should be."""
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def margin_of(step: Step | None) -> float | None:
    """Return the best minus the second-best logprob of a top-k, in nats."""
    values = sorted((logprob for _, logprob in step.top if logprob is not None), reverse=True) if step else []
    return values[0] - values[1] if len(values) >= _PAIR else None


def _own(stream: Stream, index: int) -> float | None:
    return stream.steps[index].logprob if index < len(stream.steps) else None


def _swaps(step: Step, other: Step) -> int:
    """Count the pairs of tokens that both top-k hold in opposite order."""
    places = {token: place for place, (token, _) in enumerate(step.top)}
    common = [places[token] for token, _ in other.top if token in places]
    if common == sorted(common):
        return 0
    return sum(earlier > later for index, earlier in enumerate(common) for later in common[index + 1 :])
