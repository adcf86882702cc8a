"""Servers to measure against: a real one on this machine, the look-alike in another process, one that notes arrivals.

In: what is wanted. Out: context managers that give an address. `python -m scripts.bench.serving` is the process of the
server that notes arrivals: it answers every request with the same short reply, and `/arrivals` with when each came.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from audit.local.models import resolve_model
from audit.local.owned import LaunchSettings, start_embedded
from audit.plan import Plan
from audit.request import request_body
from audit.trial import Trial
from scripts.bench.measure import REPOSITORY

__all__ = ["ANSWER", "arrivals", "bodies", "child", "fake", "noting", "real"]

# A completion as short as one can be, for what must not be the server's cost.
ANSWER = json.dumps(
    {
        "completion_probabilities": [
            {"id": 7, "logprob": -0.5, "top_logprobs": [{"id": 7 + k, "logprob": -0.5 * (1 + k)} for k in range(10)]}
        ],
        "id_slot": 0,
        "prompt": "Once",
        "stop": True,
        "timings": {"cache_n": 0, "predicted_ms": 0.5, "predicted_n": 1, "prompt_ms": 0.5, "prompt_n": 3},
        "tokens": [7],
        "tokens_evaluated": 3,
        "tokens_predicted": 1,
    }
).encode()


@contextmanager
def child(*words: str) -> Iterator[str]:
    """Start a program that prints `NAME=ADDRESS`, and give the address."""
    line = [sys.executable, "-m", *words]
    with subprocess.Popen(line, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as one:
        try:
            yield (one.stdout.readline() if one.stdout else "").strip().partition("=")[2]
        finally:
            one.terminate()


@contextmanager
def fake(slots: int) -> Iterator[str]:
    """Serve the look-alike from another process."""
    with child("audit", "fake", "--slots", str(slots)) as url:
        yield url


@contextmanager
def noting() -> Iterator[str]:
    """Serve what notes when requests arrive."""
    with child("scripts.bench.serving") as url:
        yield url


@contextmanager
def real(model: str, *, slots: int, ctx: int = 512, threads: int = 0) -> Iterator[str]:
    """Serve a model with the embedded build of llama.cpp; `threads` 0 is one for each core."""
    settings = LaunchSettings(slots=slots, ctx_per_slot=ctx, threads=threads or len(os.sched_getaffinity(0)))
    with start_embedded(resolve_model(model), settings) as server:
        yield server.url


def arrivals(url: str) -> list[int]:
    """Return when the requests since the last time came, in nanoseconds, and forget them."""
    with urllib.request.urlopen(url + "/arrivals") as reply:  # noqa: S310 - our own server, on loopback
        found: list[int] = json.load(reply)
    return found


def bodies(count: int, *, steps: int, n_probs: int = 10, vocabulary: int = 512, canary: bool = False) -> list[bytes]:
    """Return the exact requests that an audit would send: one a slot, or a canary."""
    plan = Plan.parse(
        {
            "name": "bench",
            "steps": steps,
            "n_probs": n_probs,
            "canary": {"prompt": "a", "steps": min(steps, 64)},
            "prompts": {"a": {"ids": [5, 6, 7, 8]}},
            "conditions": [{"name": "repeat_greedy", "prompts": ["a"]}],
        }
    )
    kind = {"streamed": True, "n_probs": "vocabulary", "role": "canary"} if canary else {}
    trials = [
        Trial(trial=f"t{slot}", condition="bench", prompt="a", steps=steps, slot=slot, **kind)  # type: ignore[arg-type]
        for slot in range(count)
    ]
    return [request_body(plan, one, registered="", prompt=[5, 6, 7, 8], vocabulary=vocabulary) for one in trials]


async def _note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, came: list[int]) -> None:
    """Answer the requests of one connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
            )
            await reader.readexactly(length)
            answer = ANSWER
            if head.startswith(b"GET /arrivals"):
                answer = json.dumps(came).encode()
                came.clear()
            elif head.startswith(b"POST"):
                came.append(time.monotonic_ns())
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(kind + str(len(answer)).encode() + b"\r\n\r\n" + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _serve() -> None:
    came: list[int] = []
    server = await asyncio.start_server(lambda r, w: _note(r, w, came), "127.0.0.1", 0, backlog=1024)
    print(f"noting=http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
