"""The memory of a run while it goes, by the number of its trials; there is no floor.

    python -m scripts.bench.memory [--trials 20000]

The run and the look-alike are processes of their own (scripts/flat_memory.py). `mb_per_1000` is the slope of a line
through the samples behind the first tenth; a run whose memory is flat has none that matters.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from scripts.bench.measure import Bench, Fact, run_one
from scripts.flat_memory import measure as sampled


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure once: the samples of one run are many already."""
    del pairs
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        samples, peak, code = sampled(Path(scratch), n["trials"], 0.0, n["every_ms"] / 1000)
    if code:
        raise RuntimeError(f"the run ended with {code}")
    settled = np.array([sample for sample in samples if sample[0] > samples[-1][0] / 10], dtype=float)
    slope = float(np.polyfit(settled[:, 0], settled[:, 1], 1)[0]) if len(settled) > 1 else 0.0
    return Fact(
        bench="memory",
        n=n,
        command="python -m scripts.bench.memory",
        pairs=1,
        seconds=time.perf_counter() - begun,
        measures={},
        alone={"peak_mb": peak, "mb_per_1000": 1000 * slope, "samples": float(len(settled))},
    )


BENCH = Bench(
    name="memory",
    what="memory of a run",
    floor="-",
    goal="flat in the number of trials",
    n={"trials": 20_000, "every_ms": 1000},
    tiny={"trials": 200, "every_ms": 100},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
