"""One start of a server, judged: its cells by the audit's own rules, and how fast it was by its recorded times.

In goes the sealed audit of a start, out come its aimed cells and its throughput. A pure function of the folder.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from audit.analyse import judge_run
from audit.record import Complete
from audit.remedy.plan import level_of
from audit.store import Run

__all__ = ["Speed", "Start", "has_moved", "judge_start", "sum_of"]

_DIVERGED = ("divergent", "token-identical")
_TOO_FEW = ("vacuous", "insufficient")
_NS = 1e9
_DIGITS = 3


class Speed(NamedTuple):
    """Tokens that were generated in nanoseconds, from the first request sent to the last byte received."""

    tokens: int = 0
    ns: int = 0

    def entry(self) -> dict[str, Any] | None:
        """Return it as an entry of the findings, None where nothing was measured."""
        if not self.ns:
            return None
        return {"tokens": self.tokens, "ns": self.ns, "per_second": round(self.tokens * _NS / self.ns, _DIGITS)}


class Start(NamedTuple):
    """What one start amounts to; `cells` has the audit's entries of the asked cells."""

    sound: bool
    cells: dict[str, dict[str, Any]]
    solo: Speed
    together: Speed


def has_moved(cell: dict[str, Any]) -> bool:
    """Tell whether a cell shows a divergence: by its verdict, or in the usable trials of one that has too few."""
    return cell["verdict"] in _DIVERGED or (cell["verdict"] in _TOO_FEW and cell["by_wave"]["divergent"] > 0)


def sum_of(speeds: Sequence[Speed]) -> Speed:
    """Return what several measured together."""
    return Speed(sum(one.tokens for one in speeds), sum(one.ns for one in speeds))


def judge_start(run: Run, asked: Sequence[str]) -> Start:
    """Judge the audit of a start.

    Raises: EvidenceError where its facts contradict each other.
    """
    judged = judge_run(run).findings
    cells = {cell["condition"]: cell for cell in judged["cells"] if cell["condition"] in asked}
    solo, together = _speeds(run)
    return Start(sound=judged["sound"], cells=cells, solo=solo, together=together)


def _speeds(run: Run) -> tuple[Speed, Speed]:
    """Measure plain requests that were sent alone with the cache off, and the largest waves of equal requests.

    The first are greedy baselines and their repeats. Of a wave all members have to be answered.
    """
    plan = run.plan
    wave = f"concurrent_greedy_c{level_of(plan)}"
    units = [unit for block in plan.unfold(run.manifest.registered) for unit in block.units]
    sizes = {unit.unit: len(unit.trials) for unit in units if unit.trials[0].condition == wave}
    alone = {
        trial.trial
        for unit in units
        for trial in unit.trials
        if trial.condition in {"baseline", "repeat_greedy"} and trial.sampling == "greedy"
    }
    solo: list[Speed] = []
    members: dict[str, list[Complete]] = {unit: [] for unit in sizes}
    for line in run.lines():
        if not isinstance(line, Complete) or line.reply is None or line.last_byte_ns is None:
            continue
        if line.trial in alone:
            solo.append(Speed(line.reply.steps, line.last_byte_ns - line.sent_ns))
        elif line.unit in members:
            members[line.unit].append(line)
    together = [
        Speed(
            sum(line.reply.steps for line in lines if line.reply is not None),
            max(line.last_byte_ns or 0 for line in lines) - min(line.sent_ns for line in lines),
        )
        for unit, lines in members.items()
        if len(lines) == sizes[unit]
    ]
    return sum_of(solo), sum_of(together)
