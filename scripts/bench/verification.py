"""Verification of a very long history by digests alone, against strict JSON and SHA-256 of the same lines.

    python -m scripts.bench.verification [--pairs 5] [--attempts 100000]

Pairs are of 100,000 attempts, so that five take minutes; slopes.py goes on to a million, once.
"""

from __future__ import annotations

import sys

from scripts.bench.histories import floor_of_verification, history, ours_verification
from scripts.bench.measure import Bench, Fact, paired, run_one


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    folder = history(n["attempts"])
    return paired(
        "verification", lambda: floor_of_verification(folder), lambda: ours_verification(folder), pairs=pairs, n=n
    )


BENCH = Bench(
    name="verification",
    what="verification of 1,000,000 attempts, digests only",
    floor="strict `json.loads` and SHA-256 of the same lines",
    goal="<= 5 x, under 1.5 GB",
    n={"attempts": 100_000},
    tiny={"attempts": 100},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
