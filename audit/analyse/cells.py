"""Cells: what the trials of one condition on one server amount to, with exact bounds.

In go the table of trials and the plan, out come the entries of findings.json, in server order and then in the order of
the catalogue. Witnesses and consequences are added by a function that the caller gives, since they need the streams.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from audit.conditions import FAMILIES, Request, catalogue_position
from audit.plan import Plan
from audit.statistics import rate
from audit.trial import Entry

__all__ = ["EXCLUSIONS", "JUDGED", "Size", "cell_entries", "pooled_entries", "sizes"]

EXCLUSIONS = ("cross-talk", "failed", "set aside", "short", "tainted", "unsupported", "vacuous")
JUDGED = ("unstable", "divergent", "token-identical", "identical")
# What a cell is counted from and its witness found by: its rows are copied, without columns that nobody reads.
_COLUMNS = (
    *("server", "condition", "family", "trial", "reference", "repeats_baseline", "unit"),
    *("exclusion", "reason", "outcome", "weak", "partial", "complete", "skipped_for_slots"),
    *("logprob", "reference_logprob", "usable", "diverged"),
)
# Whatever a cell shows besides: the same keys for every cell.
Extras = Callable[[pd.DataFrame], Mapping[str, Any]]


class Size(NamedTuple):
    """How many trials of a condition are planned, and how many must be usable."""

    planned: int
    minimum: int


def sizes(plan: Plan) -> dict[str, Size]:
    """Return the size of every condition of a plan, in the order of the catalogue.

    An entry's `minimum` is about each cell of its own family, and the repeats of its waves are needed in the same
    share. Repeats inside cache blocks, which belong to another entry's cell, count with their full number.
    """
    found: dict[str, Size] = {}
    for entry in plan.conditions:
        own = {name.format(level=level) for name in FAMILIES[entry.name].conditions for level in entry.levels or [0]}
        for condition, planned in Counter(_measured(plan, entry)).items():
            minimum = planned if entry.minimum is None or condition not in own else min(entry.minimum, planned)
            if entry.minimum is not None and condition == "wave_repeat":
                minimum = sum(_repeats_needed(entry, level, entry.minimum) for level in entry.levels)
            before = found.get(condition, Size(0, 0))
            found[condition] = Size(before.planned + planned, before.minimum + minimum)
    return dict(sorted(found.items(), key=lambda item: catalogue_position(item[0])))


def _measured(plan: Plan, entry: Entry) -> Iterator[str]:
    """Yield the condition of each measured trial of an entry; they are formed one by one and not kept."""
    for prompt in entry.prompts:
        for index in range(entry.count):
            request = Request(entry=entry, family=entry.name, prompt=prompt, index=index, steps=plan.steps_of)
            for block in FAMILIES[entry.name].form(request):
                for unit in block.units:
                    yield from (trial.condition for trial in unit.trials if trial.role == "measured")


def _repeats_needed(entry: Entry, level: int, minimum: int) -> int:
    """Return how many trials of a level's repeated waves are needed: in the share that the waves themselves are."""
    needed = min(minimum, entry.count * level * len(entry.prompts))
    return -(-needed * min(entry.again, entry.count) // entry.count)


def cell_entries(
    table: pd.DataFrame, *, plan: Plan, servers: Sequence[str], extras: Extras = lambda _: {}
) -> list[dict[str, Any]]:
    """Return the entry of every cell.

    Args:
        table: the trials.
        plan: the plan that says how many were planned.
        servers: the labels in run order.
        extras: gets the usable trials of a cell and returns what else its entry shows.
    """
    unstable = _unstable(table)
    groups = table[list(_COLUMNS)].groupby(["server", "condition"], sort=False)
    planned = sizes(plan)
    entries = []
    for server in servers:
        for condition, size in planned.items():
            # One cell at a time, and no copy where all is usable: a cell may be nearly the whole table.
            group = groups.get_group((server, condition))
            usable = group if group["usable"].all() else group[group["usable"]]
            entry = {**_entry(group, usable, size, unstable), **extras(usable)}
            entries.append({"server": server, "condition": condition, **entry})
    return entries


def pooled_entries(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each condition the sum over the servers on which it has a result, in the order of the catalogue."""
    conditions = sorted({cell["condition"] for cell in cells}, key=catalogue_position)
    entries = []
    for condition in conditions:
        counted = [cell for cell in cells if cell["condition"] == condition and cell["verdict"] in JUDGED]
        if counted:
            entries.append({
                "condition": condition,
                "servers": {cell["server"]: cell["verdict"] for cell in counted},
                **{
                    key: sum(cell[key] for cell in counted)
                    for key in ("usable", "logprob_identical", "token_identical")
                },
                **{key: _pooled_rate([cell[key] for cell in counted]) for key in ("by_trial", "by_wave")},
            })  # fmt: skip
    return entries


def _pooled_rate(rates: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    return rate(sum(one["divergent"] for one in rates), sum(one["n"] for one in rates))._asdict()


def _unstable(table: pd.DataFrame) -> set[tuple[str, str]]:
    """Return the baselines (server, trial) that did not repeat when they ran alone."""
    repeats = table[table["family"].isin(["repeat_greedy", "repeat_seeded"]) & table["usable"]]
    differing = repeats[repeats["outcome"] != "identical"]
    return set(zip(differing["server"], differing["reference"], strict=True))


def _entry(group: pd.DataFrame, usable: pd.DataFrame, size: Size, unstable: set[tuple[str, str]]) -> dict[str, Any]:
    excluded = group["exclusion"].value_counts()
    identical = int((usable["outcome"] == "identical").sum())
    token_identical = identical + int((usable["outcome"] == "token-identical").sum())
    verdict = _verdict(group, usable, size.minimum, unstable)
    waves = usable["diverged"].groupby(usable["unit"]).any()
    qualifiers = [name for name in ("partial", "weak") if bool(usable[name].any())]
    return {
        "verdict": verdict,
        "reason": _reason(verdict, group, usable, size),
        "qualifiers": qualifiers,
        "planned": size.planned,
        "usable": len(usable),
        "minimum": size.minimum,
        "excluded": {name: int(excluded.get(name, 0)) for name in EXCLUSIONS},
        "reasons": {str(name): int(count) for name, count in group["reason"].dropna().value_counts().items()},
        "logprob_identical": identical,
        "token_identical": token_identical,
        "distinct": int(usable.groupby("reference")["logprob"].nunique().sum()),
        "by_trial": rate(int(usable["diverged"].sum()), len(usable))._asdict(),
        "by_wave": rate(int(waves.sum()), len(waves))._asdict(),
    }


def _verdict(group: pd.DataFrame, usable: pd.DataFrame, minimum: int, unstable: set[tuple[str, str]]) -> str:
    """Return the first verdict that applies."""
    excluded = set(group["exclusion"].dropna())
    few = len(usable) < minimum
    leans = usable["repeats_baseline"] & ~usable["family"].str.startswith("repeat_")
    leaning = usable.loc[leans, ["server", "reference"]].drop_duplicates()
    outcomes = set(usable["outcome"])
    rules = (
        ("unsupported", "unsupported" in excluded),
        ("not run", not group["complete"].any() and not group["skipped_for_slots"].any()),
        ("tainted", "tainted" in excluded),
        ("cross-talk", "cross-talk" in excluded),
        ("vacuous", "vacuous" in excluded and few),
        ("insufficient", few or usable.empty),
        ("unstable", not unstable.isdisjoint(zip(leaning["server"], leaning["reference"], strict=True))),
        ("divergent", "divergent" in outcomes),
        ("token-identical", "token-identical" in outcomes),
    )
    return next((verdict for verdict, applies in rules if applies), "identical")


def _reason(verdict: str, group: pd.DataFrame, usable: pd.DataFrame, size: Size) -> str:
    """Say in one sentence why the cell has its verdict."""
    count = len(usable)
    reasons = ", ".join(sorted(set(group["reason"].dropna())))
    outcomes = usable["outcome"].value_counts()
    of_usable = f"of {count} usable trials"
    sentences = {
        "unsupported": "The server used speculative decoding or gave probabilities after sampling.",
        "not run": f"None of the {size.planned} planned trials was completed.",
        "tainted": f"Another cause than the condition may have acted on the server: {reasons}.",
        "cross-talk": "A reply belongs to another prompt.",
        "vacuous": f"The condition did not happen often enough ({reasons}): {count} usable, {size.minimum} needed.",
        "insufficient": f"{count} of {size.planned} trials are usable, {max(1, size.minimum)} are needed.",
        "unstable": "A baseline that these trials are compared with did not repeat when it ran alone.",
        "divergent": f"{outcomes.get('divergent', 0)} {of_usable} gave other tokens than their reference.",
        "token-identical": f"All {count} usable trials gave their reference's tokens, "
        f"{outcomes.get('token-identical', 0)} of them without equal logprobs.",
        "identical": f"All {count} usable trials gave their reference's stream, logprob by logprob.",
    }
    return sentences[verdict]
