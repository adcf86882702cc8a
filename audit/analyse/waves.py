"""Three claims about waves of equal requests, for each server, kind and level, and the threshold of each kind.

In go the table of trials and the plan, out come the entries of findings.json. *Repeatable*: a member of a wave equals
the same member of the next. *Wave-independent*: all members of all waves are one class. *Batch-invariant*: that class
is the baseline's. The *threshold* is the largest level up to which no wave diverged.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from audit.analyse.cells import JUDGED
from audit.plan import Plan

__all__ = ["threshold_entries", "wave_entries"]

_KINDS = ("greedy", "seeded")
# What the claims are about: a table of all columns is not copied for them.
_COLUMNS = ("server", "family", "block", "unit", "prompt", "outcome", "logprob", "baseline_logprob", "holes")


def _levels(plan: Plan) -> dict[str, list[int]]:
    """Return the planned levels of each kind, rising."""
    return {
        kind: sorted(
            {level for entry in plan.conditions if entry.name == f"concurrent_{kind}" for level in entry.levels}
        )
        for kind in _KINDS
    }


def threshold_entries(cells: Sequence[dict[str, Any]], *, plan: Plan, servers: Sequence[str]) -> list[dict[str, Any]]:
    """Return one entry for each server and kind that has planned levels.

    `level` is the largest planned level up to which every cell is judged and no wave diverged, None where the smallest
    one is not so; `waves` and `high` are that cell's number of waves and the upper bound of their rate of divergence;
    `above` is the next planned level, None where there is none.
    """
    found = {(cell["server"], cell["condition"]): cell for cell in cells}
    entries = []
    for server in servers:
        for kind, levels in _levels(plan).items():
            clean: dict[str, Any] = {"level": None, "waves": None, "high": None}
            above = None
            for level in levels:
                cell = found[server, f"concurrent_{kind}_c{level}"]
                if cell["verdict"] not in JUDGED or cell["by_wave"]["divergent"]:
                    above = level
                    break
                clean = {"level": level, "waves": cell["by_wave"]["n"], "high": cell["by_wave"]["high"]}
            if levels:
                entries.append({"server": server, "kind": kind, **clean, "above": above})
    return entries


def wave_entries(table: pd.DataFrame, *, plan: Plan, servers: Sequence[str]) -> list[dict[str, Any]]:
    """Return one entry for each server, kind and planned level."""
    levels = _levels(plan)
    counted = table["usable"] & table["family"].isin(["concurrent_greedy", "concurrent_seeded", "wave_repeat"])
    members = table.loc[counted, list(_COLUMNS)]
    # A repeated wave stands in the block of the wave that it repeats.
    condition = members["block"].map({block: block.partition("/")[0] for block in members["block"].unique()})
    groups = dict(iter(members.groupby(["server", condition], sort=False)))
    return [
        {
            "server": server,
            "kind": kind,
            "level": level,
            **_claims(groups.get((server, f"concurrent_{kind}_c{level}"), members.iloc[:0])),
        }
        for server in servers
        for kind in _KINDS
        for level in levels[kind]
    ]


def _claims(members: pd.DataFrame) -> dict[str, Any]:
    """Count the claims over the usable members of all waves of one kind and level."""
    again = members[members["family"] == "wave_repeat"]
    prompts = [prompt for _, prompt in members.groupby("prompt", sort=False)]
    several = [prompt for prompt in prompts if len(prompt["unit"].unique()) > 1]
    return {
        "waves": int(members["unit"].nunique()),
        "repeatable": _ruled(int((again["outcome"] == "identical").sum()), len(again)),
        "wave_independent": _ruled(sum(_one_class(prompt) for prompt in several), len(several)),
        "batch_invariant": _ruled(sum(_is_baseline(prompt) for prompt in prompts), len(prompts)),
    }


def _ruled(k: int, n: int) -> dict[str, int]:
    return {"k": k, "n": n}


def _one_class(prompt: pd.DataFrame) -> bool:
    """Tell whether all members gave one stream; a stream with holes equals nothing."""
    return bool(len(prompt["logprob"].unique()) == 1 and (prompt["holes"] == 0).all())


def _is_baseline(prompt: pd.DataFrame) -> bool:
    return bool(((prompt["logprob"] == prompt["baseline_logprob"]) & (prompt["holes"] == 0)).all())
