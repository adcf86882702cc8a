"""The tidy table: one row a measured trial of a run, in server order and then in the order of the plan.

In goes a run, out comes a pandas table whose columns are the fields of `Row`, and two that every count needs: `usable`
and `diverged`. Cells, waves and the instrument are groups of its rows.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from audit.analyse.evidence import Evidence
from audit.analyse.judge import Row, judge
from audit.store import Run

__all__ = ["NO_LOGPROBS", "tabulate"]

NO_LOGPROBS = "without_logprobs"  # its streams hold ids alone, so that it diverges at token level or not at all
# Rows wait for so many others, and are then put into the columns.
_AT_ONCE = 1024


def tabulate(run: Run, evidence: Mapping[str, Evidence]) -> pd.DataFrame:
    """Judge every measured trial of every server.

    A trial has `diverged` where it is usable and not `identical`, or not even `token-identical` where no logprobs were
    asked for.
    """

    def fact(name: str) -> object:
        return run.fact(name) if run.has("facts", name) else None

    count = sum(one.trial.role == "measured" for each in evidence.values() for one in each.planned.values())
    columns = _columns((row for one in evidence.values() for row in judge(one, fact=fact)), count)
    # Column by column: a million rows twice at once would not be memory well spent.
    table = pd.DataFrame({name: pd.Series(columns.pop(name)) for name in Row._fields}, copy=False)
    table["usable"] = table["exclusion"].isna()
    without = (table["condition"] == NO_LOGPROBS) & (table["outcome"] == "token-identical")
    table["diverged"] = table["usable"] & (table["outcome"] != "identical") & ~without
    return table


def _columns(rows: Iterator[Row], count: int) -> dict[str, list[Any] | NDArray[np.float64]]:
    """Lay out `count` rows as columns, which have their full length from the beginning: one that grows leaves holes."""
    columns: dict[str, list[Any] | NDArray[np.float64]] = {name: [None] * count for name in Row._fields}
    columns |= {name: np.full(count, np.nan) for name in ("window_begin_ns", "window_end_ns")}
    done = 0
    while some := list(islice(rows, _AT_ONCE)):
        for column, values in zip(columns.values(), zip(*some, strict=True), strict=True):
            column[done : done + len(some)] = values
        done += len(some)
    return columns
