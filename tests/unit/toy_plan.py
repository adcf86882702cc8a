"""The plan of a toy run and how it unfolds, written from docs/reference/record.md alone, for tests/unit/make_run.py.

In: conditions that differ from a default. Out: a resolved plan; its units in the order of execution, each a list of
trials as plain dicts. It imports nothing of `audit/` and nothing of scripts/verify.py.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

JSON = Any
Trial = dict[str, Any]

FAMILY: dict[str, JSON] = {
    "prompts": ["a", "b"],
    "count": 2,
    "levels": [],
    "again": 0,
    "neighbours": [],
    "opener": None,
    "minimum": None,
}
EVERYTHING: list[dict[str, JSON]] = [
    {"name": "first_request", "prompts": ["a"], "count": 1},
    {"name": "repeat_greedy"},
    {"name": "repeat_seeded"},
    {"name": "other_slot", "count": 1, "levels": [3]},
    {"name": "concurrent_greedy", "levels": [2, 4], "again": 1},
    {"name": "concurrent_seeded", "levels": [3], "again": 1},
    {"name": "oversubscribed", "count": 1, "levels": [10]},
    {"name": "cross_batch_together", "count": 1, "neighbours": ["a", "b", "c"]},
    {"name": "cross_batch_staggered", "count": 1, "neighbours": ["a", "b", "c"]},
    {"name": "cache", "prompts": ["long"], "count": 1, "opener": "a"},
    {"name": "cache_prefix", "prompts": ["long"], "count": 1, "opener": "a"},
    {"name": "idle_neighbour", "count": 1, "neighbours": ["a", "b"]},
    {"name": "prefill_vs_decode", "count": 1},
    {"name": "stream_vs_whole", "count": 1},
    {"name": "without_logprobs", "count": 1},
    {"name": "control_prompt", "count": 1},
    {"name": "control_seed"},
    {"name": "control_temperature"},
    {"name": "restart", "count": 1},
]


def canonical(value: object) -> bytes:
    """Return canonical JSON, with its newline."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode()


def sha(data: bytes | str) -> str:
    """Return bare hex digits."""
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def plan(conditions: list[dict[str, Any]] | None = None, **more: JSON) -> dict[str, Any]:
    """Return a resolved plan; each condition needs only what differs from FAMILY."""
    blank = {"text": None, "chat": None, "ids": None, "tokens": None, "steps": None}
    long = "{block} " + "a text of more than sixty-four tokens, so that the cache counts, " * 2
    return {
        "format": 1,
        "kind": "audit",
        "name": "toy",
        "steps": 8,
        "n_probs": 3,
        "pace_per_second": 20.0,
        "timeout_s": 120.0,
        "attempts": 1,
        "control_temperature": 1.5,
        "canary": {"prompt": "a", "steps": 2},
        "sampling": {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0},
        "prompts": {
            "a": {**blank, "ids": [5, 6, 7, 8]},
            "b": {**blank, "text": "The registered digest begins {registered}", "steps": 9},
            "c": {**blank, "text": "Another neighbour", "tokens": 12},
            "long": {**blank, "chat": [{"role": "user", "content": long}]},
        },
        "conditions": [{**FAMILY, **condition} for condition in (EVERYTHING if conditions is None else conditions)],
        **more,
    }


def text_of(prompt: dict[str, Any]) -> str:
    """Return the text of a prompt of the plan, or of its turns."""
    if prompt["chat"]:
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in prompt["chat"])
    return str(prompt["text"] or "".join(map(chr, (96 + token for token in prompt["ids"]))))


def trials_in_plan_order(plan: dict[str, Any]) -> list[list[list[Trial]]]:
    """Return the blocks of a plan, each a list of units, each a list of trials, before any sorting."""
    blocks: list[list[list[Trial]]] = []
    for entry in plan["conditions"]:
        name, several = entry["name"], [p for p in entry["prompts"] for _ in range(1)]
        kind = (
            "seeded"
            if name in ("repeat_seeded", "concurrent_seeded", "control_seed", "control_temperature")
            else "greedy"
        )
        levels = entry["levels"] if name.startswith(("concurrent", "oversub")) else [None]
        levels = list(range(1, entry["levels"][0])) if name == "other_slot" else levels
        for level in levels if name != "other_slot" else [None]:
            for p in several:
                for slot in levels if name == "other_slot" else [0]:
                    for i in range(entry["count"]):
                        middle = f"{p}/{slot}" if name == "other_slot" else p
                        title = f"{name}_c{level}" if level else name
                        block = f"{title}/{middle}/{i}"
                        base = {"prompt": p, "slot": slot, "ref": f"baseline/{kind}/{p}", "condition": title}
                        units = _units(plan, entry, block, base, level, i)
                        for unit in units:
                            for trial in unit:
                                trial.update(block=block, family=name, i=i)
                        blocks.append(units)
    return blocks


def _units(
    plan: dict[str, Any], entry: dict[str, Any], block: str, base: Trial, level: int | None, i: int
) -> list[list[Trial]]:
    name, p = entry["name"], base["prompt"]

    def t(suffix: str, **more: JSON) -> Trial:
        return {**base, "id": block + suffix, **more}

    def help_(suffix: str, **more: JSON) -> list[Trial]:
        return [t(suffix, ref=None, support=True, condition=name, **more)]

    steps = plan["prompts"][p]["steps"] or plan["steps"]
    if level:
        w0 = [t(f"/w0/{m}", slot=-1 if name == "oversubscribed" else m, wave="w0") for m in range(level)]
        w1 = [
            {**x, "id": x["id"].replace("/w0/", "/w1/"), "ref": x["id"], "condition": "wave_repeat", "wave": "w1"}
            for x in w0
        ]
        return [w0, w1] if i < entry["again"] else [w0]
    if name.startswith("cross_batch"):
        others = [n for n in entry["neighbours"] if n != p]
        rest = [help_(f"/w0/{m}", slot=m, wave="w0", prompt=n, steps=steps + 16)[0] for m, n in enumerate(others, 1)]
        return [[t("/w0/0", wave="w0"), *rest]]
    if name in ("cache", "cache_prefix"):
        own = f"{block}/baseline"
        ends = [[t("/baseline", ref=None, condition="baseline")], [t("/repeat", ref=own, condition="repeat_greedy")]]
        start = [help_("/opener", prompt=entry["opener"], steps=1)]
        if name == "cache":
            return (
                start
                + [[t(f"/{x}", ref=own, cache=True, condition=f"cache_{x}")] for x in ("cold", "warm1", "warm2")]
                + ends
            )
        return [*start, help_("/primer", steps=1, cache=True, half=True), [t("/prefix", ref=own, cache=True)], *ends]
    if name == "idle_neighbour":
        other = next(n for n in entry["neighbours"] if n != p)
        return [help_("/neighbour", prompt=other, slot=1, cache=True), [t("/member")]]
    if name == "prefill_vs_decode":
        return [[t("/forced", forced=True)], [t("/prefixes", parts=steps, steps=1)]]
    if name == "control_prompt":
        names = entry["prompts"]
        return [[t("", prompt=names[(names.index(p) + 1) % len(names)], steps=steps)]]
    return [[t("")]]


def unfold(plan: dict[str, Any], registered: str) -> list[list[Trial]]:
    """Return the units of a plan in the order of execution."""
    blocks = trials_in_plan_order(plan)
    every = [trial for block in blocks for unit in block for trial in unit]
    ref_names = []
    for trial in every:
        if (trial["ref"] or "").startswith("baseline/") and trial["ref"] not in ref_names:
            ref_names.append(trial["ref"])
    solo = {"slot": 0, "ref": None, "i": 0}
    bases = [
        [[{**solo, "id": n, "block": n, "prompt": n.split("/", 2)[2], "family": "baseline", "condition": "baseline"}]]
        for n in ref_names
    ]
    canary = {
        **solo,
        "prompt": plan["canary"]["prompt"],
        "family": "canary",
        "condition": "canary",
        "steps": plan["canary"]["steps"],
    }
    first, last = ([[{**canary, "id": f"canary/{n}", "block": f"canary/{n}"}]] for n in ("first", "last"))

    def key(block: list[list[Trial]]) -> str:
        return sha(registered + "order" + block[0][0]["block"])

    def family(block: list[list[Trial]]) -> str:
        return str(block[0][0]["family"])

    middle = [b for b in blocks if family(b) not in ("first_request", "restart")]
    others = sorted((b for b in middle if "repeat_" not in family(b)), key=key)
    repeats = sorted((b for b in middle if "repeat_" in family(b)), key=lambda b: (b[0][0]["i"], key(b)))
    mixed: list[list[list[Trial]]] = []
    for index in range(len(others) + 1):
        mixed += [r for j, r in enumerate(repeats) if (2 * j + 1) * len(others) // (2 * len(repeats)) == index]
        mixed += others[index : index + 1]
    starts = [b for b in blocks if family(b) == "first_request"]
    ends = [b for b in blocks if family(b) == "restart"]
    units = [unit for block in [*starts, first, *bases, *mixed, last, *ends] for unit in block]
    named = {trial["id"]: trial for unit in units for trial in unit}
    for trial in named.values():
        prompt = plan["prompts"][trial["prompt"]]
        trial.setdefault("steps", prompt["steps"] or plan["steps"])
        root = trial
        while root["ref"]:
            root = named[root["ref"]]
        trial["sampled"] = root["id"].startswith("baseline/seeded")
        own = trial.get("support") or trial["family"] == "control_seed"
        trial["seed"] = int(sha(registered + "seed" + (trial["id"] if own else root["id"]))[:8], 16) % (2**32 - 1)
        trial["key"] = f"{trial['prompt']}@{trial['block']}" if "{block}" in text_of(prompt) else trial["prompt"]
        trial["unit"] = trial["id"].rsplit("/", 1)[0] if "wave" in trial else trial["id"]
    return units
