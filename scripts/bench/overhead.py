"""What a solo request costs beyond the server's own work, against http.client: wall minus `prompt_ms + predicted_ms`.

python -m scripts.bench.overhead [--pairs 5] [--requests 20] [--tiny 0]
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from audit.client import Address, Client
from scripts.bench.measure import Bench, Fact, in_child, paired, run_one
from scripts.bench.serving import bodies, real

STEPS = 16
TIMEOUT_S = 120.0
MODELS = ("smollm2-135m-q4_1", "tiny-llama-f32")


def _overhead_ms(begun: float, body: bytes) -> float:
    timings = json.loads(body)["timings"]
    spent_ms = 1000 * (time.perf_counter() - begun)
    return spent_ms - float(timings["prompt_ms"]) - float(timings["predicted_ms"])


def floor(url: str, requests: int) -> Callable[[], dict[str, float]]:
    """Ask with the standard library's client, on one connection."""
    body = bodies(1, steps=STEPS)[0]

    def work() -> dict[str, float]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        found = []
        for _ in range(requests):
            begun = time.perf_counter()
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            found.append(_overhead_ms(begun, connection.getresponse().read()))
        connection.close()
        return {"overhead_ms": statistics.median(found)}

    return work


def ours(url: str, requests: int) -> Callable[[], dict[str, float]]:
    """Ask with the client of a run."""
    body = bodies(1, steps=STEPS)[0]

    async def ask() -> list[float]:
        found = []
        async with Client(Address(label="s", url=url), timeout_s=TIMEOUT_S) as client:
            for _ in range(requests):
                begun = time.perf_counter()
                found.append(_overhead_ms(begun, (await client.post("/completion", body)).body))
        return found

    return lambda: {"overhead_ms": statistics.median(asyncio.run(ask()))}


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    given = {"requests": n["requests"]}
    with real(MODELS[n["tiny"]], slots=1, threads=n["tiny"]) as url:
        halves = [lambda role=role: in_child("overhead", role, url=url, **given) for role in ("floor", "ours")]
        return paired("overhead", *halves, pairs=pairs, n=n, measures=("overhead_ms",))


BENCH = Bench(
    name="overhead",
    what="overhead of a solo request: wall minus the server's own prompt_ms + predicted_ms",
    floor="http.client",
    goal="<= 1.5 x",
    n={"requests": 20, "tiny": 0},
    tiny={"requests": 2, "tiny": 1},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
