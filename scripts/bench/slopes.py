"""How cost grows with the number of attempts: sizes from 10^3 on, and the slope of a line through them in log-log.

    python -m scripts.bench.slopes [--smallest 1000] [--largest 1000000]

A slope of 1 is linear. Each size is measured once, floors and ours one after the other; the smallest is made of what
every process costs, so that the line goes through what remains when that is taken off. `*_us` and `*_kb` are processor
time and memory of one attempt at the largest size, `*_peak_mb` the memory there, `*_ratio` the time over its floor's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scripts.bench.histories import floor_of_findings, floor_of_verification, history, ours_findings, ours_verification
from scripts.bench.measure import Bench, Fact, Spent, in_child, run_one
from scripts.bench.synthetic import synthesize

WORKS: dict[str, Callable[[Path], Spent]] = {
    "strict_json": floor_of_verification,
    "verification": ours_verification,
    "pandas": floor_of_findings,
    "findings": ours_findings,
}


def store(attempts: int) -> Callable[[], dict[str, float]]:
    """Write and seal a run, in a folder that is thrown away: the cost of the store alone."""

    def work() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = synthesize(Path(scratch) / "run", attempts)
            return {"bytes": float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))}

    return work


def slope(sizes: list[int], costs: list[float]) -> float | None:
    """Return the slope in log-log, behind the smallest size and without what that one costs; None without two sizes."""
    above = [(size - sizes[0], cost - costs[0]) for size, cost in zip(sizes[1:], costs[1:], strict=True)]
    known = [(size, cost) for size, cost in above if cost > 0]
    if len(known) < 2:  # noqa: PLR2004 - a line needs two points
        return None
    x, y = np.log10(np.array(known)).T
    return float(np.polyfit(x, y, 1)[0])


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure once: five pairs of the largest size would take hours, and smaller ones have benches of their own."""
    del pairs
    begun, sizes = time.perf_counter(), [n["smallest"]]
    while sizes[-1] < n["largest"]:
        sizes.append(min(10 * sizes[-1], n["largest"]))
    found: dict[str, list[Spent]] = {name: [] for name in [*WORKS, "store"]}
    for size in sizes:
        for name, work in WORKS.items():
            found[name].append(work(history(size)))
        found["store"].append(in_child("slopes", "store", attempts=size))
    alone: dict[str, float] = {}
    for name, spent in found.items():
        cpu, peak = [one.cpu_s for one in spent], [one.peak_mb for one in spent]
        fitted = slope(sizes, cpu)
        alone.update({f"{name}_slope": fitted} if fitted is not None else {})
        alone[f"{name}_us"] = 1e6 * (cpu[-1] - cpu[0]) / max(1, sizes[-1] - sizes[0])
        alone[f"{name}_kb"] = 1e3 * (peak[-1] - peak[0]) / max(1, sizes[-1] - sizes[0])
        alone[f"{name}_peak_mb"] = peak[-1]
    alone["disk_kb"] = found["store"][-1].value["bytes"] / sizes[-1] / 1e3
    for ours, floor in (("verification", "strict_json"), ("findings", "pandas")):
        alone[f"{ours}_ratio"] = found[ours][-1].cpu_s / found[floor][-1].cpu_s
    seconds = time.perf_counter() - begun
    return Fact(
        bench="slopes",
        n=n,
        command="python -m scripts.bench.slopes",
        pairs=1,
        seconds=seconds,
        measures={},
        alone=alone,
    )


BENCH = Bench(
    name="slopes",
    what="growth of cost: slope in log-log from 10^3 to 10^6 attempts",
    floor="-",
    goal="1.0 (linear)",
    n={"smallest": 1000, "largest": 1_000_000},
    tiny={"smallest": 10, "largest": 1000},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
