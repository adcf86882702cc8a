"""How far apart the members of a wave arrive at the server, against `curl -Z`.

    python -m scripts.bench.arrival [--pairs 5] [--waves 10]

Ours are waves of 8 and of 64 as a run sends them: one warm connection a member, the last byte of each request released
from one barrier. The server notes when each request has arrived as a whole. `sent_*` is the spread as the history of a
run records it, from `sent_ns` of the members; `arrival_*` is the server's. Both in milliseconds, last minus first.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from audit.client import Address, Client
from audit.schedule import wave
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one
from scripts.bench.serving import arrivals, bodies, noting

LEVELS = (8, 64)
TIMEOUT_S = 60.0


def _spread_ms(times_ns: list[int]) -> float:
    return (max(times_ns) - min(times_ns)) / 1e6


def floor(url: str, waves: int) -> Callable[[], dict[str, float]]:
    """Let curl send them in parallel, at once."""

    def once(level: int) -> float:
        with tempfile.TemporaryDirectory() as scratch:
            words = ["curl", "-s", "-Z", "--parallel-immediate", "--parallel-max", str(level)]
            for slot, body in enumerate(bodies(level, steps=1)):
                path = Path(scratch) / f"{slot}"
                path.write_bytes(body)
                words += ["--next"] if slot else []
                words += ["-s", "-o", "/dev/null", "-H", "Content-Type: application/json"]
                words += ["--data-binary", f"@{path}", url + "/completion"]
            arrivals(url)
            subprocess.run(words, check=True)
            return _spread_ms(arrivals(url))

    return lambda: {f"arrival_{level}_ms": statistics.median(once(level) for _ in range(waves)) for level in LEVELS}


def ours(url: str, waves: int) -> Callable[[], dict[str, float]]:
    """Send them as a run does."""

    async def once(level: int) -> tuple[float, float]:
        clients = [Client(Address(label="s", url=url), timeout_s=TIMEOUT_S) for _ in range(level)]
        await asyncio.gather(*(client.get("/health") for client in clients))
        arrivals(url)
        jobs = [
            lambda hold, client=client, body=body: client.post("/completion", body, hold=hold)
            for client, body in zip(clients, bodies(level, steps=1), strict=True)
        ]
        sent = await wave(jobs, delays_ns=[0] * level)
        for client in clients:
            await client.__aexit__(None, None, None)
        return _spread_ms([one.sent_ns for one in sent]), _spread_ms(arrivals(url))

    def work() -> dict[str, float]:
        found = {}
        for level in LEVELS:
            pairs = [asyncio.run(once(level)) for _ in range(waves)]
            found[f"sent_{level}_ms"] = statistics.median(sent for sent, _ in pairs)
            found[f"arrival_{level}_ms"] = statistics.median(arrived for _, arrived in pairs)
        return found

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    with noting() as url:
        halves = [lambda role=role: in_child("arrival", role, url=url, **n) for role in ("floor", "ours")]
        return paired(
            "arrival",
            *halves,
            pairs=pairs,
            n=n,
            measures=[f"arrival_{level}_ms" for level in LEVELS],
            alone=[f"sent_{level}_ms" for level in LEVELS],
        )


BENCH = Bench(
    name="arrival",
    what="arrival spread of a wave at the server",
    floor="`curl -Z`",
    goal="<= 1 ms at 8, <= 5 ms at 64, recorded in every wave",
    n={"waves": 10},
    tiny={"waves": 1},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
