"""Write docs/reference/epochs.md's tables from the findings of the stored epochs, so that no class is typed by hand.

In: `findings.json` and `manifest.json` of the runs named below. Out: the lines between `<!-- epochs -->` and `<!-- end
of epochs -->`. tests/unit/test_epochs_table.py fails where they are not up to date.

    python scripts/epochs_table.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "reference" / "epochs.md"
BEGIN, END = "<!-- epochs -->", "<!-- end of epochs -->"
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


def renewed(page: str) -> str:
    """Return the page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [line for run in RUNS for line in table(run)]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/reference/epochs.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where they are not up to date")
    options = parser.parse_args(arguments)
    page = PAGE.read_text(encoding="ascii")
    wanted = renewed(page)
    if options.check:
        print("up to date" if page == wanted else "docs/reference/epochs.md is not up to date")
        return int(page != wanted)
    PAGE.write_text(wanted, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
