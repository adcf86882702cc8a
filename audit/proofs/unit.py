"""The three checks of a unit: the server was idle, it did our work and no other, and it stayed who it was."""

from collections.abc import Sequence
from itertools import pairwise

from audit.proofs.facts import HELD, Identity, Judged, Moment, UnitFacts, judge_all, number_of

__all__ = ["accounting", "idle", "same_server"]

EXACT_MAX = 999_999  # /metrics prints six digits
COUNTERS = ("prompt_tokens_total", "tokens_predicted_total")


def idle(unit: UnitFacts) -> Judged:
    """Check that the server did nothing before and after the unit."""
    moments = (unit.before, unit.after)
    if any(moment is None for moment in moments):
        return Judged("failed", "idle")
    present = [moment for moment in moments if moment is not None]
    if any(len({offered is None for offered in pair}) > 1 for pair in _offered(present)):
        return Judged("failed", "idle")
    slots = [moment.slots for moment in present if moment.slots is not None]
    if any([slot for slot, _, _ in one] != list(range(unit.slots)) for one in slots):
        return Judged("failed", "idle")
    metrics = [moment.metrics for moment in present if moment.metrics is not None]
    waiting = [one.get(name) for one in metrics for name in ("requests_processing", "requests_deferred")]
    if any(processing for one in slots for _, processing, _ in one) or any(
        printed is not None and number_of(printed) != 0 for printed in waiting
    ):
        return Judged("failed", "idle")
    return HELD if slots and metrics and None not in waiting else Judged("weak", "idle")


def accounting(unit: UnitFacts) -> Judged:
    """Check that the server's token counters moved by exactly what the unit's own replies add up to.

    Nor may one have fallen since the snapshot before: nothing but a new process turns a counter back.
    """
    if any(flight is None for flight in unit.flights) or _fallen(unit.earlier, unit.before):
        return Judged("failed", "accounting")
    flights = [flight for flight in unit.flights if flight is not None]
    before = unit.before.metrics if unit.before else None
    after = unit.after.metrics if unit.after else None
    if before is None or after is None:
        return Judged("weak", "accounting")
    sums = ([flight.prompt_n for flight in flights], [flight.predicted_n for flight in flights])
    return judge_all(
        _moved(before.get(name), after.get(name), counts) for name, counts in zip(COUNTERS, sums, strict=True)
    )


def same_server(unit: UnitFacts, *, before: Sequence[Identity], after: Sequence[Identity]) -> Judged:
    """Check that the unit's server is the one that the run began with.

    Args:
        unit: the unit.
        before: the server lines of this label up to the snapshot before the unit, oldest first.
        after: the same up to the snapshot after it.
    """
    for moment, lines in ((unit.before, before), (unit.after, after)):
        if moment is None or not lines:
            return Judged("failed", "same server")
        latest = lines[-1]
        if (moment.props, moment.process) != (latest.props, latest.process):
            return Judged("failed", "same server")
        if (latest.props, latest.lasting) != (lines[0].props, lines[0].lasting):
            return Judged("failed", "same server")
        if any(later.process != earlier.process and not later.explained for earlier, later in pairwise(lines)):
            return Judged("failed", "same server")
    return HELD


def _offered(moments: Sequence[Moment]) -> tuple[list[object], list[object]]:
    """Return what was offered at each moment; an endpoint that is there once and not again hides something."""
    return [moment.slots for moment in moments], [moment.metrics for moment in moments]


def _fallen(earlier: Moment | None, before: Moment | None) -> bool:
    """Tell whether one process counted less at the second moment than at the first."""
    if earlier is None or before is None or earlier.process != before.process:
        return False
    pairs = [((earlier.metrics or {}).get(name), (before.metrics or {}).get(name)) for name in COUNTERS]
    counts = [(number_of(old), number_of(new)) for old, new in pairs if old is not None and new is not None]
    return any(old is not None and new is not None and new < old for old, new in counts)


def _moved(before: str | None, after: str | None, counts: Sequence[int | None]) -> Judged:
    """Judge one counter against the sum of what the replies said."""
    if before is None or after is None or None in counts:
        return Judged("weak", "accounting")
    old, new = number_of(before), number_of(after)
    if old is None or new is None:
        return Judged("failed", "accounting")
    if max(old, new) > EXACT_MAX:
        return Judged("weak", "accounting")
    moved = sum(count for count in counts if count is not None)
    return HELD if new - old == moved else Judged("failed", "accounting")
