"""The proof of a trial: one rule for all (`first_item`) and one function for each family of conditions (`PROOFS`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from audit.proofs.facts import HELD, NS_PER_MS, Case, Flight, Judged, UnitFacts, Window, judge_all, number_of

__all__ = ["PROOFS", "busy_slots", "distinct_slots", "first_item", "prove", "windows_overlap"]

BUSY_SHARE = Fraction(8, 10)
COMMON_SHARE = 0.5  # of the shortest window
TOGETHER_SHARE = 0.9  # of the member's window
TOUCH_NS = 1_000_000  # cut from both ends of a window: ends that touch within twice this do not overlap
QUEUE_NS = 2_000_000
CACHED_TOKENS_MIN = 64
COLD_CACHED_MAX = 1  # the BOS
PREFIX_CACHED_MIN = 2
NEIGHBOUR_SLOT = 1
# Members of a wave are judged one after the other, and each by the whole wave.
_WAVES_KEPT = 64


def first_item(flights: Sequence[Flight]) -> Judged:
    """Check that no request touched the cache unasked, and that each ran on the slot that it asked for."""
    for flight in flights:
        clean = flight.cache_n == 0 and flight.prompt_n is not None and flight.prompt_n == flight.tokens_evaluated
        if not flight.cache and not clean:
            return Judged("failed", "cache")
    if any(flight.slot not in {-1, flight.id_slot} for flight in flights):
        return Judged("failed", "slot")
    return HELD


def prove(family: str, case: Case) -> Judged:
    """Judge whether a trial's condition really happened; `family` is its condition without a level."""
    return judge_all((first_item(case.flights), PROOFS[family](case)))


def _windows(flights: Iterable[Flight | None]) -> list[Window] | None:
    """Return the windows of all flights, or None where one is missing."""
    windows = [flight.window if flight else None for flight in flights]
    found = [window for window in windows if window is not None]
    return found if found and len(found) == len(windows) else None


def _require(*, holds: bool, reason: str) -> Judged:
    return HELD if holds else Judged("failed", reason)


@lru_cache(maxsize=_WAVES_KEPT)
def _wave(unit: UnitFacts) -> Judged:
    """Judge whether the members of a wave really ran at once, each on its own slot."""
    flights = unit.flights
    return judge_all((windows_overlap(flights), distinct_slots(flights), busy_slots(unit, len(flights))))


def windows_overlap(flights: Sequence[Flight | None]) -> Judged:
    """Judge whether all processing windows share at least half of the shortest."""
    windows = _windows(flights)
    if windows is None:
        return Judged("failed", "windows")
    common = min(window.end_ns for window in windows) - max(window.begin_ns for window in windows)
    return _require(holds=common >= COMMON_SHARE * min(one.length_ns for one in windows), reason="windows")


def distinct_slots(flights: Sequence[Flight | None]) -> Judged:
    """Judge whether each request ran on a slot of its own."""
    slots = {flight.id_slot for flight in flights if flight}
    return _require(holds=len(slots - {None}) == len(flights), reason="slots")


def busy_slots(unit: UnitFacts, level: int) -> Judged:
    """Judge the slots that were busy per decode over a wave, where the server counts them."""
    before = unit.before.metrics if unit.before else None
    after = unit.after.metrics if unit.after else None
    if before is None or after is None:
        return Judged("weak", "busy")
    printed = [one.get(name) for one in (before, after) for name in ("n_busy_slots_per_decode", "n_decode_total")]
    if None in printed:
        return Judged("weak", "busy")
    numbers = [number_of(text) for text in printed if text is not None]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return Judged("failed", "busy")
    busy_before, decodes_before, busy_after, decodes_after = known
    decodes = decodes_after - decodes_before
    busy = busy_after * decodes_after - busy_before * decodes_before
    return _require(holds=decodes > 0 and busy >= BUSY_SHARE * level * decodes, reason="busy")


def _concurrent(case: Case) -> Judged:
    return _wave(case.unit)


def _wave_repeat(case: Case) -> Judged:
    first = _wave(case.unit_first) if case.unit_first else Judged("failed", "windows")
    return judge_all((first, _wave(case.unit)))


def _depth_max(windows: Iterable[Window]) -> int:
    """Return how many windows overlap at most, each cut at both ends so that touching ends do not count."""
    cut = [Window(window.begin_ns + TOUCH_NS, window.end_ns - TOUCH_NS) for window in windows]
    events = [(end, -1) for begin, end in cut if begin < end] + [(begin, 1) for begin, end in cut if begin < end]
    depth = deepest = 0
    for _, change in sorted(events):
        depth += change
        deepest = max(deepest, depth)
    return deepest


def _oversubscribed(case: Case) -> Judged:
    return _crowd(case.unit)


@lru_cache(maxsize=_WAVES_KEPT)
def _crowd(unit: UnitFacts) -> Judged:
    """Judge whether more requests than slots filled every slot, and the rest waited."""
    flights = unit.flights
    windows = _windows(flights)
    if windows is None or _depth_max(windows) != unit.slots:
        return Judged("failed", "windows")
    if not set(range(unit.slots)) <= {flight.id_slot for flight in flights if flight}:
        return Judged("failed", "slots")
    windows.sort(key=lambda window: window.end_ns)
    queued = windows[unit.slots :]
    return _require(holds=all(w.begin_ns >= windows[0].end_ns - QUEUE_NS for w in queued), reason="queue")


def _together(case: Case) -> Judged:
    member, neighbours = case.flights[0].window, _windows(case.neighbours)
    if member is None or neighbours is None:
        return Judged("failed", "windows")
    needed = TOGETHER_SHARE * member.length_ns
    return _require(holds=all(member.common_ns(window) >= needed for window in neighbours), reason="windows")


def _staggered(case: Case) -> Judged:
    member = case.flights[0]
    if member.window is None or member.predicted_ms is None:
        return Judged("failed", "windows")
    decoding = Window(member.end_ns - member.predicted_ms * NS_PER_MS, float(member.end_ns))
    middles = [
        flight.window.begin_ns + flight.prompt_ms * NS_PER_MS / 2
        for flight in case.neighbours
        if flight and flight.window and flight.prompt_ms is not None
    ]
    return _require(holds=any(decoding.begin_ns <= middle <= decoding.end_ns for middle in middles), reason="windows")


def _cached(case: Case, fits: Callable[[int, int], bool]) -> Judged:
    """Judge what came from the cache; `fits` gets the cached and the evaluated number of tokens."""
    for flight in case.flights:
        cached, fresh, evaluated = flight.cache_n, flight.prompt_n, flight.tokens_evaluated
        if cached is None or fresh is None or evaluated is None:
            return Judged("failed", "cache")
        if cached + fresh != evaluated or not fits(cached, evaluated):
            return Judged("failed", "cache")
    return HELD


def _cold(case: Case) -> Judged:
    return _cached(case, lambda cached, evaluated: cached <= COLD_CACHED_MAX and evaluated >= CACHED_TOKENS_MIN)


def _warm(case: Case) -> Judged:
    return _cached(case, lambda cached, evaluated: 2 * cached >= evaluated >= CACHED_TOKENS_MIN)


def _prefix(case: Case) -> Judged:
    return _cached(case, lambda cached, evaluated: PREFIX_CACHED_MIN <= cached < evaluated)


def _first_request(case: Case) -> Judged:
    origin = case.origin
    if origin is None or origin.process is None:
        return Judged("failed", "process")
    fresh = origin.process not in origin.earlier and origin.invokes_between == 0
    return _require(holds=fresh and (origin.adjacent or not origin.restarted), reason="process")


def _other_slot(case: Case) -> Judged:
    return _require(holds=all(flight.id_slot != 0 for flight in case.flights), reason="slot")


def _idle_neighbour(case: Case) -> Judged:
    resting = case.neighbours[0] if case.neighbours else None
    before = case.unit.before
    if resting is None or resting.tokens_evaluated is None or before is None:
        return Judged("failed", "neighbour")
    if before.slots is None:
        return Judged("weak", "neighbour")
    held = {slot: (processing, tokens) for slot, processing, tokens in before.slots}
    processing, tokens = held.get(NEIGHBOUR_SLOT, (True, None))
    if not processing and tokens is None:
        return Judged("weak", "neighbour")
    enough = tokens is not None and tokens >= resting.tokens_evaluated
    return _require(holds=enough and not processing, reason="neighbour")


def _prefill_vs_decode(case: Case) -> Judged:
    # A grammar leaves no choice, so that other ids mean it was not obeyed; after a prefix the choice is the model's.
    forced = len(case.flights) == 1
    if forced and (case.reference_tokens is None or case.tokens != case.reference_tokens):
        return Judged("failed", "ids")
    lengths = [flight.tokens_evaluated for flight in case.flights]
    grows = all(one is not None and two == one + 1 for one, two in pairwise(lengths))
    return _require(holds=grows, reason="prefix")


def _nothing_more(case: Case) -> Judged:  # noqa: ARG001 - every proof takes the case
    return HELD


# One proof for each family of conditions; the first item, which holds for all, is not repeated here.
PROOFS: Mapping[str, Callable[[Case], Judged]] = {
    "repeat_greedy": _nothing_more,
    "repeat_seeded": _nothing_more,
    "first_request": _first_request,
    "other_slot": _other_slot,
    "concurrent_greedy": _concurrent,
    "concurrent_seeded": _concurrent,
    "oversubscribed": _oversubscribed,
    "wave_repeat": _wave_repeat,
    "cross_batch_together": _together,
    "cross_batch_staggered": _staggered,
    "cache_cold": _cold,
    "cache_warm1": _warm,
    "cache_warm2": _warm,
    "cache_prefix": _prefix,
    "idle_neighbour": _idle_neighbour,
    "prefill_vs_decode": _prefill_vs_decode,
    "stream_vs_whole": _nothing_more,
    "without_logprobs": _nothing_more,
    "restart": _first_request,
    "control_prompt": _nothing_more,
    "control_seed": _nothing_more,
    "control_temperature": _nothing_more,
}
