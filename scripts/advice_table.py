"""Write the table of advice from the stored remedies, so that nothing is advised that no published record shows.

In: `findings.json` and the declarations of every remedy in results/. Out: audit/data/advice.json: for each build and
model, known by the digests of its libraries, the settings that remedied conditions there. tests/unit/test_advice.py
fails where it is not up to date.

    python -m scripts.advice_table [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from audit.advice import ENTRIES, entry_of
from audit.stream import canonical

RESULTS = Path(__file__).resolve().parents[1] / "results"


def table() -> bytes:
    """Return the table as canonical JSON."""
    folders = [path.parent for path in sorted(RESULTS.glob("*/findings.json"))]
    entries = [entry_of(folder, source=f"results/{folder.name}") for folder in folders]
    return canonical({"format": 1, "entries": [entry for entry in entries if entry is not None]})


def main() -> int:
    """Write or check the table."""
    parser = argparse.ArgumentParser(description="Write the table of advice from the stored remedies.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where it is not up to date")
    wanted = table()
    if parser.parse_args().check:
        same = ENTRIES.read_bytes() == wanted
        print("up to date" if same else "audit/data/advice.json is not up to date: run scripts/advice_table.py")
        return int(not same)
    ENTRIES.write_bytes(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
