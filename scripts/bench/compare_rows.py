"""Comparing rows, of an identity record and of an accuracy study, against numpy reading the same arrays once.

    python -m scripts.bench.compare_rows [--pairs 5] [--rows 64]

Speeds are values a second; of identity both ends are measured, sides that are equal and sides that differ everywhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from audit.accuracy.metrics import measure as measure_rows
from audit.identity.compare import Part, compare_rows
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one

VOCABULARY = 262_144
MODES = ("equal", "differing", "accuracy")


def _sides(rows: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return a side, its copy, and one in which every value moved by one float32."""
    one = -np.random.default_rng(1).exponential(10.0, (rows, VOCABULARY)).astype(np.float32)
    return one, one.copy(), np.nextafter(one, np.float32(0))


def _read(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    one.max()
    other.max()


def _speeds(works: Mapping[str, Callable[[], object]], values: int) -> dict[str, float]:
    """Return values a second of each work, both sides counted."""
    speeds = {}
    for name, work in works.items():
        begun = time.perf_counter()
        work()
        speeds[name] = 2 * values / (time.perf_counter() - begun)
    return speeds


def floor(rows: int) -> Callable[[], dict[str, float]]:
    """Read both sides once: the largest value of each."""
    one, same, other = _sides(rows)
    pairs = {"equal": (one, same), "differing": (one, other), "accuracy": (one, other)}
    return lambda: _speeds({name: partial(_read, *both) for name, both in pairs.items()}, one.size)


def ours(rows: int) -> Callable[[], dict[str, float]]:
    """Compare."""
    one, same, other = _sides(rows)
    works: dict[str, Callable[[], object]] = {
        "equal": lambda: compare_rows([Part("p", one, same)]),
        "differing": lambda: compare_rows([Part("p", one, other)]),
        "accuracy": lambda: measure_rows(other, one, slot=0),
    }
    return lambda: _speeds(works, one.size)


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    halves = [lambda role=role: in_child("compare_rows", role, **n) for role in ("floor", "ours")]
    return paired("compare_rows", *halves, pairs=pairs, n=n, measures=MODES)


BENCH = Bench(
    name="compare_rows",
    what="row comparison (identity: equal, differing; accuracy), values a second",
    floor="numpy reading the same arrays once",
    goal=">= 0.5 x of its speed",
    n={"rows": 64},
    tiny={"rows": 2},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
