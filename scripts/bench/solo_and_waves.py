"""Solo trials and waves of a whole run on a real server, against curl sending the same request bodies.

    python -m scripts.bench.solo_and_waves [--pairs 5] [--solo 10] [--waves 3] [--level 8] [--tiny 0]

Ours is a run by the command line's own code: snapshots, history and store included. Counted is, unit by unit, the time
from the end of the unit before to the last snapshot of the unit. Of curl only `time_total` counts, not the start of its
process: a solo request's own, the longest of a wave.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from audit.capture import capture
from audit.client import Address
from audit.order import Order
from audit.plan import Plan
from audit.record import Invoke, Snapshot
from audit.sitting import Target
from audit.store import Run
from audit.stream import digest
from scripts.bench.measure import Bench, Fact, Spent, in_child, paired, run_one
from scripts.bench.serving import real

MODELS = ("gemma3-270m-q4_k_m", "tiny-llama-f32")
STEPS = (32, 8)
FAMILIES = ("repeat_greedy/", "concurrent_greedy_")


def plan_of(solo: int, waves: int, level: int, tiny: int) -> Plan:
    """Return the plan of both sides."""
    return Plan.parse(
        {
            "name": "solo_and_waves",
            "steps": STEPS[tiny],
            "canary": {"prompt": "a", "steps": 1},
            "prompts": {"a": {"text": "Once upon a time there was a"}},
            "conditions": [
                {"name": "repeat_greedy", "prompts": ["a"], "count": solo},
                {"name": "concurrent_greedy", "prompts": ["a"], "levels": [level], "count": waves},
            ],
        }
    )


def run(url: str, folder: str, sizes: dict[str, int]) -> Callable[[], dict[str, float]]:
    """Run the plan, and return the seconds of its solo units and of its waves."""
    plan = plan_of(**sizes)
    order = Order(plan=plan, registered=digest(plan.to_bytes()))

    def work() -> dict[str, float]:
        target = Target(address=Address(label="s", url=url))
        asyncio.run(capture(order, [target], Path(folder), report=lambda _: None))
        spent: dict[str, float] = defaultdict(float)
        begun_ns = last_ns = 0
        for line in Run.open(Path(folder)).lines():
            if isinstance(line, Snapshot) and line.unit is not None and line.unit.startswith(FAMILIES):
                begun_ns = last_ns if line.when == "before" else begun_ns
                if line.when == "after":
                    spent["solo_s" if line.unit.startswith(FAMILIES[0]) else "waves_s"] += (line.at_ns - begun_ns) / 1e9
            last_ns = line.at_ns
        return dict(spent)

    return work


def curl(url: str, folder: str) -> Callable[[], dict[str, float]]:
    """Send the bodies of that run again, unit by unit."""
    units: dict[str, list[Path]] = defaultdict(list)
    for line in Run.open(Path(folder)).lines():
        if isinstance(line, Invoke) and line.unit.startswith(FAMILIES):
            units[line.unit].append(Path(folder) / "facts" / f"{line.request[7:]}.json")

    def send(paths: list[Path]) -> float:
        words = ["curl", "-s", "-Z", "--parallel-immediate", "--parallel-max", str(len(paths))]
        for place, path in enumerate(paths):
            words += ["--next"] if place else []
            words += ["-s", "-o", "/dev/null", "-w", "%{time_total}\n", "-H", "Content-Type: application/json"]
            words += ["--data-binary", f"@{path}", url + "/completion"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        return max(map(float, done.stdout.split()))

    def work() -> dict[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for unit, paths in units.items():
            spent["solo_s" if unit.startswith(FAMILIES[0]) else "waves_s"] += send(paths)
        return dict(spent)

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure; the first run, which only gives curl its bodies, is not counted."""
    with real(MODELS[n["tiny"]], slots=n["level"], threads=n["tiny"]) as url, tempfile.TemporaryDirectory() as scratch:
        folders = iter(range(1_000_000))

        def ours() -> Spent:
            folder = f"{scratch}/{next(folders)}"
            return in_child("solo_and_waves", "run", url=url, folder=folder, sizes=n)

        ours()
        return paired(
            "solo_and_waves",
            lambda: in_child("solo_and_waves", "curl", url=url, folder=f"{scratch}/0"),
            ours,
            pairs=pairs,
            n=n,
            measures=("solo_s", "waves_s"),
            alone=("cpu_s", "peak_mb"),
        )


BENCH = Bench(
    name="solo_and_waves",
    what="solo and waves, 10 logprobs, real server",
    floor="the same request bodies sent by curl, replies thrown away",
    goal="wall <= 1.03 x, or within the measured spread of the floor itself",
    n={"solo": 10, "waves": 3, "level": 8, "tiny": 0},
    tiny={"solo": 1, "waves": 1, "level": 2, "tiny": 1},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
