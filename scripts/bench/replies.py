"""Replies through client, decoding, canonical bytes, digests and store, 64 at a time, against a bare loop.

    python -m scripts.bench.replies [--pairs 5] [--members 64] [--rounds 40]

Both send the same requests to the same server in another process, one connection a member, one request after the other
on each; the floor throws replies away. The server answers at once, so that its work is small against the clients'.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import httpx

from audit.client import Address, Client, Exchange
from audit.plan import Plan
from audit.record import Complete
from audit.replies import keep_reply
from audit.store import RunWriter
from audit.trial import Trial
from audit.wire import read_whole
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one
from scripts.bench.serving import bodies, noting

TIMEOUT_S = 60.0


def _rate(work: Callable[[], object], requests: int) -> dict[str, float]:
    begun = time.perf_counter()
    work()
    return {"requests_per_s": requests / (time.perf_counter() - begun)}


def floor(url: str, members: int, rounds: int) -> Callable[[], dict[str, float]]:
    """Send and throw away, one httpx client a member."""

    async def member(body: bytes) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=TIMEOUT_S) as client:  # noqa: S501 - plain HTTP
            for _ in range(rounds):
                await client.post(url + "/completion", content=body, headers={"Content-Type": "application/json"})

    async def everyone() -> None:
        await asyncio.gather(*map(member, bodies(members, steps=1)))

    return lambda: _rate(lambda: asyncio.run(everyone()), members * rounds)


def ours(url: str, members: int, rounds: int) -> Callable[[], dict[str, float]]:
    """Send, read, store and write down, as a run does with each reply."""
    plan = Plan.parse(
        {
            "name": "replies",
            "canary": {"prompt": "a"},
            "prompts": {"a": {"ids": [1]}},
            "conditions": [{"name": "repeat_greedy", "prompts": ["a"]}],
        }
    )

    def keep(writer: RunWriter, trial: Trial, exchange: Exchange) -> None:
        reply = keep_reply(read_whole(exchange.body), trial, [], plan=plan, writer=writer)
        since = writer.since_anchor
        writer.append(
            Complete(
                server="s",
                trial=trial.trial,
                unit=trial.trial,
                attempt=0,
                part=0,
                sent_ns=since(exchange.sent_ns),
                first_byte_ns=since(exchange.first_byte_ns or 0),
                last_byte_ns=since(exchange.last_byte_ns or 0),
                status=exchange.status,
                failure=None,
                reply=reply,
            )
        )

    async def member(writer: RunWriter, slot: int, body: bytes) -> None:
        trial = Trial(trial=f"replies/{slot}", condition="replies", prompt="a", steps=1, slot=slot)
        async with Client(Address(label="s", url=url), timeout_s=TIMEOUT_S) as client:
            for _ in range(rounds):
                keep(writer, trial, await client.post("/completion", body))

    async def everyone(folder: Path) -> None:
        writer = RunWriter(folder)
        await asyncio.gather(*(member(writer, slot, body) for slot, body in enumerate(bodies(members, steps=1))))
        writer.close()

    def work() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as scratch, patch("os.fsync"):
            return _rate(lambda: asyncio.run(everyone(Path(scratch) / "run")), members * rounds)

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    with noting() as url:
        halves = [lambda role=role: in_child("replies", role, url=url, **n) for role in ("floor", "ours")]
        return paired("replies", *halves, pairs=pairs, n=n, measures=("requests_per_s", "cpu_s"))


BENCH = Bench(
    name="replies",
    what="replies through client, decode, canonical bytes, digests, store, concurrency 64",
    floor="a bare loop on the same endpoint, one httpx client a member",
    goal=">= 0.4 x of its requests/s",
    n={"members": 64, "rounds": 40},
    tiny={"members": 4, "rounds": 2},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
