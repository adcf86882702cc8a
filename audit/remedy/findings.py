"""The findings of a remedy: a pure function of its folder.

In goes a run folder, out comes the document that docs/reference/remedy.md describes: every start as the audit judges
it, what each setting did to each cell that diverges without it, what it cost, who is beaten by whom, the smallest sets
of settings that switch a divergence off and on again, and what was not tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from audit.errors import EvidenceError
from audit.record import End
from audit.remedy.judge import Start, has_moved, judge_start, sum_of
from audit.remedy.plan import is_wave, level_of
from audit.remedy.record import ArmLine, BuildLine, FailedLine, RemedyRun, UntriedLine
from audit.stream import FORMAT

__all__ = ["STATUSES", "is_told_apart", "remedy_findings", "report_code"]

JSON = dict[str, Any]
STATUSES = (
    "remedy",
    "too rare",
    "not reproduced",
    "unconfirmed",
    "serialized",
    "not reached",
    "not asked",
    "inconclusive",
    "diverges",
)
_HONEST_NO, _INCONCLUSIVE = 1, 3


@dataclass(frozen=True)
class _Arm:
    """A start with its line."""

    line: ArmLine
    start: Start

    @property
    def setting(self) -> str:
        """The settings as one word; empty without any."""
        return " + ".join(self.line.settings)


def remedy_findings(run: RemedyRun) -> JSON:
    """Return the findings of a remedy, ready for canonical JSON.

    Raises: EvidenceError where facts contradict each other.
    """
    arms, untried, failed, build = _read(run)
    plan = run.plan
    without = [arm for arm in arms if not arm.line.settings]
    before = next((arm for arm in without if arm.line.role == "before"), None)
    aims = [aim for aim in plan.aims if before is not None and _moved(before, aim)]
    rows = [_row(name, arms, aims) for name in dict.fromkeys(arm.setting for arm in arms if arm.setting)]
    ordered = _ordered(rows)
    sound = before is not None and all(arm.start.sound for arm in arms if arm.line.role != "screen")
    return {
        "format": FORMAT,
        "kind": "remedy",
        "seal": run.seal,
        "sound": sound,
        "conclusion": "sound" if sound else "inconclusive",
        "build": build,
        "model": run.manifest.model,
        "level": level_of(plan.confirm),
        "arms": [_arm_entry(arm) for arm in arms],
        "conditions": [_condition(aim, before, rows, aims) for aim in plan.aims],
        "without": _costs(without),
        "settings": [{**row, "pareto": _is_best(row, rows)} for row in ordered],
        "untried": untried,
        "failed": failed,
        "predictions": [],
        "exploratory": "not registered",
    }


def report_code(findings: JSON, *, strict: bool) -> int:
    """Return the exit code of a record: 3 where it is not sound, with `strict` 1 where a divergence has no remedy."""
    if not findings["sound"]:
        return _INCONCLUSIVE
    return _HONEST_NO if strict and any(one["moved"] and not one["remedies"] for one in findings["conditions"]) else 0


def _read(run: RemedyRun) -> tuple[list[_Arm], list[JSON], list[JSON], str | None]:
    """Read the history: starts, what was not tried, what failed, the build."""
    arms: list[_Arm] = []
    untried: list[JSON] = []
    failed: list[JSON] = []
    build, ended = None, False
    for line in run.lines():
        if isinstance(line, ArmLine):
            audit = run.arm(line.arm)
            if audit.seal != line.seal:
                raise EvidenceError(f"arms/{line.arm} has the seal {audit.seal}, and the history says {line.seal}")
            arms.append(_Arm(line, judge_start(audit, line.asked)))
        elif isinstance(line, UntriedLine):
            untried.append({"setting": " + ".join(line.settings), "reason": line.reason, "words": line.words})
        elif isinstance(line, FailedLine):
            failed.append({"setting": " + ".join(line.settings), "role": line.role, "words": line.message})
        elif isinstance(line, BuildLine):
            build = line.build
        ended = ended or isinstance(line, End)
    if not ended:
        raise EvidenceError("the history has no line `end`")
    return arms, untried, failed, build


def _verdict(arm: _Arm, condition: str) -> str | None:
    """Return the verdict of a cell; None where the start was not asked."""
    cell = arm.start.cells.get(condition)
    return None if cell is None else str(cell["verdict"])


def _moved(arm: _Arm, condition: str) -> bool:
    """Tell whether a cell of a start shows a divergence; not where it was not asked."""
    return condition in arm.start.cells and has_moved(arm.start.cells[condition])


def _arm_entry(arm: _Arm) -> JSON:
    return {
        "arm": arm.line.arm,
        "role": arm.line.role,
        "setting": arm.setting,
        "sound": arm.start.sound,
        "argv": arm.line.argv,
        "environment": arm.line.environment,
        "memory_bytes": arm.line.memory_bytes,
        "solo": arm.start.solo.entry(),
        "together": arm.start.together.entry(),
        "cells": [
            {"condition": name, "verdict": cell["verdict"], "by_wave": cell["by_wave"], "reasons": cell["reasons"]}
            for name, cell in arm.start.cells.items()
        ],
    }


def _costs(arms: Sequence[_Arm]) -> JSON:
    """Return speed and memory over starts: those that prove something, or where there are none those that screen."""
    proving = [arm for arm in arms if arm.line.role != "screen"] or list(arms)
    known = [arm.line.memory_bytes for arm in proving if arm.line.memory_bytes is not None]
    return {
        "solo": sum_of([arm.start.solo for arm in proving]).entry(),
        "together": sum_of([arm.start.together for arm in proving]).entry(),
        "memory_bytes": max(known, default=None),
    }


def _row(name: str, arms: Sequence[_Arm], aims: Sequence[str]) -> JSON:
    """Return what settings did: to each cell that diverges without them, and to speed and memory."""
    own = [arm for arm in arms if arm.setting == name]
    latest = next((arm for arm in own if arm.line.role == "confirm"), own[-1])
    cells = [_cell(aim, own, arms) for aim in aims]
    return {
        "setting": name,
        "argv": latest.line.argv,
        "environment": latest.line.environment,
        "remedied": sum(cell["status"] == "remedy" for cell in cells),
        "cells": cells,
        **_costs(own),
    }


def _cell(condition: str, own: Sequence[_Arm], arms: Sequence[_Arm]) -> JSON:
    """Return what settings did to one cell, with the waves of the start that says so, and of those around it."""
    asked = [arm for arm in own if _verdict(arm, condition) is not None]
    confirmed = [arm for arm in asked if arm.line.role == "confirm"]
    sides = _sides(confirmed[-1], arms) if confirmed else (None, None)
    moved = [arm for arm in asked if _moved(arm, condition)]
    telling = next(iter([*moved[:1], *confirmed[-1:], *asked[-1:]]), None)
    return {
        "condition": condition,
        "status": _status(condition, asked, confirmed, sides),
        "by_wave": None if telling is None else telling.start.cells[condition]["by_wave"],
        "before": None if sides[0] is None else sides[0].start.cells[condition]["by_wave"],
        "after": None if sides[1] is None else sides[1].start.cells[condition]["by_wave"],
    }


def _sides(confirmed: _Arm, arms: Sequence[_Arm]) -> tuple[_Arm | None, _Arm | None]:
    """Return the nearest starts without any setting before and after a start."""
    at = [arm.line.arm for arm in arms].index(confirmed.line.arm)
    earlier = [arm for arm in arms[:at] if not arm.line.settings]
    later = [arm for arm in arms[at:] if not arm.line.settings]
    return next(reversed(earlier), None), next(iter(later), None)


def _status(
    condition: str, asked: Sequence[_Arm], confirmed: Sequence[_Arm], sides: tuple[_Arm | None, _Arm | None]
) -> str:
    """Return the first status that applies."""
    cells = [arm.start.cells[condition] for arm in asked]
    if not asked:
        return "not asked"
    if any(_moved(arm, condition) for arm in asked):
        return "diverges"
    if all(cell["verdict"] == "vacuous" and not cell["usable"] for cell in cells):
        return "serialized" if is_wave(condition) else "not reached"
    if any(_verdict(arm, condition) == "identical" and arm.start.sound for arm in confirmed):
        around = [side for side in sides if side is not None and side.start.sound and _moved(side, condition)]
        if len(around) < len(sides):
            return "not reproduced"
        waves = [arm.start.cells[condition]["by_wave"] for arm in (confirmed[-1], *around)]
        return "remedy" if is_told_apart(waves[0], waves[1:]) else "too rare"
    if not confirmed and any(cell["verdict"] == "identical" for cell in cells):
        return "unconfirmed"
    return "inconclusive"


def is_told_apart(with_it: JSON, without: Sequence[JSON]) -> bool:
    """Tell whether the bound of a rate under a setting lies below every rate that was seen without it.

    Otherwise as many waves could have missed a divergence that is simply rare.
    """
    return all(with_it["high"] < one["divergent"] / one["n"] for one in without)


def _condition(condition: str, before: _Arm | None, rows: Sequence[JSON], aims: Sequence[str]) -> JSON:
    """Return a cell: whether it diverges without any setting, and the smallest sets that switch it off and on."""
    found = [
        frozenset(row["setting"].split(" + "))
        for row in rows
        for cell in row["cells"]
        if cell["condition"] == condition and cell["status"] == "remedy"
    ]
    smallest = [one for one in found if not any(other < one for other in found)]
    least = min(map(len, smallest), default=0)
    remedies = [" + ".join(sorted(one)) for one in smallest if len(one) == least]
    return {
        "condition": condition,
        "verdict": None if before is None else _verdict(before, condition),
        "by_wave": None if before is None else before.start.cells[condition]["by_wave"],
        "moved": condition in aims,
        "remedies": remedies,
        "factor": remedies[0] if len(remedies) == 1 else None,
    }


def _rate(entry: JSON | None) -> float:
    return float(entry["per_second"]) if entry is not None else 0.0


def _ordered(rows: Sequence[JSON]) -> list[JSON]:
    """Return the rows, best first: most cells remedied, then fastest at once, alone, then least memory."""
    return sorted(
        rows,
        key=lambda row: (
            -row["remedied"],
            sum(cell["status"] == "diverges" for cell in row["cells"]),
            -_rate(row["together"]),
            -_rate(row["solo"]),
            row["memory_bytes"] or 0,
            row["setting"],
        ),
    )


def _is_best(row: JSON, rows: Sequence[JSON]) -> bool:
    """Tell whether a row remedies something and no other row is as good in everything and better in something."""

    def remedied(one: JSON) -> set[str]:
        return {cell["condition"] for cell in one["cells"] if cell["status"] == "remedy"}

    def names(one: JSON) -> set[str]:
        return set(one["setting"].split(" + "))

    def beats(other: JSON) -> bool:
        if names(other) < names(row) and remedied(other) >= remedied(row):
            # What is set besides does no more; that it looked faster is the machine's doing.
            return True
        gains = (
            _rate(other["together"]) - _rate(row["together"]),
            _rate(other["solo"]) - _rate(row["solo"]),
            float((row["memory_bytes"] or 0) - (other["memory_bytes"] or 0)),
        )
        better = remedied(other) > remedied(row) or any(gain > 0 for gain in gains)
        return remedied(other) >= remedied(row) and min(gains) >= 0 and better

    return bool(row["remedied"]) and not any(beats(other) for other in rows)
