"""Write the README's table of remedies from the findings of the stored ones, so that no number is typed by hand.

In: `findings.json` of every remedy in results/. Out: the lines between `<!-- remedies table -->` and `<!-- end of
remedies table -->` in README.md. tests/unit/test_remedies_table.py fails where they are not up to date.

    python -m scripts.remedies_table [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scripts.tables import table_command

REPOSITORY = Path(__file__).resolve().parents[1]
NAME = "remedies table"
NONE = "No remedy has been published yet."
# What the table calls the conditions of the plan that is shipped.
CONDITIONS = {
    "concurrent_greedy_c8": "8 at once",
    "cross_batch_together": "in a batch with other prompts",
    "cache_warm1": "prompt cache reused",
}


def remedies() -> dict[str, dict[str, Any]]:
    """Return the findings of the stored remedies by folder."""
    documents = {path.parent.name: json.loads(path.read_text()) for path in REPOSITORY.glob("results/*/findings.json")}
    return {name: found for name, found in sorted(documents.items()) if found["kind"] == "remedy"}


def shown(found: dict[str, Any], condition: str) -> str:
    """Return what is known of one condition: unmoved, or its remedies with their bound and price, best first."""
    one = next((entry for entry in found["conditions"] if entry["condition"] == condition), None)
    if one is None:
        return "not planned"
    if not one["moved"]:
        return f"{one['verdict']} without any setting"
    told, still = [], []
    for row in found["settings"]:
        cell = next(cell for cell in row["cells"] if cell["condition"] == condition)
        if cell["status"] == "remedy":
            waves = cell["by_wave"]
            told.append(f"`{row['setting']}` (0/{waves['n']}, rate at most {waves['high']:.2f}{price(found, row)})")
        elif cell["status"] == "too rare":
            still.append(f"`{row['setting']}` 0/{cell['by_wave']['n']}")
    moved = f"{one['by_wave']['divergent']}/{one['by_wave']['n']} moved"
    rare = f"too rare to tell, {', '.join(still)}" if still else ""
    return f"{moved}; {', '.join(told) or rare or 'no remedy among those tried'}"


def price(found: dict[str, Any], row: dict[str, Any]) -> str:
    """Return the change of speed at the plan's level, as words; empty where it was not measured."""
    own, other = row["together"], found["without"]["together"]
    if own is None or other is None:
        return ""
    return f", {100 * (own['per_second'] / other['per_second'] - 1):+.0f} % tokens/s at {found['level']}"


def table() -> str:
    """Return the table's lines."""
    stored = remedies()
    if not stored:
        return NONE
    lines = [f"| model and build | {' | '.join(CONDITIONS.values())} |", "|---|" + "---|" * len(CONDITIONS)]
    for name, found in stored.items():
        cells = " | ".join(shown(found, condition) for condition in CONDITIONS)
        lines.append(f"| [{found['model']}, {found['build']}](results/{name}/report.md) | {cells} |")
    return "\n".join(lines)


def main() -> int:
    """Write or check the table."""
    return table_command(REPOSITORY / "README.md", NAME, table)


if __name__ == "__main__":
    sys.exit(main())
