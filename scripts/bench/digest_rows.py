"""Re-digesting rows, against hashlib over the same bytes.

python -m scripts.bench.digest_rows [--pairs 5] [--megabytes 1000]
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import numpy as np

from audit.rows import Rows
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one

VOCABULARY = 262_144
ROWS = 16
CHUNK_MB = 4 * VOCABULARY * ROWS / 1e6


def _chunks(megabytes: int) -> tuple[bytes, int]:
    """Return 16 rows of Gemma's vocabulary, and how often they are digested."""
    values = -np.random.default_rng(1).random((ROWS, VOCABULARY), dtype=np.float32)
    return values.tobytes(), max(1, round(megabytes / CHUNK_MB))


def floor(megabytes: int) -> Callable[[], None]:
    """Hash each row."""
    data, times = _chunks(megabytes)
    size = 4 * VOCABULARY

    def work() -> None:
        view = memoryview(data)
        for _ in range(times):
            for start in range(0, len(data), size):
                hashlib.sha256(view[start : start + size]).hexdigest()

    return work


def ours(megabytes: int) -> Callable[[], None]:
    """Read rows back from bytes and take their digests."""
    data, times = _chunks(megabytes)

    def work() -> None:
        for _ in range(times):
            _ = Rows.from_bytes(data, (ROWS, VOCABULARY)).digests

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    halves = [lambda role=role: in_child("digest_rows", role, **n) for role in ("floor", "ours")]
    return paired("digest_rows", *halves, pairs=pairs, n=n)


BENCH = Bench(
    name="digest_rows",
    what="re-digesting 1 GB of rows",
    floor="hashlib over the same bytes",
    goal="<= 1.5 x",
    n={"megabytes": 1000},
    tiny={"megabytes": 16},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
