"""Write the README's table of results from the findings of the stored runs, so that no number in it is typed by hand.

In: `findings.json` of the runs named below. Out: the lines between `<!-- results table -->` and `<!-- end of results
table -->` in README.md. tests/unit/test_readme_table.py fails where they are not up to date.

    python -m scripts.readme_table [--check]
"""

from __future__ import annotations

import json
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

from scripts.tables import table_command

REPOSITORY = Path(__file__).resolve().parents[1]
NAME = "results table"
# (run folder, build as the table calls it)
RUNS = (("2026-11-30-embedded-b11549", "b11549"), ("2026-11-30-binary-b11434", "b11434"))
MODELS = {"gemma3-270m-q4_k_m": "Gemma Q4_K_M", "smollm2-135m-q4_1": "SmolLM2 Q4_1"}
ROWS = {
    "repeat_greedy": "alone, again",
    "repeat_seeded": "alone, again, sampled with a fixed seed",
    "restart": "after a restart",
    "concurrent_greedy_c2": "2 at once",
    "concurrent_greedy_c4": "4 at once",
    "concurrent_greedy_c8": "8 at once",
    "concurrent_seeded_c6": "6 at once, sampled with a fixed seed",
    "cross_batch_together": "in a batch with other prompts",
    "cache_warm1": "prompt cache reused",
    "stream_vs_whole": "streamed",
}
# Verdicts that stand on evidence; anything else is shown as the word that it is.
JUDGED = ("unstable", "divergent", "token-identical", "identical")


def findings(run: str) -> dict[str, Any]:
    """Return the findings of a stored run."""
    loaded: dict[str, Any] = json.loads((REPOSITORY / "results" / run / "findings.json").read_text())
    return loaded


def shown(cell: dict[str, Any]) -> str:
    """Return a cell as text: waves or solo trials that moved, with exact bounds, and trials whose tokens survived."""
    if cell["verdict"] not in JUDGED:
        return str(cell["verdict"])
    moved = cell["by_wave"]
    low, high = Decimal(repr(moved["low"])), Decimal(repr(moved["high"]))
    cent = Decimal("0.01")  # rounded outwards, so that the shown bounds hold
    bounds = f"{low.quantize(cent, rounding=ROUND_FLOOR)} to {high.quantize(cent, rounding=ROUND_CEILING)}"
    return f"{moved['divergent']}/{moved['n']} ({bounds}); {cell['token_identical']}/{cell['usable']}"


def table() -> str:
    """Return the table's lines."""
    stored = {build: findings(run) for run, build in RUNS}
    columns = [(build, label, name) for build in stored for label, name in MODELS.items()]
    cells = {
        (build, cell["server"], cell["condition"]): shown(cell)
        for build, found in stored.items()
        for cell in found["cells"]
    }
    lines = [
        "| the same request | " + " | ".join(f"{name}, {build}" for build, _, name in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for condition, words in ROWS.items():
        texts = [cells.get((build, label, condition), "not planned") for build, label, _ in columns]
        lines.append(f"| {words} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def main() -> int:
    """Write or check the table."""
    return table_command(REPOSITORY / "README.md", NAME, table)


if __name__ == "__main__":
    sys.exit(main())
