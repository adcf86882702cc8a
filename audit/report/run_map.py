"""The map of a run: every answered request as a mark in time on the lane of its slot, coloured by class.

In goes a judged audit, out come staves: stretches of a server's time, one below the other as lines of a score, each
with a lane a slot, the marks on it and the waves behind them. How a mark looks tells its outcome without colour: height
and fill for what was compared, a dash pattern for what was excluded; its letter names the class of its stream among the
trials of its baseline, where `a` is the baseline's own. Templates draw it; nothing is judged here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import pandas as pd

from audit.analyse import Judgement
from audit.analyse.evidence import Evidence
from audit.proofs import Flight
from audit.record import Complete, Invoke

__all__ = ["Map", "Mark", "Stave", "WaveBox", "class_letter", "run_map"]

NS_PER_S = 1e9
WIDTH = 1000.0
STAVES_MAX = 12
MARK_WIDTH_MIN = 1.8
LETTER_WIDTH_MIN = 7.0
LANE_HEIGHT = 9
# Seconds that one stave may show; the first that needs few enough staves is taken.
_LENGTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 90, 120, 180, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_HUES = 6
_SHAPES = {"identical": "i", "token-identical": "t", "divergent": "d"}


class Mark(NamedTuple):
    """One request: its place on the stave, how it looks, and what it says when pointed at."""

    trial: str
    named: bool
    lane: int
    x: float
    width: float
    shape: str
    hue: str
    letter: str
    told: str
    condition: str


class WaveBox(NamedTuple):
    """The stretch of a stave in which the members of one wave were worked on."""

    x: float
    width: float


class Stave(NamedTuple):
    """One stretch of time."""

    begin: str
    marks: list[Mark]
    waves: list[WaveBox]


class Map(NamedTuple):
    """The map of one server; `lanes` are its slots, and a last one where a request named none."""

    server: str
    lanes: list[str]
    length_s: int
    staves: list[Stave]


class _Span(NamedTuple):
    trial: str
    attempt: int
    begin_s: float
    end_s: float
    slot: int
    failed: bool


def run_map(judged: Judgement) -> list[Map]:
    """Return the map of every server, in run order."""
    return [_server_map(evidence, judged.trials) for evidence in judged.evidence.values()]


def _spans(evidence: Evidence) -> list[_Span]:
    """Return the time in which the server worked on each attempt, or that it took where the server does not say.

    The many requests of one trial are one span, from the first to the last.
    """
    spans: dict[tuple[str, int], _Span] = {}
    for invoke, complete in evidence.answered:
        begin, end = _window_ns(invoke, complete)
        reply = complete.reply
        slot = invoke.slot if reply is None or reply.id_slot is None else reply.id_slot
        before = spans.get((invoke.trial, invoke.attempt))
        first = begin / NS_PER_S if before is None else before.begin_s
        failed = reply is None or (before is not None and before.failed)
        spans[invoke.trial, invoke.attempt] = _Span(invoke.trial, invoke.attempt, first, end / NS_PER_S, slot, failed)
    return sorted(spans.values(), key=lambda span: (span.begin_s, span.slot, span.trial, span.attempt))


def _window_ns(invoke: Invoke, complete: Complete) -> tuple[float, float]:
    reply = complete.reply
    end = float(complete.last_byte_ns or complete.at_ns)
    if reply is None or reply.prompt_ms is None or reply.predicted_ms is None:
        return float(complete.sent_ns or invoke.at_ns), end
    flight = Flight(
        slot=invoke.slot,
        cache=False,
        sent_ns=complete.sent_ns,
        end_ns=int(end),
        id_slot=reply.id_slot,
        tokens_evaluated=None,
        cache_n=None,
        prompt_n=None,
        prompt_ms=reply.prompt_ms,
        predicted_n=None,
        predicted_ms=reply.predicted_ms,
    )
    return (flight.window.begin_ns if flight.window else float(complete.sent_ns)), end


def _server_map(evidence: Evidence, trials: pd.DataFrame) -> Map:
    spans = _spans(evidence)
    last_attempts = {span.trial: span.attempt for span in spans}
    own = trials[trials["server"] == evidence.label]
    looks = _Looks({str(row["trial"]): cast("Mapping[str, Any]", row) for row in own.to_dict("records")}, evidence)
    lanes = [str(slot) for slot in range(evidence.slots)]
    if any(not 0 <= span.slot < evidence.slots for span in spans):
        lanes.append("?")
    if not spans:
        return Map(evidence.label, lanes, 1, [])
    zero, last = min(span.begin_s for span in spans), max(span.end_s for span in spans)
    fitting = (length for length in _LENGTHS_S if (last - zero) / length <= STAVES_MAX)
    length = next(fitting, int((last - zero) / STAVES_MAX) + 1)
    count = int((last - zero) / length) + 1
    marks: list[list[Mark]] = [[] for _ in range(count)]
    boxes: list[dict[str, tuple[float, float]]] = [{} for _ in range(count)]
    for span in spans:
        unit = evidence.planned[span.trial].unit
        for place, x, width in _pieces(span.begin_s - zero, span.end_s - zero, length):
            lane = span.slot if 0 <= span.slot < evidence.slots else len(lanes) - 1
            first = span.attempt == last_attempts[span.trial] and place == int((span.begin_s - zero) / length)
            marks[place].append(looks.mark(span, named=first, lane=lane, x=x, width=width))
            if unit.wave:
                left, right = boxes[place].get(unit.unit, (x, x + width))
                boxes[place][unit.unit] = (min(left, x), max(right, x + width))
    return Map(
        evidence.label,
        lanes,
        length,
        [
            Stave(_clock(place * length), marks[place], [WaveBox(x, right - x) for x, right in boxes[place].values()])
            for place in range(count)
        ],
    )


def _pieces(begin_s: float, end_s: float, length_s: int) -> Iterator[tuple[int, float, float]]:
    """Cut a span into its staves: number, left edge and width."""
    scale = WIDTH / length_s
    for place in range(int(begin_s / length_s), int(end_s / length_s) + 1):
        left = max(0.0, (begin_s - place * length_s) * scale)
        right = min(WIDTH, (end_s - place * length_s) * scale)
        if right > left or place == int(begin_s / length_s):
            yield place, min(left, WIDTH - MARK_WIDTH_MIN), max(MARK_WIDTH_MIN, right - left)


def _clock(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02d}"


class _Looks:
    """Says how a trial's marks look; counts the classes of each baseline in the order in which they appear."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], evidence: Evidence) -> None:
        self._rows = rows
        self._evidence = evidence
        self._classes: dict[tuple[str, str | None], dict[str, int]] = {}

    def mark(self, span: _Span, *, named: bool, lane: int, x: float, width: float) -> Mark:
        """Return one mark of a trial."""
        row = self._rows.get(span.trial)
        shape, word = _shape(row, failed=span.failed, role=self._evidence.planned[span.trial].trial.role)
        number = self._class(row) if row is not None and shape in "itd" else None
        moved = number is not None and shape in "td"
        letter = "" if number is None else class_letter(number)
        told = f"{span.trial}: {word}" + (f", class {letter}" if letter else "")
        return Mark(
            trial=span.trial,
            named=named,
            lane=lane,
            x=round(x, 1),
            width=round(width, 1),
            shape=shape,
            hue=f"k{(number - 1) % _HUES}" if moved and number else "",
            letter=letter if moved and width >= LETTER_WIDTH_MIN * len(letter) else "",
            told=told,
            condition=str(row["condition"]) if row is not None else "",
        )

    def _class(self, row: Mapping[str, Any]) -> int | None:
        """Return the number of a stream's class, 0 for that of the baseline; None where no logprobs were asked for."""
        if row["family"] == "without_logprobs" or not isinstance(row["logprob"], str):
            return None
        baseline = row["baseline_logprob"] if isinstance(row["baseline_logprob"], str) else None
        known = self._classes.setdefault((row["prompt"], baseline), {baseline or "": 0})
        return known.setdefault(row["logprob"], len(known))


def _shape(row: Mapping[str, Any] | None, *, failed: bool, role: str) -> tuple[str, str]:
    """Return a letter for how a mark looks, and the word for what it says."""
    if failed:
        return "f", "failed"
    if row is None:
        return ("b", "baseline") if role == "baseline" else ("s", "not compared")
    if isinstance(row["exclusion"], str):
        reason = f" ({row['reason']})" if isinstance(row["reason"], str) else ""
        return "x", f"{row['exclusion']}{reason}"
    moved = bool(row["diverged"]) or row["outcome"] == "identical"
    return (_SHAPES[row["outcome"]] if moved else "i"), str(row["outcome"])


def class_letter(number: int) -> str:
    """Return a, b, ... z, aa, ab, ... for 0, 1, ..."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters
