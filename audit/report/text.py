"""Findings as aligned ASCII, verdict word first, fit to paste into an issue.

In go findings, out comes text. Nothing is computed here but column widths; counts never stand without their n.
"""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import pandas as pd

__all__ = ["bounds_text", "findings_text", "outwards", "table_text", "verdict_code"]

_REFUTED, _INCONCLUSIVE = 1, 3


def table_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of equal keys as a left-aligned table with a header."""
    if not rows:
        return ""
    table = pd.DataFrame([{name: str(value) for name, value in row.items()} for row in rows])
    widths = {name: max(len(name), int(table[name].str.len().max())) for name in table.columns}
    rows_of_text = [list(widths), *table.itertuples(index=False)]
    lines = [
        "  ".join(value.ljust(width) for value, width in zip(row, widths.values(), strict=True)).rstrip()
        for row in rows_of_text
    ]
    return "\n".join(lines) + "\n"


def _share(k: int, n: int) -> str:
    return f"{k}/{n}"


def bounds_text(rate: dict[str, Any]) -> str:
    """Return a rate as `k/n [low, high]`, `-` without trials."""
    if not rate["n"]:
        return "-"
    low, high = outwards(rate["low"], ROUND_FLOOR), outwards(rate["high"], ROUND_CEILING)
    return f"{rate['divergent']}/{rate['n']} [{low}, {high}]"


def outwards(bound: float, rounding: str) -> str:
    """Return a bound with three decimals, never nearer to the middle than it is."""
    return str(Decimal(repr(bound)).quantize(Decimal("0.001"), rounding=rounding))


def _witness(witness: dict[str, Any] | None) -> str:
    if witness is None:
        return "-"
    text = f"step {witness['step']} rank {witness['rank']}"
    if witness["ulp"] is not None:
        text += f" {witness['ulp']} ulp {witness['nats']:+.3g} nats"
    return text if witness["level"] == "logprob" else f"{text} ({witness['level']})"


def _cell_row(cell: dict[str, Any]) -> dict[str, Any]:
    qualified = " ".join([cell["verdict"], *(f"({word})" for word in cell["qualifiers"])])
    return {
        "verdict": qualified,
        "server": cell["server"],
        "condition": cell["condition"],
        "logprob": _share(cell["logprob_identical"], cell["usable"]),
        "token": _share(cell["token_identical"], cell["usable"]),
        "distinct": cell["distinct"],
        "moved, by wave [95 %]": bounds_text(cell["by_wave"]),
        "first difference": _witness(cell["witness"]),
    }


def _instrument_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "status": entry["status"],
            "server": entry["server"],
            "check": entry["check"],
            "k/n": _share(entry["k"], entry["n"]),
        }
        for entry in findings["instrument"]
    ]


def _pooled_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    if len({cell["server"] for cell in findings["cells"]}) < 2:  # noqa: PLR2004 - one server pools nothing
        return []
    return [
        {
            "condition": entry["condition"],
            "logprob": _share(entry["logprob_identical"], entry["usable"]),
            "token": _share(entry["token_identical"], entry["usable"]),
            "moved, by wave [95 %]": bounds_text(entry["by_wave"]),
        }
        for entry in findings["pooled"]
    ]


def _consequence_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for cell in findings["cells"]:
        found = cell["consequence"]
        if found is None or cell["condition"].startswith("control_"):
            continue
        percent = found["perplexity_percent_max"]
        rows.append(
            {
                "server": cell["server"],
                "condition": cell["condition"],
                "nats, median": f"{found['nats_median']:.3g}",
                "nats, largest": f"{found['nats_max']:.3g}",
                "perplexity, largest": "-" if percent is None else f"{percent:.3g} %",
                "rank swaps": found["rank_swaps"],
            }
        )
    return rows


def _wave_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "server": entry["server"],
            "waves": f"{entry['kind']} c{entry['level']} n={entry['waves']}",
            **{name: _share(**entry[name]) for name in ("repeatable", "wave_independent", "batch_invariant")},
        }
        for entry in findings["waves"]
    ]


def _prediction_rows(findings: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "status": entry["status"],
            "id": entry["id"],
            "k/n": _share(entry["k"], entry["n"]),
            "statement": entry["statement"],
        }
        for entry in findings["predictions"]
    ]


def findings_text(findings: dict[str, Any]) -> str:
    """Return predictions, instrument, cells, what follows from moved ones, claims about waves, and one last line."""
    odd = [cell for cell in findings["cells"] if cell["verdict"] not in {"identical", "token-identical", "divergent"}]
    sections = [
        ("predictions", table_text(_prediction_rows(findings))),
        ("the instrument", table_text(_instrument_rows(findings))),
        (
            "cells: one condition on one server; logprob and token are identical/usable; control_* must diverge",
            table_text([_cell_row(cell) for cell in findings["cells"]]),
        ),
        ("why", "".join(f"{cell['server']} {cell['condition']}: {cell['reason']}\n" for cell in odd)),
        ("pooled over servers", table_text(_pooled_rows(findings))),
        (
            "what it amounts to: the summed logprob and the perplexity of a stream, and swapped ranks in its top-k",
            table_text(_consequence_rows(findings)),
        ),
        (
            "claims about waves: k/n members repeat; k/n prompts are one class; k/n prompts equal the baseline",
            table_text(_wave_rows(findings)),
        ),
        ("thresholds", "".join(_threshold(entry) for entry in findings["thresholds"])),
    ]
    told = [f"{title}\n{text}" for title, text in sections if text]
    return "\n".join(told) + "\n" + _last_line(findings) + "\n"


def _threshold(entry: dict[str, Any]) -> str:
    waves = f"{entry['kind']} waves on {entry['server']}: "
    if entry["level"] is None:
        return f"{waves}none, since level {entry['above']}, the smallest, moved or could not be judged\n"
    most = outwards(entry["high"], ROUND_CEILING)
    bound = f"{entry['level']} (0 of {entry['waves']} waves moved, so a rate of at most {most})"
    return f"{waves}{bound}, next level {entry['above']}\n" if entry["above"] else f"{waves}{bound}, the largest sent\n"


def _last_line(findings: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for cell in findings["cells"]:
        counts[cell["verdict"]] = counts.get(cell["verdict"], 0) + 1
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    exploratory = f"; exploratory: {findings['exploratory']}" if findings["exploratory"] else ""
    return f"{findings['conclusion']}: {len(findings['cells'])} cells ({told}){exploratory}"


def verdict_code(findings: dict[str, Any], *, strict: bool) -> int:
    """Return the exit code of findings: 3 where the record is inconclusive.

    With `strict` also 1 where a prediction is refuted and 3 where one is open.
    """
    if not findings["sound"]:
        return _INCONCLUSIVE
    statuses = {entry["status"] for entry in findings["predictions"]}
    if strict and "refuted" in statuses:
        return _REFUTED
    return _INCONCLUSIVE if strict and "inconclusive" in statuses else 0
