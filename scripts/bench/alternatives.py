"""Side by side with what one would use instead, on the same server with the same prompt, steps and settings.

    python -m scripts.bench.alternatives [--requests 8] [--steps 64] [--tiny] [--json]

Out: for each model and tool the wall time, how many requests were sent, how many bytes are kept, and whether by the
tool's own rule concurrency moved anything. The loops are written here after their sources, which need an engine of
their own to run: what they send and what they compare is theirs, the server is ours. Not run, and why: guidellm
measures latency and compares no outputs, and installs torch and transformers to do it; metria 0.1.2 starts a pinned
vLLM for its serving profile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from audit.analyse import findings
from audit.analyse.cells import JUDGED
from audit.capture import capture
from audit.client import Address
from audit.order import Order
from audit.plan import Plan
from audit.request import NEUTRAL
from audit.sitting import Target
from audit.store import Run
from audit.stream import digest
from scripts.bench.serving import real

__all__ = ["TOOLS", "Tool", "main", "measure_models"]

JSON = dict[str, Any]
PROMPT = "Once upon a time there was a"
TIMEOUT_S = 600.0
MODELS = {"gemma3-270m-q4_k_m": 0, "smollm2-135m-q4_1": 0}


@dataclass(frozen=True)
class Asked:
    """What every tool is given: the server, the largest batch, and the length of a reply."""

    url: str
    requests: int
    steps: int


@dataclass(frozen=True)
class Noticed:
    """What a tool did and found; `kept` are the bytes that remain when it has ended, `said` is by its own rule."""

    requests: int
    kept: int
    said: str


@dataclass(frozen=True)
class Tool:
    """One tool: its name, what it compares, where that is written, and the loop."""

    name: str
    compares: str
    source: str
    run: Callable[[Asked], Noticed]


def _word(*, moved: bool) -> str:
    return "moved" if moved else "nothing"


def _body(asked: Asked, prompt: str) -> bytes:
    fields = {"prompt": prompt, "n_predict": asked.steps, "n_probs": 10, "temperature": 0.0, "seed": 42}
    return json.dumps({**NEUTRAL, **fields, "top_k": 0, "cache_prompt": False, "stream": False}).encode()


async def _batch(asked: Asked, prompts: Sequence[str]) -> list[JSON]:
    """Send prompts at once, one connection each, and return the replies in order."""

    async def one(prompt: str) -> JSON:
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
            headers = {"Content-Type": "application/json"}
            reply = await client.post(asked.url + "/completion", content=_body(asked, prompt), headers=headers)
            found: JSON = reply.raise_for_status().json()
            return found

    return list(await asyncio.gather(*map(one, prompts)))


def _texts_of_growing_batches(asked: Asked) -> Noticed:
    """Send the prompt in batches of 1, 2, ... and count distinct texts of the batches' first replies."""
    texts = [asyncio.run(_batch(asked, [PROMPT] * size))[0]["content"] for size in range(1, asked.requests + 1)]
    return Noticed(sum(range(1, asked.requests + 1)), 0, _word(moved=len(set(texts)) > 1))


def _needle(asked: Asked) -> Noticed:
    """Send the prompt alone, then at a random place among random prompts, and compare texts."""
    draw = random.Random(1)  # noqa: S311 - places and filler, no secret
    alone = asyncio.run(_batch(asked, [PROMPT]))[0]["content"]
    sent, moved = 1, False
    for _ in range(asked.requests):
        size = draw.randint(2, asked.requests)
        prompts = [" ".join(draw.choices(["alpha", "bravo", "charlie", "delta"], k=20)) for _ in range(size)]
        place = draw.randrange(size)
        prompts[place] = PROMPT
        moved |= asyncio.run(_batch(asked, prompts))[place]["content"] != alone
        sent += size
    return Noticed(sent, 0, _word(moved=moved))


def _chosen(reply: JSON) -> list[tuple[int, float]]:
    return [(entry["id"], entry["logprob"]) for entry in reply["completion_probabilities"]]


def _chosen_logprobs(asked: Asked) -> Noticed:
    """Send the prompt alone and as one batch, and compare the logprobs of the chosen tokens to the bit."""
    alone = _chosen(asyncio.run(_batch(asked, [PROMPT]))[0])
    together = asyncio.run(_batch(asked, [PROMPT] * asked.requests))
    return Noticed(1 + asked.requests, 0, _word(moved=any(_chosen(reply) != alone for reply in together)))


def _audit(asked: Asked) -> Noticed:
    """Run solo repeats and waves as a plan, seal the record, and judge it."""
    plan = Plan.parse(
        {
            "name": "alternatives",
            "steps": asked.steps,
            "timeout_s": TIMEOUT_S,
            "canary": {"prompt": "a", "steps": 1},
            "prompts": {"a": {"text": PROMPT}},
            "conditions": [
                {"name": "repeat_greedy", "prompts": ["a"], "count": 2},
                {"name": "concurrent_greedy", "prompts": ["a"], "levels": [asked.requests], "count": 2},
            ],
        }
    )
    order = Order(plan=plan, registered=digest(plan.to_bytes()))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        target = Target(address=Address(label="s", url=asked.url))
        asyncio.run(capture(order, [target], folder, report=lambda _: None))
        cells = findings(Run.open(folder))["cells"]
        kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    wave = next(cell for cell in cells if cell["condition"].startswith("concurrent_"))
    judged = wave["verdict"] in JUDGED
    said = _word(moved=wave["by_wave"]["divergent"] > 0) if judged else f"{wave['verdict']}: it makes no claim"
    return Noticed(5 + 2 * asked.requests, kept, said)


TOOLS = (
    Tool("determinism", "every logprob of every step, with proof that the requests overlapped", "this project", _audit),
    Tool(
        "SGLang's loop",
        "distinct texts of batches of growing size",
        "sgl-project/sglang, python/sglang/test/test_deterministic.py, --test-mode single",
        _texts_of_growing_batches,
    ),
    Tool(
        "vLLM's needle",
        "the text of one prompt, alone and among random ones",
        "vllm-project/vllm, tests/v1/determinism/test_batch_invariance.py, needle",
        _needle,
    ),
    Tool(
        "vLLM's logprobs",
        "logprobs of the chosen tokens, one request and many",
        "vllm-project/vllm, tests/v1/determinism/test_batch_invariance.py, bs1 against bsN",
        _chosen_logprobs,
    ),
)


def measure_models(models: Mapping[str, int], *, requests: int, steps: int) -> list[JSON]:
    """Return one row a model and tool; a model's number is its threads, 0 for one each core."""
    rows = []
    for model, threads in models.items():
        with real(model, slots=requests, threads=threads) as url:
            for tool in TOOLS:
                begun = time.perf_counter()
                noticed = tool.run(Asked(url, requests, steps))
                rows.append(
                    {
                        "model": model,
                        "tool": tool.name,
                        "wall_s": round(time.perf_counter() - begun, 3),
                        "requests": noticed.requests,
                        "kept_bytes": noticed.kept,
                        "noticed": noticed.said,
                        "compares": tool.compares,
                    }
                )
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Measure and show."""
    parser = argparse.ArgumentParser(description="Side by side with what one would use instead.")
    parser.add_argument("--requests", type=int, default=8, help="the largest batch (default 8)")
    parser.add_argument("--steps", type=int, default=64, help="tokens of a reply (default 64)")
    parser.add_argument("--tiny", action="store_true", help="a model of random weights instead of the two real ones")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(words)
    models = {"tiny-llama-f32": 1} if options.tiny else MODELS
    rows = measure_models(models, requests=options.requests, steps=options.steps)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print("| model | tool | wall, s | requests | kept, bytes | noticed | compares |\n|---|---|---|---|---|---|---|")
    for row in rows:
        shown = (row[name] for name in ("model", "tool", "wall_s", "requests", "kept_bytes", "noticed", "compares"))
        print("| " + " | ".join(map(str, shown)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
