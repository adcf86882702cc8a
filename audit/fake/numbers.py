"""Numbers: the faults that move what a model computes, and when each of them does.

In: a generation as it begins, or a row as it is computed. Out: which rounding noise moves the row, or the row as it is
reported. Two tables name each `jitter_` switch once: STARTS for what is decided when a generation begins, ROWS for
what depends on its batch or step. What is not a matter of rounding noise follows as one small function each.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from audit.fake.model import Row, row_of
from audit.fake.slot import Generation, Slot
from audit.fake.switches import Faults
from audit.fake.vocabulary import EOS

__all__ = ["Moment", "Start", "planted", "reported", "row_salt", "start_salts", "with_one_ulp"]

_SALT_BIT = 16  # the lower bits hold the count of slots in the decode: another batch shape is another rounding
_OWN_BIT = 64  # above: the request's own number, for what moves each request in its own way
_LEVEL_MIN = 2  # two slots in one decode: the smallest batch that is one


@dataclass(frozen=True, slots=True)
class Start:
    """A generation as it begins in a slot.

    Attributes:
        generation: what begins.
        slot: where; its `last` is what ran there before.
        restarts: how many processes there were before this one.
        ended: the generation that ended last, and its slot; None before the first.
        alone: whether no other slot works.
    """

    generation: Generation
    slot: Slot
    restarts: int
    ended: tuple[Generation, int] | None
    alone: bool

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return self.generation.request.sampling.temperature > 0


@dataclass(frozen=True, slots=True)
class Moment:
    """A row as it is computed: whose, in which decode, and whether such a wave was seen before."""

    generation: Generation
    batch: list[Generation]
    seen: bool = False

    @property
    def middle(self) -> bool:
        """Whether the row is that of the middle step, at which the members of a wave are surely together."""
        return len(self.generation.steps) == middle_of(self.generation)

    @property
    def mixed(self) -> bool:
        """Whether the decode holds another prompt."""
        return any(other.prompt != self.generation.prompt for other in self.batch)

    @property
    def in_wave(self) -> bool:
        """Whether the decode holds several slots, all with one prompt, and this one was pinned."""
        return len(self.batch) >= _LEVEL_MIN and not self.mixed and self.generation.request.slot >= 0

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return self.generation.request.sampling.temperature > 0


def middle_of(generation: Generation) -> int:
    """Return the index of a generation's middle step."""
    return generation.step_count_max // 2


def _cached(start: Start) -> int:
    """Return how much a request that asked for the cache found there, -1 for one that did not ask."""
    return start.generation.cache_n if start.generation.request.cache_prompt else -1


def _whole(start: Start) -> bool:
    return _cached(start) == len(start.generation.prompt) - 1 > 1


def _left_by_cached(start: Start) -> bool:
    return start.slot.last is not None and start.slot.last.cache_n > 1


def _beside_a_rest(start: Start) -> bool:
    if start.ended is None or not start.alone:
        return False
    ended, slot = start.ended
    return slot != start.slot.index and ended.request.cache_prompt and ended.prompt != start.generation.prompt


def _once_in(start: Start, faults: Faults) -> bool:
    return bool(faults.jitter_once_in) and (start.generation.task.ordinal + 1) % (faults.jitter_once_in or 1) == 0


# What is decided when a generation begins: it then moves as a whole.
STARTS: dict[str, Callable[[Start, Faults], bool]] = {
    "jitter_repeated": lambda start, _: start.generation.repeats > 0 and not start.sampled,
    "jitter_resampled": lambda start, _: start.generation.repeats > 0 and start.sampled,
    "jitter_first": lambda start, _: start.generation.task.ordinal == 0,
    "jitter_restarted": lambda start, _: start.restarts > 0,
    "jitter_slot": lambda start, faults: start.slot.index == faults.jitter_slot,
    "jitter_queued": lambda start, _: start.generation.task.waited,
    "jitter_cached": lambda start, _: start.generation.cache_n > 0,
    "jitter_cache_cold": lambda start, _: 0 <= _cached(start) <= 1,
    "jitter_cache_warm1": lambda start, _: _whole(start) and not _left_by_cached(start),
    "jitter_cache_warm2": lambda start, _: _whole(start) and _left_by_cached(start),
    "jitter_cache_prefix": lambda start, _: 1 < _cached(start) < len(start.generation.prompt) - 1,
    "jitter_idle_neighbour": lambda start, _: _beside_a_rest(start),
    "jitter_forced": lambda start, _: start.generation.request.forced is not None,
    "jitter_streamed": lambda start, _: start.generation.request.stream,
    "jitter_once_in": _once_in,
}

# What is decided at each row.
ROWS: dict[str, Callable[[Moment, Faults], bool]] = {
    "jitter_concurrent": lambda moment, _: len(moment.batch) >= _LEVEL_MIN,
    "jitter_from_level": lambda moment, faults: moment.middle and len(moment.batch) >= (faults.jitter_from_level or 1),
    "jitter_concurrent_greedy": lambda moment, _: moment.middle and moment.in_wave and not moment.sampled,
    "jitter_concurrent_seeded": lambda moment, _: moment.middle and moment.in_wave and moment.sampled,
    "jitter_wave_again": lambda moment, _: moment.seen,
    "jitter_mixed_batch": lambda moment, _: moment.mixed,
    "jitter_together": lambda moment, _: not moment.generation.steps and moment.mixed,
    "jitter_staggered": lambda moment, _: (
        bool(moment.generation.steps)
        and any(not other.steps and other.prompt != moment.generation.prompt for other in moment.batch)
    ),
    "jitter_prefill": lambda moment, _: not moment.generation.steps,
}
# These depend on the shape of the batch, not only on whether there is one.
_BY_SHAPE = frozenset({"jitter_concurrent", "jitter_mixed_batch"})
_BITS = {name: 1 << (_SALT_BIT + index) for index, name in enumerate((*STARTS, *ROWS))}


def start_salts(start: Start, faults: Faults) -> int:
    """Return the noise of a whole generation, 0 for none."""
    return sum(_BITS[name] for name, moves in STARTS.items() if _on(faults, name) and moves(start, faults))


def row_salt(moment: Moment, faults: Faults) -> int:
    """Return the noise of one row, that of its generation left out, 0 for none."""
    salt = 0
    for name, moves in ROWS.items():
        if _on(faults, name) and moves(moment, faults):
            salt += _BITS[name] + (len(moment.batch) if name in _BY_SHAPE else 0)
    generation = moment.generation
    own = (generation.task.ordinal + 1) << _OWN_BIT
    if faults.jitter_past_step is not None and len(generation.steps) >= faults.jitter_past_step:
        salt += own
    if faults.jitter_prompt_tokens == len(generation.prompt):
        salt += own << 1
    return salt


def _on(faults: Faults, name: str) -> bool:
    value = getattr(faults, name)
    return value is not False and value is not None


def reported(row: Row, generation: Generation, faults: Faults) -> Row:
    """Return a row as this server has it: tied, flipped, rounded, or in another precision."""
    middle = len(generation.steps) == middle_of(generation)
    if faults.flip_near_tie is not None and middle:
        row = _near_tie(row, flipped=generation.task.ordinal == faults.flip_near_tie)
    if faults.flip_without_logprobs and middle and generation.request.n_probs <= 0:
        row = _near_tie(row, flipped=True)
    if faults.tie_reordered is not None and middle:
        row = _tie(row, generation, turned=generation.task.ordinal == faults.tie_reordered)
    if faults.logprobs_float64:
        row = replace(row, logprobs=_float64(row.logits))
    if faults.logprobs_rounded:
        row = replace(row, logprobs=np.array([float(f"{value:.6g}") for value in row.logprobs.tolist()]))
    return row


def _near_tie(row: Row, *, flipped: bool) -> Row:
    """Return the row with its two best admissible tokens one float32 apart, the second one on top where flipped."""
    best, second = [token for token in row.order[:3].tolist() if token != EOS][:2]
    logits = row.logits.copy()
    upper, lower = (second, best) if flipped else (best, second)
    logits[upper] = row.logits[best]
    logits[lower] = np.nextafter(row.logits[best], np.float32(-np.inf))
    return row_of(logits)


def _tie(row: Row, generation: Generation, *, turned: bool) -> Row:
    """Return the row with equal logprobs at its last two reported ranks, in turn where asked."""
    last = min(generation.request.n_probs, len(row.order)) - 1
    if last < 1:
        return row
    logprobs, order = row.logprobs.copy(), row.order.copy()
    logprobs[order[last]] = logprobs[order[last - 1]]
    if turned:
        order[[last - 1, last]] = order[[last, last - 1]]
    return replace(row, logprobs=logprobs, order=order)


def _float64(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()), dtype=np.float64)


def planted(seed: int, ordinal: int, *, steps: int, n_probs: int) -> tuple[int, int]:
    """Return step and rank at which `one_ulp_each` moves a reply; `ordinal` is the index of its request."""
    number = int.from_bytes(hashlib.sha256(f"{seed} {ordinal}".encode()).digest()[:8], "big")
    return number % steps, number // steps % n_probs


def with_one_ulp(row: Row, rank: int) -> Row:
    """Return the row with the logprob at a rank one float32 lower; its place in the order stays."""
    logprobs = row.logprobs.copy()
    token = row.order[rank]
    logprobs[token] = np.nextafter(logprobs[token], logprobs.dtype.type(-np.inf))
    return replace(row, logprobs=logprobs)
