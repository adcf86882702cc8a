"""The table of fault runs: what is wrong with a server, and what both programs must find.

In: the calls of `add` in `numbers`, `lies` and `failures`. Out: a table a module. What is expected is written there by
hand, from docs/reference/verdicts.md and the design of the faults; neither program is asked. A cell that a case does
not name must be what it is on a clean server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.fake import FakeSettings, Faults
from audit.plan import Plan
from audit.stream import digest
from scripts.fault_cases.plans import PLANS, clean_verdicts, ordinal, requests

__all__ = ["ON", "Case", "Failed", "Table", "from_trial"]

SLOTS = 4
ON = True
STEP_MS_WAVES = 6.0  # long enough that overlap shows in the windows of a machine that others use too


@dataclass(frozen=True)
class Failed:
    """What the record must say of the request that failed: kind, words of the message, and whether a body is kept.

    `kept` is None where what arrives before a connection breaks is up to the system.
    """

    trial: str
    kind: str
    message: str
    kept: bool | None = True


@dataclass(frozen=True)
class Case:
    """One fault run.

    Attributes:
        name: the fault, with a word more where one fault is tried twice.
        faults: the switches; a text names the trial whose first request is hit.
        plan: the name of the plan.
        evidence: what catches it, or shows that nothing has to.
        cells: the verdict of every cell that is not as on a clean server.
        reasons: of these cells the short reasons of excluded trials.
        instrument: every check that does not hold, with its status.
        code: the exit code of both programs; 2 where the run ends with an error.
        witness: what the first difference of the cell that moved must be.
        qualifiers: of every cell that is named by it.
        failed: what the record must say of a request that failed.
        error: words of the error that ends the run.
        after: how many requests more the switch counts than the index of the trial that it names.
    """

    name: str
    faults: Mapping[str, Any]
    plan: str
    evidence: str
    cells: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    instrument: Mapping[str, str] = field(default_factory=dict)
    code: int = 0
    witness: Mapping[str, Any] = field(default_factory=dict)
    qualifiers: Mapping[str, list[str]] = field(default_factory=dict)
    failed: Failed | None = None
    error: str = ""
    after: int = 0

    @property
    def waves(self) -> bool:
        """Whether several requests run at a time, so that decodes need time to overlap in."""
        return any(unit.wave for block in self.plan_of.unfold("") for unit in block.units)

    @property
    def direct(self) -> bool:
        """Whether requests may go through memory: not where time matters, nor where a connection breaks."""
        return not self.waves and self.failed is None and not self.error

    @property
    def plan_of(self) -> Plan:
        """The plan."""
        return PLANS[self.plan]

    @property
    def settings(self) -> FakeSettings:
        """The fake server."""
        faults: dict[str, Any] = {
            name: ordinal(self.plan_of, value) + self.after if isinstance(value, str) else value
            for name, value in self.faults.items()
        }
        step_ms = STEP_MS_WAVES if self.waves else 0.0
        return FakeSettings(slots=SLOTS, step_ms=step_ms, prefill_ms_per_token=0.0, faults=Faults(**faults))

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of every cell."""
        return clean_verdicts(self.plan_of) | dict(self.cells)


class Table(list[Case]):
    """Cases in the order in which they are added."""

    def add(self, fault: str, value: object, plan: str, evidence: str, **more: Any) -> None:  # noqa: ANN401 - of a case
        """Add a run with one switch on, or with none for the name `clean`."""
        word = more.pop("word", "")
        faults = {} if fault == "clean" else {fault: value}
        self.append(Case(f"{fault} {word}".strip(), faults, plan, evidence, **more))


def from_trial(plan: str, trial: str) -> list[str]:
    """Return the cells that have a measured trial at or after this one."""
    names = [name for name, _ in requests(PLANS[plan])]
    later = names[names.index(trial) :]
    trials = {t.trial: t for block in PLANS[plan].unfold(_registered(plan)) for u in block.units for t in u.trials}
    return list(dict.fromkeys(trials[name].condition for name in later if trials[name].role == "measured"))


def _registered(plan: str) -> str:
    return digest(PLANS[plan].to_bytes())
