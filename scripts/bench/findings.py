"""Findings of a very long history, against pandas reading the same file.

    python -m scripts.bench.findings [--pairs 5] [--attempts 100000]

Pairs are of 100,000 attempts, so that five take minutes; slopes.py goes on to a million, once.
"""

from __future__ import annotations

import sys

from scripts.bench.histories import floor_of_findings, history, ours_findings
from scripts.bench.measure import Bench, Fact, paired, run_one


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    folder = history(n["attempts"])
    return paired("findings", lambda: floor_of_findings(folder), lambda: ours_findings(folder), pairs=pairs, n=n)


BENCH = Bench(
    name="findings",
    what="findings of 1,000,000 attempts",
    floor="pandas read of the same file",
    goal="<= 3 x, under 2 GB",
    n={"attempts": 100_000},
    tiny={"attempts": 100},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
