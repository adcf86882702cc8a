"""The tidy table: one row a measured trial of a run, in server order and then in the order of the plan.

In goes a run, out comes a pandas table whose columns are the fields of `Row`, and two that every count needs: `usable`
and `diverged`. Cells, waves and the instrument are groups of its rows.
"""

from collections.abc import Mapping

import pandas as pd

from audit.analyse.evidence import Evidence
from audit.analyse.judge import Row, judge
from audit.store import Run

__all__ = ["NO_LOGPROBS", "tabulate"]

NO_LOGPROBS = "without_logprobs"  # its streams hold ids alone, so that it diverges at token level or not at all


def tabulate(run: Run, evidence: Mapping[str, Evidence]) -> pd.DataFrame:
    """Judge every measured trial of every server.

    A trial has `diverged` where it is usable and not `identical`, or not even `token-identical` where no logprobs were
    asked for.
    """

    def fact(name: str) -> object:
        return run.fact(name) if run.has("facts", name) else None

    # Column by column: a million rows as tuples and as a table at once would not be memory well spent.
    columns: dict[str, list[object]] = {name: [] for name in Row._fields}
    appends = [column.append for column in columns.values()]
    for one in evidence.values():
        for row in judge(one, fact=fact):
            for append, value in zip(appends, row, strict=True):
                append(value)
    table = pd.DataFrame({name: pd.Series(columns.pop(name)) for name in Row._fields}, copy=False)
    table["usable"] = table["exclusion"].isna()
    without = (table["condition"] == NO_LOGPROBS) & (table["outcome"] == "token-identical")
    table["diverged"] = table["usable"] & (table["outcome"] != "identical") & ~without
    return table
