"""The plan of a remedy: what is asked of each start of a server, in full and for screening.

In goes the plan of an audit, out comes a plan that holds it twice: as it is, for starts that have to prove something,
and cut down to one repeat of each condition that may be remedied. docs/reference/remedy.md describes it. Pure.
"""

import json
from collections.abc import Collection
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.conditions import FAMILIES, catalogue_position
from audit.errors import EvidenceError, PlanError
from audit.plan import Plan
from audit.stream import canonical
from audit.trial import Entry

__all__ = ["AIMED", "RemedyPlan", "is_wave", "level_of", "restricted"]

# Families whose divergence a setting may remedy, and the cells of each that count: of a cache block the cold one reuses
# nothing.
AIMED = (
    "concurrent_greedy",
    "concurrent_seeded",
    "oversubscribed",
    "cross_batch_together",
    "cross_batch_staggered",
    "cache",
    "cache_prefix",
)
_LEVELLED = ("concurrent_greedy", "concurrent_seeded", "oversubscribed")
_NOTHING_REUSED = "cache_cold"


def _cells(entry: Entry) -> list[str]:
    """Return the cells of an entry that may be remedied."""
    if entry.name not in AIMED:
        return []
    names = [name.format(level=level) for name in FAMILIES[entry.name].conditions for level in entry.levels or [0]]
    return [name for name in names if name != _NOTHING_REUSED]


def is_wave(condition: str) -> bool:
    """Tell whether a condition's requests are released together, so that a server could serialize them."""
    return not condition.startswith("cache_")


def level_of(plan: Plan) -> int | None:
    """Return the largest number of equal requests that are released together, None where none are."""
    levels = [level for entry in plan.conditions if entry.name == "concurrent_greedy" for level in entry.levels]
    return max(levels, default=None)


def restricted(plan: Plan, asked: Collection[str]) -> Plan:
    """Return the plan with those entries and levels only whose cells are asked."""
    entries = []
    for entry in plan.conditions:
        levels = [level for level in entry.levels if f"{entry.name}_c{level}" in asked]
        if entry.name in _LEVELLED:
            kept = entry.model_copy(update={"levels": levels}) if levels else None
        else:
            kept = entry if set(_cells(entry)) & set(asked) else None
        if kept is not None:
            entries.append(kept)
    return plan.model_copy(update={"conditions": entries})


class RemedyPlan(BaseModel):
    """What every start is asked, and how many of them there may be.

    Attributes:
        rounds: starts that screen a setting, each of which asks only what has not diverged yet.
        confirmed_max: how many settings are confirmed at most.
        aims: the cells that may be remedied, in the order of the catalogue.
        confirm: the audit plan of starts that prove something.
        screen: the audit plan of those that screen.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    format: Literal[1] = 1
    kind: Literal["remedy"] = "remedy"
    name: str
    rounds: int = Field(default=2, ge=1, le=20)
    confirmed_max: int = Field(default=3, ge=1, le=100)
    aims: list[str] = Field(min_length=1)
    confirm: Plan
    screen: Plan

    @model_validator(mode="after")
    def _aims_are_cells(self) -> Self:
        known = {cell for entry in self.confirm.conditions for cell in _cells(entry)}
        strange = [aim for aim in self.aims if aim not in known]
        if strange:
            raise ValueError(f"aims: no entry of `confirm` has the cell {strange[0]}")
        return self

    @classmethod
    def of(cls, plan: Plan, *, rounds: int, confirmed_max: int) -> Self:
        """Form the plan from that of an audit.

        Raises: PlanError where it has no condition that could be remedied.
        """
        found = {cell for entry in plan.conditions for cell in _cells(entry)}
        aims = sorted(found, key=catalogue_position)
        if not aims:
            raise PlanError(
                f"plan {plan.name} has no condition that a setting could remedy", hint=f"add one of {', '.join(AIMED)}"
            )
        once = [
            entry.model_copy(update={"count": 1, "again": 0, "minimum": None})
            for entry in plan.conditions
            if entry.name in AIMED
        ]
        screen = plan.model_copy(update={"conditions": once})
        return cls(name=plan.name, rounds=rounds, confirmed_max=confirmed_max, aims=aims, confirm=plan, screen=screen)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a stored plan.

        Raises: EvidenceError where it is none.
        """
        try:
            values: Any = json.loads(data)
            return cls.model_validate(values)
        except (ValidationError, ValueError, RecursionError) as error:
            raise EvidenceError(f"plan.json is no plan of a remedy: {error}") from error

    def to_bytes(self) -> bytes:
        """Return the plan as canonical JSON, every default included."""
        return canonical(self.model_dump(mode="json"))

    def asked(self, role: str, cells: Collection[str]) -> Plan:
        """Return the audit plan of a start: the whole one, or what screening asks of some cells."""
        return restricted(self.screen, cells) if role == "screen" else self.confirm
