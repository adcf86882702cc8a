"""Write docs/reference/epochs.md's tables from the findings of the stored epochs, so that no class is typed by hand.

In: `findings.json` and `manifest.json` of the runs named below. Out: the lines between `<!-- epochs -->` and `<!-- end
of epochs -->`. tests/unit/test_epochs_table.py fails where they are not up to date.

    python -m scripts.epochs_table [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from scripts.tables import table_command

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "reference" / "epochs.md"
NAME = "epochs"
RUNS = ("2026-11-30-identity-epochs-smollm2", "2026-11-30-identity-epochs-gemma")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read(run: str, name: str) -> Any:  # noqa: ANN401 - a JSON document
    """Return a document of a stored run."""
    return json.loads((REPOSITORY / "results" / run / name).read_text(encoding="ascii"))


def table(run: str) -> list[str]:
    """Return the tables of a record: a line a build, its class, and what changed since the one before."""
    findings, manifest = read(run, "findings.json"), read(run, "manifest.json")
    lines = []
    for place, entry in enumerate(findings["classes"]):
        letters = {label: LETTERS[at] for at, members in enumerate(entry["classes"]) for label in members}
        cell = manifest["cells"][place]
        lines += [
            f"**{entry['cell']}** ({cell['vocabulary']:,} {findings['rows']} a row), from",
            f"[{run}](../../results/README.md):",
            "",
            "| build | class | against the build before |",
            "|---|---|---|",
        ]
        for index, build in enumerate(manifest["builds"]):
            before = change(findings["pairs"][index - 1]["cells"][place]) if index else "-"
            lines.append(f"| {build['name'].removeprefix('pypi:')} | {letters.get(build['label'], '-')} | {before} |")
        lines.append("")
    return lines


def change(cell: dict[str, Any]) -> str:
    """Say in a few words what a cell of two neighbours came to."""
    moved = cell["difference"]
    if moved is None:
        return "only one of the two runs here" if cell["verdict"] == "DIFFERENT" else cell["verdict"]
    return (
        f"{cell['verdict']}: {moved['rows'][0]}/{moved['rows'][1]} rows, up to {moved['nats_max']:.2g} nats, begins in "
        f"{moved['begins']}, argmax agrees in {moved['argmax'][0]}/{moved['argmax'][1]}, looks like {moved['looks']}"
    )


def tables() -> str:
    """Return the tables of all records, one below the other."""
    return "\n".join(line for run in RUNS for line in table(run)).rstrip("\n")


def main(words: list[str] | None = None) -> int:
    """Write or check the page."""
    return table_command(PAGE, NAME, tables, words)


if __name__ == "__main__":
    sys.exit(main())
