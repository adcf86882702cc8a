"""datapackage.json: what the tables of a run folder hold, as a Frictionless Data Package.

In go the tables as they were written, out comes the descriptor in canonical JSON, with digest and size of each file and
the type of every column. Words about a column are here; what a value means is in docs/reference/verdicts.md.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from audit.stream import canonical, digest

__all__ = ["Sheet", "csv_bytes", "package_bytes"]

_TITLES = {
    "cells.csv": "One row a cell: one condition on one server, with counts, exact bounds, witness and consequence.",
    "steps.csv": "One row a compared step of each pair of streams that differ, up to the first other token.",
}
_COLUMNS = {
    "server": "The server's label.",
    "condition": "The condition, with its level.",
    "verdict": "The first verdict that applies; see docs/reference/verdicts.md.",
    "reason": "Why the cell has its verdict, in one sentence.",
    "qualifiers": "partial, weak, or nothing.",
    "planned": "Trials that the plan has.",
    "usable": "Trials that count.",
    "minimum": "Usable trials that the cell needs.",
    "logprob_identical": "Usable trials with their reference's logprobs, bit for bit.",
    "token_identical": "Usable trials with their reference's tokens.",
    "distinct": "Different streams, summed over references.",
    "prompt": "The prompt's key.",
    "sampled": "Whether tokens were sampled, with a fixed seed; else greedy.",
    "trial": "The first trial that shows this pair of streams.",
    "trials": "How many trials of the cell show it.",
    "step": "The step, from 0.",
    "moved": "Whether anything of the step differs.",
    "token": "The trial's token id.",
    "reference_token": "The reference's token id.",
    "logprob": "What the trial's stream gives to the reference's token, in nats.",
    "reference_logprob": "What the reference gives to it, in nats.",
    "margin": "The reference's best minus second-best logprob, in nats.",
    "flipped": "Whether the trial has another token.",
    "nats": "logprob minus reference_logprob.",
    "ulp": "The number of float32 values between the two.",
}
_GROUPS = {
    "excluded.": "Trials that do not count, by rule.",
    "reasons.": "Trials that are tainted or vacuous, by reason.",
    "by_trial.": "The rate of trials that moved, with exact 95 % bounds.",
    "by_wave.": "The rate of waves that moved, with exact 95 % bounds.",
    "witness": "The smallest evidence that the cell moved.",
    "consequence": "What that did to the reference's tokens.",
}


class Sheet:
    """A table and the bytes that it is written as."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Write the table."""
        self.table = table
        self.data = csv_bytes(table)


def csv_bytes(table: pd.DataFrame) -> bytes:
    """Return a table as CSV: UTF-8, a header, numbers as Python writes them."""
    return table.to_csv(index=False, lineterminator="\n").encode("utf-8")


def package_bytes(sheets: Mapping[str, Sheet], *, name: str, seal: str) -> bytes:
    """Return the descriptor.

    Args:
        sheets: the tables by file name.
        name: the package's name, made of small letters, digits and dashes.
        seal: the digest of the run's seal, which identifies what the tables were made from.
    """
    return canonical({
        "profile": "tabular-data-package",
        "name": name,
        "title": "Tables of a determinism audit",
        "description": f"Derived from the run whose seal is {seal}; recomputed by `determinism report RUN`.",
        "resources": [_resource(file, sheet) for file, sheet in sorted(sheets.items())],
    })  # fmt: skip


def _resource(file: str, sheet: Sheet) -> dict[str, Any]:
    return {
        "profile": "tabular-data-resource",
        "name": file.removesuffix(".csv"),
        "path": file,
        "title": _TITLES[file],
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": len(sheet.data),
        "hash": digest(sheet.data),
        "schema": {
            "fields": [
                {"name": str(name), "type": _type(sheet.table[name]), "description": _words(str(name))}
                for name in sheet.table.columns
            ],
            "missingValues": [""],
        },
    }


def _words(column: str) -> str:
    group = next((words for prefix, words in _GROUPS.items() if column.startswith(prefix)), column)
    return _COLUMNS.get(column, group)


def _type(column: "pd.Series[Any]") -> str:
    if pd.api.types.is_bool_dtype(column):
        return "boolean"
    if pd.api.types.is_integer_dtype(column):
        return "integer"
    return "number" if pd.api.types.is_float_dtype(column) else "string"
