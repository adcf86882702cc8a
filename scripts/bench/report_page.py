"""The report of the largest stored audit, from its facts to its files; there is no floor.

python -m scripts.bench.report_page [--pairs 5]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from scripts.bench.measure import REPOSITORY, Bench, Fact, command, run_one, single

RUN = REPOSITORY / "results" / "2026-11-30-embedded-b11549"
SMALL = REPOSITORY / "tests" / "vectors" / "golden"


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure, on a copy: a report writes its files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        shutil.copytree(RUN if n["whole"] else SMALL, folder)
        words = [sys.executable, "-m", "audit", "report", str(folder)]
        return single("report_page", lambda: command(words), pairs=pairs, n=n, alone=("wall_s", "cpu_s", "peak_mb"))


BENCH = Bench(
    name="report_page",
    what="report of the authoritative run",
    floor="-",
    goal="under 5 s",
    n={"whole": 1},
    tiny={"whole": 0},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
