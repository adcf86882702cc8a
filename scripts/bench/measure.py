"""Pairs: a floor and what is compared with it, in turns and in processes of their own, and what follows from them.

In: two functions that each do the same work once. Out: a `Fact` of measured numbers, with the median of the ratios and
their spread. A pair's two halves run in the same minute, and which goes first alternates, so that a machine that gets
slower meanwhile favours neither. Nothing here knows what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["REPOSITORY", "Bench", "Fact", "Spent", "command", "in_child", "paired", "run_one", "single"]

REPOSITORY = Path(__file__).resolve().parents[2]
PAIRS = 5


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one half of a pair took; `value` is what the bench measures besides, by name."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    value: dict[str, float] = field(default_factory=dict)

    def of(self, measure: str) -> float:
        """Return a measure by its name."""
        return float(self.value[measure]) if measure in self.value else float(asdict(self)[measure])


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What a bench found: numbers only.

    `measures` holds for each measure the medians of both sides, and median, least and greatest of the pairs' ratios;
    `alone` are medians of what has no floor.
    """

    bench: str
    n: dict[str, int]
    command: str
    pairs: int
    seconds: float
    measures: dict[str, dict[str, float]]
    alone: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One row of the table: what is measured against what, what is hoped for, and how it is measured.

    `measure` gets the number of pairs and the sizes; `n` are the sizes of a full measurement, `tiny` those of a test.
    """

    name: str
    what: str
    floor: str
    goal: str
    n: dict[str, int]
    tiny: dict[str, int]
    measure: Callable[[int, dict[str, int]], Fact]


def command(words: Sequence[str], *, value: Mapping[str, float] | None = None) -> Spent:
    """Run a command to its end, its output thrown away.

    Raises: RuntimeError, with what it said, where it fails.
    """
    with tempfile.TemporaryFile() as said:
        begun = time.perf_counter()
        child = subprocess.Popen(list(words), stdout=subprocess.DEVNULL, stderr=said, cwd=REPOSITORY)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise RuntimeError(f"{words} ended with {child.returncode}: {said.read()[-2000:].decode(errors='replace')}")
    return Spent(
        wall_s=wall_s, cpu_s=used.ru_utime + used.ru_stime, peak_mb=used.ru_maxrss / 1000, value=dict(value or {})
    )


def in_child(module: str, role: str, **arguments: object) -> Spent:
    """Let `role` of a bench's module do its work in a process of its own, which does not count its preparations.

    Raises: RuntimeError, with what it said, where it fails.
    """
    words = [sys.executable, "-m", "scripts.bench.child", module, role, json.dumps(arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if done.returncode:
        raise RuntimeError(f"{module}.{role} ended with {done.returncode}: {done.stderr[-2000:]}")
    return Spent(**json.loads(done.stdout.splitlines()[-1]))


def paired(
    name: str,
    floor: Callable[[], Spent],
    ours: Callable[[], Spent],
    *,
    pairs: int,
    n: dict[str, int],
    measures: Sequence[str] = ("wall_s", "cpu_s"),
    alone: Sequence[str] = ("peak_mb",),
) -> Fact:
    """Measure pairs, and return what follows from them.

    Args:
        name: the bench.
        floor: does the work as cheaply as anything could.
        ours: does it as this project does.
        pairs: how many, of which odd ones begin with ours.
        n: the sizes, for the record.
        measures: what of both is compared.
        alone: what of ours is shown without a floor.
    """
    begun = time.perf_counter()
    found: list[tuple[Spent, Spent]] = []
    for number in range(pairs):
        halves = {half: work() for half, work in [("floor", floor), ("ours", ours)][:: -1 if number % 2 else 1]}
        found.append((halves["floor"], halves["ours"]))
    compared = {}
    for measure in measures:
        values = [(one.of(measure), other.of(measure)) for one, other in found]
        ratios = [other / one for one, other in values if one > 0] or [float("nan")]
        compared[measure] = {
            "floor": statistics.median(one for one, _ in values),
            "floor_low": min(one for one, _ in values),
            "floor_high": max(one for one, _ in values),
            "ours": statistics.median(other for _, other in values),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
        }
    return Fact(
        bench=name,
        n=n,
        command=f"python -m scripts.bench.{name}",
        pairs=pairs,
        seconds=time.perf_counter() - begun,
        measures=compared,
        alone={one: statistics.median(ours_.of(one) for _, ours_ in found) for one in alone},
    )


def single(name: str, ours: Callable[[], Spent], *, pairs: int, n: dict[str, int], alone: Sequence[str]) -> Fact:
    """Measure what has no floor, as often as there would be pairs."""
    begun = time.perf_counter()
    found = [ours() for _ in range(pairs)]
    shown = {one: statistics.median(spent.of(one) for spent in found) for one in alone}
    return Fact(
        bench=name,
        n=n,
        command=f"python -m scripts.bench.{name}",
        pairs=pairs,
        seconds=time.perf_counter() - begun,
        measures={},
        alone=shown,
    )


def run_one(bench: Bench, words: Sequence[str] | None = None) -> int:
    """Be the command line of one bench: print its fact as JSON."""
    parser = argparse.ArgumentParser(description=f"{bench.what}, against: {bench.floor}. Hoped for: {bench.goal}.")
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"how many pairs (default {PAIRS})")
    for size, value in bench.n.items():
        parser.add_argument(f"--{size}", type=int, default=value, help=f"default {value}")
    options = vars(parser.parse_args(words))
    print(json.dumps(asdict(bench.measure(options.pop("pairs"), options)), indent=1))
    return 0
