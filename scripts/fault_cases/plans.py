"""The plans on which faults are tried, as small as they can be and still say something.

In: nothing. Out: plans by name, and the order of a plan's requests. `solo` has every condition in which one request
runs at a time, `waves` every one with several at once; the others are shorter, for what needs no more.
"""

from __future__ import annotations

from typing import Any

from audit.plan import Plan
from audit.stream import digest

__all__ = ["CLEAN", "PLANS", "clean_verdicts", "ordinal", "requests"]

STORY = "{block} is the number on the door of the archive; behind it lie the letters of a family that moved every year"
PROMPTS = {
    "a": {"text": "Once upon a time there was"},
    "b": {"text": "def median(values):"},
    "story": {"text": STORY},
}
REPEAT = {"name": "repeat_greedy", "prompts": ["a"], "count": 2}
SEEDED = {"name": "repeat_seeded", "prompts": ["a"]}
SLOT = {"name": "other_slot", "prompts": ["a"], "levels": [3]}
STREAM = {"name": "stream_vs_whole", "prompts": ["a"]}
CACHE = {"name": "cache", "prompts": ["story"], "opener": "b"}
CONTROL_PROMPT = {"name": "control_prompt", "prompts": ["a", "b"]}
CONTROL_SEED = {"name": "control_seed", "prompts": ["a"], "count": 3}
CONTROL_TEMPERATURE = {"name": "control_temperature", "prompts": ["a"]}
CONTROLS = [CONTROL_PROMPT, CONTROL_SEED, CONTROL_TEMPERATURE]


def _plan(name: str, *conditions: dict[str, Any], **more: Any) -> Plan:  # noqa: ANN401 - fields of a plan
    prompts = PROMPTS | more.pop("prompts", {})
    return Plan.parse(
        {
            "name": name,
            "steps": 8,
            "n_probs": 5,
            "pace_per_second": 1e6,
            "timeout_s": 60.0,
            "canary": {"prompt": "a"},
            "prompts": prompts,
            "conditions": [*conditions, *CONTROLS],
            **more,
        }
    )


PLANS: dict[str, Plan] = {
    "solo": _plan(
        "solo",
        {"name": "first_request", "prompts": ["a"]},
        REPEAT,
        SEEDED,
        SLOT,
        CACHE,
        {"name": "cache_prefix", "prompts": ["story"], "opener": "b"},
        {"name": "idle_neighbour", "prompts": ["a"], "neighbours": ["b"]},
        {"name": "prefill_vs_decode", "prompts": ["a"]},
        STREAM,
        {"name": "without_logprobs", "prompts": ["a"]},
        {"name": "restart", "prompts": ["a"]},
    ),
    "waves": _plan(
        "waves",
        REPEAT,
        SEEDED,
        {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2, 4], "again": 1},
        {"name": "concurrent_seeded", "prompts": ["a"], "levels": [3]},
        {"name": "oversubscribed", "prompts": ["a"], "levels": [6]},
        {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["b"]},
        {"name": "cross_batch_staggered", "prompts": ["a"], "neighbours": ["b"]},
        STREAM,
    ),
    "slots": _plan("slots", REPEAT, SLOT, {"name": "concurrent_greedy", "prompts": ["a"], "levels": [3]}, STREAM),
    "first": _plan("first", {"name": "first_request", "prompts": ["a"]}, REPEAT, STREAM),
    "short": _plan("short", REPEAT, SEEDED, SLOT, STREAM),
    "cache": _plan("cache", REPEAT, SEEDED, CACHE, STREAM),
    "lengths": _plan(
        "lengths",
        {"name": "repeat_greedy", "prompts": ["long", "wide"]},
        {"name": "other_slot", "prompts": ["long"], "levels": [2]},
        {"name": "idle_neighbour", "prompts": ["wide"], "neighbours": ["b"]},
        STREAM,
        prompts={
            "long": {"text": "And then", "steps": 204},
            "wide": {"text": "0123456789" * 26, "tokens": 256},
        },
    ),
    "hasty": _plan("hasty", REPEAT, SEEDED, SLOT, STREAM, timeout_s=1.5),
}
# What a clean server is found to be, where it is not `identical`: without logprobs there is nothing but ids.
CLEAN = {
    "without_logprobs": "token-identical",
    "control_prompt": "divergent",
    "control_seed": "divergent",
    "control_temperature": "divergent",
}


def requests(plan: Plan) -> list[tuple[str, int]]:
    """Return every completion request of a plan without waves as (trial, part), in the order in which they are sent."""
    return [
        (trial.trial, part)
        for block in plan.unfold(digest(plan.to_bytes()))
        for unit in block.units
        for trial in unit.trials
        for part in range(trial.steps if trial.form == "prefixes" else 1)
    ]


def ordinal(plan: Plan, trial: str) -> int:
    """Return the index of a trial's first request, counted as a server counts them that was never restarted."""
    return requests(plan).index((trial, 0))


def clean_verdicts(plan: Plan) -> dict[str, str]:
    """Return what every cell of a plan is on a clean server."""
    conditions = {
        trial.condition
        for block in plan.unfold(digest(plan.to_bytes()))
        for unit in block.units
        for trial in unit.trials
        if trial.role == "measured"
    }
    return {condition: CLEAN.get(condition, "identical") for condition in conditions}
