"""A plan, unfolded and counted, before anything is sent.

In goes a plan, out come its cells with trials, requests and the rate of divergence that each would detect. Nothing is
asked of a server, so that tokens of prompts are not known here.
"""

from typing import Any

from audit.conditions import catalogue_position
from audit.plan import Plan
from audit.report.text import table_text
from audit.statistics import detectable_rate
from audit.stream import digest

__all__ = ["plan_cells", "plan_text"]


def plan_cells(plan: Plan) -> list[dict[str, Any]]:
    """Return one entry a cell: `condition`, `trials`, `waves`, `requests`, `steps`, `detectable_rate`.

    `detectable_rate` is the smallest rate of divergence a wave that shows at least once with 95 % probability.
    """
    cells: dict[str, dict[str, Any]] = {}
    for block in plan.unfold(digest(plan.to_bytes())):
        for unit in block.units:
            seen = set()
            for trial in unit.trials:
                if trial.role != "measured":
                    continue
                cell = cells.setdefault(trial.condition, {"trials": 0, "waves": 0, "requests": 0, "steps": 0})
                cell["trials"] += 1
                cell["waves"] += trial.condition not in seen
                cell["requests"] += trial.steps if trial.form == "prefixes" else 1
                cell["steps"] += trial.steps
                seen.add(trial.condition)
    ordered = sorted(cells.items(), key=lambda item: catalogue_position(item[0]))
    return [{"condition": name, **cell, "detectable_rate": detectable_rate(cell["waves"])} for name, cell in ordered]


def plan_text(plan: Plan) -> str:
    """Return the cells as a table, and totals over everything that is sent to one server."""
    rows = [
        {
            "condition": cell["condition"],
            "trials": cell["trials"],
            "waves": cell["waves"],
            "requests": cell["requests"],
            "steps": cell["steps"],
            "detects a rate of": f"{cell['detectable_rate']:.3f}",
        }
        for cell in plan_cells(plan)
    ]
    trials = [t for b in plan.unfold(digest(plan.to_bytes())) for u in b.units for t in u.trials]
    requests = sum(trial.steps if trial.form == "prefixes" else 1 for trial in trials)
    steps = sum(trial.steps for trial in trials)
    seconds = requests / plan.pace_per_second
    return (
        f"plan {plan.name}: {len(plan.prompts)} prompts, {plan.n_probs} logprobs a step\n"
        + table_text(rows)
        + f"in all, baselines, canaries and neighbours included: {requests} requests and {steps} steps a server, "
        f"at least {seconds:.0f} s by its pace\n"
    )
