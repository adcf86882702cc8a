"""The full check of stored text streams, against `json.loads` of the same lines.

    python -m scripts.bench.check_streams [--pairs 5] [--streams 200]

Ours is what the audit does with a stream that it reads: every type, canonical form to the byte, holes, both digests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import numpy as np

from audit.stream import Step, Stream
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one

STEPS, N_PROBS = 64, 10


def _streams(count: int) -> list[bytes]:
    """Return random streams of 64 steps with 10 logprobs each."""
    random = np.random.default_rng(1)
    made = []
    for _ in range(count):
        values = -np.sort(random.exponential(3.0, (STEPS, N_PROBS)).astype(np.float32), axis=1)
        ids = random.integers(0, 262_144, (STEPS, N_PROBS))
        tops = [
            tuple((int(one), float(nats)) for one, nats in zip(ids[step], values[step], strict=True))
            for step in range(STEPS)
        ]
        made.append(Stream(N_PROBS, tuple(Step(top[0][0], top[0][1], top) for top in tops)).to_bytes())
    return made


def floor(streams: int) -> Callable[[], None]:
    """Read every line."""
    made = _streams(streams)

    def work() -> None:
        for data in made:
            for line in data.splitlines():
                json.loads(line)

    return work


def ours(streams: int) -> Callable[[], None]:
    """Check every stream."""
    made = _streams(streams)

    def work() -> None:
        for data in made:
            stream = Stream.from_bytes(data)
            _ = stream.holes, stream.token_digest

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    halves = [lambda role=role: in_child("check_streams", role, **n) for role in ("floor", "ours")]
    return paired("check_streams", *halves, pairs=pairs, n=n)


BENCH = Bench(
    name="check_streams",
    what="full check of text streams",
    floor="`json.loads` of the same lines",
    goal="<= 1.5 x",
    n={"streams": 1000},
    tiny={"streams": 4},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
