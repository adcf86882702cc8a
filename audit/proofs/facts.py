"""The facts that a proof may look at, in small frozen structs, and what a check says of them.

Nothing here knows where facts are stored. Times are in nanoseconds on one monotonic clock, durations in milliseconds as
the server gave them; None is what the server did not say.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

__all__ = [
    "HELD",
    "Case",
    "Flight",
    "Identity",
    "Judged",
    "Moment",
    "Origin",
    "UnitFacts",
    "Window",
    "judge_all",
    "number_of",
]

NS_PER_MS = 1e6
# Digits, a point, an exponent: what a Prometheus counter looks like; no sign of infinity, no underscore.
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")


class Judged(NamedTuple):
    """What a check found; `reason` is the short reason where it is not `held`."""

    status: Literal["held", "failed", "weak"]
    reason: str = ""


HELD = Judged("held")


class Window(NamedTuple):
    """The time in which the server worked on a request, in nanoseconds."""

    begin_ns: float
    end_ns: float

    @property
    def length_ns(self) -> float:
        """How long it is."""
        return self.end_ns - self.begin_ns

    def common_ns(self, other: "Window") -> float:
        """Return how long the two overlap, 0 where they do not."""
        return max(0.0, min(self.end_ns, other.end_ns) - max(self.begin_ns, other.begin_ns))


class Flight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answered request: what was asked, and what the reply said. `slot` is -1 where none was asked for."""

    slot: int
    cache: bool
    sent_ns: int
    end_ns: int
    id_slot: int | None
    tokens_evaluated: int | None
    cache_n: int | None
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None

    @property
    def window(self) -> Window | None:
        """The processing window, or None where the reply has no timings, or ones that begin before it was sent."""
        if self.prompt_ms is None or self.predicted_ms is None:
            return None
        window = Window(self.end_ns - (self.prompt_ms + self.predicted_ms) * NS_PER_MS, float(self.end_ns))
        return window if window.begin_ns >= self.sent_ns else None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One snapshot: slots as (id, processing, prompt tokens), counters as printed, who the server is."""

    slots: tuple[tuple[int, bool, int | None], ...] | None
    metrics: Mapping[str, str | None] | None
    props: str | None
    process: tuple[str | None, str | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitFacts:
    """The last attempt of a unit: its snapshots, and its requests in order, None for one without reply.

    `slots` is how many the server has; `earlier` is the snapshot before `before` of the same server, whatever its unit.
    Two are equal only where they are one object, by which what was proven of a wave is found again for each member.
    """

    slots: int
    earlier: Moment | None
    before: Moment | None
    after: Moment | None
    flights: tuple[Flight | None, ...]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One server line: who the server was, and whether a new process is explained there.

    `lasting` is what no restart changes (build, model, slots, ...).
    """

    props: str
    process: tuple[str | None, str | None]
    lasting: tuple[object, ...]
    explained: bool


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What stands before a trial that must be its process's first request.

    `process` is that of the latest fitting server line, None where there is none; `earlier` are those of all lines
    before it; `invokes_between` counts the requests since; `adjacent` says that the line directly precedes the unit's
    first snapshot, `restarted` that it is a restart's.
    """

    process: tuple[str | None, str | None] | None
    earlier: tuple[tuple[str | None, str | None], ...]
    invokes_between: int
    adjacent: bool
    restarted: bool


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that the proof of one trial may look at.

    `flights` are the trial's own requests, by part; `tokens` its token digest and `reference_tokens` its reference's;
    `unit` and `unit_first` (the wave that a `wave_repeat` repeats) hold whole waves; `neighbours` are the supporting
    requests of its wave or block.
    """

    flights: tuple[Flight, ...]
    tokens: str
    reference_tokens: str | None
    unit: UnitFacts
    unit_first: UnitFacts | None = None
    neighbours: tuple[Flight | None, ...] = ()
    origin: Origin | None = None


def judge_all(judged: Iterable[Judged]) -> Judged:
    """Return the first failure, else the first weakness, else held."""
    found = list(judged)
    for status in ("failed", "weak"):
        for one in found:
            if one.status == status:
                return one
    return HELD


@lru_cache(maxsize=4096)
def number_of(printed: str) -> Fraction | None:
    """Return a printed counter as an exact number, or None where it is none."""
    return Fraction(printed) if _NUMBER.fullmatch(printed) else None
