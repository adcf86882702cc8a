"""A canary of Gemma's whole vocabulary, streamed, against `curl -N` of the same request; and a plain loop between.

    python -m scripts.bench.full_vocabulary [--pairs 5] [--steps 4] [--tiny 0]

Ours is what a run does with it: client, event reader, rows as float32, digests, store. `loop_s` is a loop of httpx
and msgspec that keeps nothing; `share` is the processor time of ours in the wall time, `peak_mb` its memory.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec

from audit.client import Address, Client
from audit.plan import Plan
from audit.replies import keep_reply
from audit.store import RunWriter
from audit.trial import Trial
from audit.wire import Completion, EventSink
from scripts.bench.measure import Bench, Fact, Spent, command, in_child, paired, run_one
from scripts.bench.serving import bodies, real

TIMEOUT_S = 600.0
MODELS = (("gemma3-270m-q4_k_m", 262_144), ("tiny-llama-f32", 512))


def _body(steps: int, vocabulary: int) -> bytes:
    return bodies(1, steps=steps, vocabulary=vocabulary, canary=True)[0]


def loop(url: str, steps: int, vocabulary: int) -> Callable[[], None]:
    """Read every event with a typed decoder and keep nothing."""
    body, decoder = _body(steps, vocabulary), msgspec.json.Decoder(Completion)

    def work() -> None:
        with httpx.Client(trust_env=False, verify=False, timeout=TIMEOUT_S) as client:  # noqa: S501 - plain HTTP, and a TLS context would cost
            headers = {"Content-Type": "application/json"}
            with client.stream("POST", url + "/completion", content=body, headers=headers) as reply:
                for line in reply.iter_lines():
                    if line.startswith("data: "):
                        decoder.decode(line[6:])

    return work


def ours(url: str, steps: int, vocabulary: int) -> Callable[[], dict[str, float]]:
    """Ask, read, digest and store as a run does."""
    plan = Plan.parse(
        {
            "name": "canary",
            "timeout_s": TIMEOUT_S,
            "canary": {"prompt": "a"},
            "prompts": {"a": {"ids": [1]}},
            "conditions": [{"name": "repeat_greedy", "prompts": ["a"]}],
        }
    )
    trial = Trial(trial="canary/first", condition="canary", prompt="a", steps=steps, n_probs="vocabulary")

    async def ask(folder: Path) -> None:
        writer, sink = RunWriter(folder), EventSink(vocabulary=vocabulary)
        async with Client(Address(label="s", url=url), timeout_s=TIMEOUT_S) as client:
            await client.post("/completion", _body(steps, vocabulary), sink=sink)
        keep_reply(sink.finish(), trial, [], plan=plan, writer=writer)
        writer.close()

    def work() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as scratch:
            begun, used = time.perf_counter(), time.process_time()
            asyncio.run(ask(Path(scratch) / "run"))
            return {"share": (time.process_time() - used) / (time.perf_counter() - begun)}

    return work


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    model, vocabulary = MODELS[n["tiny"]]
    given = {"steps": n["steps"], "vocabulary": vocabulary}
    loops: list[Spent] = []
    with real(model, slots=1, threads=n["tiny"]) as url, tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "body"
        path.write_bytes(_body(**given))
        words = ["curl", "-s", "-N", "-o", "/dev/null", "-H", "Content-Type: application/json"]
        words += ["--data-binary", f"@{path}", url + "/completion"]

        def both() -> Spent:
            loops.append(in_child("full_vocabulary", "loop", url=url, **given))
            spent = in_child("full_vocabulary", "ours", url=url, **given)
            return Spent(
                wall_s=spent.wall_s,
                cpu_s=spent.cpu_s,
                peak_mb=spent.peak_mb,
                value={**spent.value, "loop_s": loops[-1].wall_s},
            )

        return paired(
            "full_vocabulary",
            lambda: command(words),
            both,
            pairs=pairs,
            n=n,
            measures=("wall_s",),
            alone=("share", "peak_mb", "loop_s"),
        )


BENCH = Bench(
    name="full_vocabulary",
    what="full vocabulary (262,144), real server, streamed",
    floor="`curl -N` of the same request to /dev/null",
    goal="wall <= 1.05 x; harness CPU <= 25 % of the wall; under 200 MB",
    n={"steps": 4, "tiny": 0},
    tiny={"steps": 2, "tiny": 1},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
