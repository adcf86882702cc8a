"""A check's findings as aligned ASCII, and the exit codes."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.accuracy.metrics import METRICS

__all__ = ["check_code", "check_text", "conclusion", "report_code"]

_ROW_BEYOND = 1
_INCONCLUSIVE = 3
_FAILURES_SHOWN = 10
_SOURCE_WORDS = {"logprobs": "reported logprobs", "logits": "raw logits"}


def check_code(findings: Mapping[str, Any]) -> int:
    """Return 0 where every row is within and covered, else 1."""
    return 0 if findings["conclusion"] == "within" else _ROW_BEYOND


def report_code(findings: Mapping[str, Any], *, strict: bool) -> int:
    """Return the exit code of a report: 0 unless `strict`, as that of `scripts/verify.py --assert`."""
    statuses = {one["status"] for one in findings["predictions"]}
    if strict and (check_code(findings) or "refuted" in statuses):
        return _ROW_BEYOND
    return _INCONCLUSIVE if strict and "inconclusive" in statuses else 0


def conclusion(findings: Mapping[str, Any]) -> str:
    """Return one sentence: the verdict, the counts, and what the rows were."""
    rows = sum(cell["rows"] for cell in findings["cells"])
    failed = sum(cell["failed"] for cell in findings["cells"])
    sides = {one["side"]: _SOURCE_WORDS[one["source"]] for one in findings["sources"]}
    words = f"{failed} of {rows} rows beyond their bounds"
    bare = [f"{one['model']} {one['mode']}" for one in findings["coverage"] if not one["clear"]]
    if bare:
        words += f"; no clear winner among the fresh rows of {', '.join(bare)}"
    what = f"{sides.get('server')} against {sides.get('reference')} of a float32 reference"
    return f"{findings['conclusion']}: {words} ({what})"


def check_text(findings: Mapping[str, Any]) -> str:
    """Return the report: conclusion, bounds, cells, failures, predictions."""
    lines = [conclusion(findings), ""]
    header = ["verdict", "model", "group", "mode", "rows", "failed", "clear", "lost", "differ", *METRICS]
    table = [header]
    for cell in findings["cells"]:
        counts = [cell[name] for name in ("rows", "failed", "clear", "winners_lost", "bests_differ")]
        verdict = "beyond" if cell["failed"] else "within"
        values = [f"{cell[name]:.6g}" for name in METRICS]
        table.append([verdict, cell["model"], cell["group"], cell["mode"], *map(str, counts), *values])
    for model, bounds in findings["bounds"].items():
        empty = [""] * (len(header) - len(METRICS) - 2)
        table.append(["bound", model, *empty, *(f"{bounds[name]:.6g}" for name in METRICS)])
    lines += _aligned(table)
    for one in findings["failures"][:_FAILURES_SHOWN]:
        place = f"{one['model']} {one['group']} {one['mode']} slot {one['slot']} position {one['position']}"
        lines.append(f"failed: {place}: {', '.join(one['why'])}")
    lines += [
        f"prediction {one['id']}: {one['status']} ({one['found']:.6g} over {one['rows']} rows): {one['statement']}"
        for one in findings["predictions"]
    ]
    if findings["exploratory"] is not None:
        lines.append(f"exploratory: {findings['exploratory']}")
    return "\n".join(lines) + "\n"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    texts = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table)
    return [text.rstrip() for text in texts]
