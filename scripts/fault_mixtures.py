"""Random mixtures of faults, on which the audit and the verifier must agree in every finding.

In: how many mixtures, and a seed. Out: a line a mixture, with the seed that makes it again. What the findings say is
nobody's expectation here: a mixture is wrong where the two programs differ, where a record contradicts itself, or where
anything but a foreseen error ends a run. Then the exit code is 1.

    python -m scripts.fault_mixtures [--count N] [--seed S]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.errors import ServerError
from audit.fake import FakeSettings, Faults, Switch, switches
from audit.plan import Plan
from scripts.fault_cases.plans import PLANS, requests
from scripts.fault_cases.running import judge, record

__all__ = ["Mixture", "mixtures", "outcome"]

# A run that never begins, or is 100 MB long, says nothing about agreement.
LEFT_OUT = frozenset({"loading_s", "body_huge"})
# These break a connection, which needs a real one.
BREAKING = frozenset({"body_cut", "reset_before", "reset_middle", "stalled", "dripped", "refuses_after"})
FAULTS_MAX = 4
SLOTS = 4
# What a count is drawn from where it is no index of a request.
RANGES = {
    "jitter_from_level": (1, SLOTS),
    "jitter_slot": (0, SLOTS - 1),
    "jitter_past_step": (0, 8),
    "jitter_prompt_tokens": (14, 30),
    "jitter_once_in": (1, 12),
    "n_probs_capped": (0, 5),
    "slot_wrapped": (1, SLOTS),
    "prompt_truncated": (1, 30),
    "wave_overflows": (20, 120),
}


@dataclass(frozen=True)
class Mixture:
    """One random server and the plan that it is audited with."""

    seed: str
    plan: str
    faults: dict[str, bool | int]
    step_ms: float

    def __str__(self) -> str:
        """Return what `determinism fake` would be told."""
        words = [name if value is True else f"{name}={value}" for name, value in sorted(self.faults.items())]
        return f"[{self.seed}] {self.plan}: {', '.join(words)}"

    @property
    def settings(self) -> FakeSettings:
        """The fake."""
        faults = Faults(**self.faults)  # type: ignore[arg-type]
        return FakeSettings(slots=SLOTS, step_ms=self.step_ms, prefill_ms_per_token=0.0, faults=faults)

    @property
    def plan_of(self) -> Plan:
        """The plan, in which nobody waits long."""
        return PLANS[self.plan].model_copy(update={"timeout_s": 2.0})


def mixtures(count: int, seed: int) -> Iterator[Mixture]:
    """Yield so many mixtures, the same for the same seed."""
    for number in range(count):
        name = f"{seed}/{number}"
        chance = random.Random(name)  # noqa: S311 - repeatable on purpose
        plan = chance.choice(sorted(PLANS))
        every = [switch for switch in switches() if switch.name not in LEFT_OUT]
        chosen = chance.sample(every, chance.randint(1, FAULTS_MAX))
        faults = {switch.name: _value(switch, chance, len(requests(PLANS[plan]))) for switch in chosen}
        yield Mixture(name, plan, faults, step_ms=3.0 if plan in {"waves", "slots"} else 0.0)


def _value(switch: Switch, chance: random.Random, count: int) -> bool | int:
    if isinstance(switch.default, bool):
        return True
    low, high = RANGES.get(switch.name, (0, count - 1))
    return chance.randint(low, high)


def outcome(mixture: Mixture, folder: Path) -> tuple[str, list[str]]:
    """Run and judge a mixture.

    Returns: what became of it (`exit 0`, `exit 3`, `ended`), and every disagreement.
    """
    waves = mixture.plan in {"waves", "slots"}
    try:
        record(folder, mixture.plan_of, mixture.settings, direct=not waves and not BREAKING & mixture.faults.keys())
    except ServerError as error:
        return f"ended: {error.message}", []
    judged = judge(folder)
    return f"exit {judged.code}", judged.disagreements


def main(words: Sequence[str] | None = None) -> int:
    """Run all mixtures; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description="Random mixtures of faults, judged by both programs.")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which (default 1)")
    options = parser.parse_args(words)
    found: Counter[str] = Counter()
    wrong = 0
    for number, mixture in enumerate(mixtures(options.count, options.seed)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                became, problems = outcome(mixture, Path(folder) / "run")
            except Exception:  # noqa: BLE001 - whatever it is, it is what this script looks for
                became, problems = "exception", [traceback.format_exc()]
        found[became.split(":")[0]] += 1
        wrong += bool(problems)
        print(f"{number + 1}/{options.count} {became}  {mixture}", flush=True)
        for problem in problems:
            print(f"  WRONG: {problem}", flush=True)
    told = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(f"{options.count} mixtures of seed {options.seed}: {told}; {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
