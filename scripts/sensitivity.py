"""Clean trials without an alarm, and trials with the smallest fault: each found, and located where it was planted.

In: how many trials of each. Out: two runs against the look-alike, one clean, and one in which every trial has one
logprob of one top-k entry of one step one float32 lower, at a step and a rank of its own. Both programs judge both
runs, and each trial's first difference is looked up by the audit's comparison and by the verifier's. Exit 1 where
anything is missed, misplaced, raised without cause or judged differently. No socket is used (fault_cases/direct.py).

    python -m scripts.sensitivity [--trials N] [--seed S]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.analyse import trials
from audit.compare import first_difference
from audit.fake import FakeSettings, Faults
from audit.fake.numbers import planted
from audit.plan import Plan
from audit.record import Complete
from audit.store import Run
from scripts.fault_cases.plans import CONTROLS, PROMPTS, requests
from scripts.fault_cases.running import Judged, judge, record, verifier

STEPS, N_PROBS = 8, 5


@dataclass(frozen=True)
class Counts:
    """What was found among the trials of one run.

    Attributes:
        trials: how many there were.
        moved: how many the audit takes for not identical.
        located: how many it finds where they were planted, and so does the verifier.
        problems: what else is wrong, in words.
    """

    trials: int
    moved: int
    located: int
    problems: tuple[str, ...]


def plan_of(count: int) -> Plan:
    """Return a plan of one prompt, repeated."""
    entry = {"name": "repeat_greedy", "prompts": ["a"], "count": count}
    prompts = {name: PROMPTS[name] for name in ("a", "b")}
    return Plan.parse(
        {
            "name": "sensitivity",
            "steps": STEPS,
            "n_probs": N_PROBS,
            "pace_per_second": 1e6,
            "canary": {"prompt": "a"},
            "prompts": prompts,
            "conditions": [entry, *CONTROLS],
        }
    )


def measure(folder: Path, count: int, seed: int | None) -> Counts:
    """Run and judge so many trials, with a fault in each where a seed is given."""
    plan = plan_of(count)
    settings = FakeSettings(slots=1, step_ms=0.0, prefill_ms_per_token=0.0, faults=Faults(one_ulp_each=seed))
    record(folder, plan, settings, direct=True)
    judged = judge(folder)
    problems = [*judged.disagreements, *_unexpected(judged, count, moved=seed is not None)]
    table = trials(Run.open(folder))
    table = table[table["family"] == "repeat_greedy"]
    moved = int((table["outcome"] != "identical").sum())
    located = (
        0 if seed is None else _located(folder, plan, dict(zip(table["trial"], table["logprob"], strict=True)), seed)
    )
    return Counts(len(table), moved, located, tuple(problems))


def _unexpected(judged: Judged, count: int, *, moved: bool) -> list[str]:
    """Return what the cell or the instrument says against the table: all trials alike, nothing else touched."""
    cell, other = (
        next(one for one in findings["cells"] if one["condition"] == "repeat_greedy")
        for findings in (judged.findings, judged.other["findings"])
    )
    wanted = ("token-identical", count, 0) if moved else ("identical", count, count)
    found = [(one["verdict"], one["usable"], one["logprob_identical"]) for one in (cell, other)]
    problems = [f"the cell is {one}, not {wanted}" for one in found if one != wanted]
    return (
        problems
        + [f"{name} is {status}" for name, status in judged.instrument.items()]
        + [f"exit {code}" for code in (judged.code, judged.other["exit"]) if code]
    )


def _located(folder: Path, plan: Plan, streams: dict[str, str], seed: int) -> int:
    """Count the trials whose first difference both programs find where it was planted, one float32 apart."""
    run, located = Run.open(folder), 0
    ordinals = {trial: index for index, (trial, _) in enumerate(requests(plan))}
    reference = next(
        line.reply.logprob
        for line in run.lines()
        if isinstance(line, Complete) and line.trial == "baseline/greedy/a" and line.reply is not None
    )
    base = run.stream(reference or "")
    base_steps = [[step.token, step.logprob, [list(entry) for entry in step.top]] for step in base.steps]
    for trial, name in streams.items():
        step, rank = planted(seed, ordinals[trial], steps=STEPS, n_probs=N_PROBS)
        # What a token's own logprob says comes first, and is the same number.
        rank = -1 if base.steps[step].top[rank][0] == base.steps[step].token else rank
        stream = run.stream(name)
        here = first_difference(stream, base)
        steps = [[one.token, one.logprob, [list(entry) for entry in one.top]] for one in stream.steps]
        there = verifier().first_difference(steps, base_steps, ids_only=False)
        wanted = (step, rank)
        located += here is not None and (here.step, here.rank, here.ulp) == (*wanted, 1) and _place(there) == wanted
    return located


def _place(found: Sequence[object] | None) -> tuple[object, object] | None:
    """Return step and rank of the verifier's first difference."""
    return None if found is None else (found[0], found[2])


def main(words: Sequence[str] | None = None) -> int:
    """Measure and tell; 0 where nothing was missed and nothing raised."""
    parser = argparse.ArgumentParser(description="Clean trials and trials with the smallest fault.")
    parser.add_argument("--trials", type=int, default=10_000, metavar="N", help="of each (default 10,000)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="where faults are planted (default 1)")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        clean = measure(Path(folder) / "clean", options.trials, None)
        faulty = measure(Path(folder) / "faulty", options.trials, options.seed)
    print(f"clean: {clean.moved} of {clean.trials} trials raise an alarm")
    print(f"one ULP (seed {options.seed}): {faulty.moved} of {faulty.trials} found, {faulty.located} located")
    for problem in (*clean.problems, *faulty.problems):
        print(f"problem: {problem}")
    right = clean.moved == 0 and faulty.moved == faulty.located == options.trials
    return 0 if right and not clean.problems and not faulty.problems else 1


if __name__ == "__main__":
    sys.exit(main())
