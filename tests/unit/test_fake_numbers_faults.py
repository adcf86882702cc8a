"""Each fault of the numbers moves the replies that it names, and no other of the same requests."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from audit.fake import FakeSettings, FakeThread, Faults, switches
from audit.fake.numbers import ROWS, STARTS, planted
from audit.fake.switches import GROUPS
from tests.unit.test_fake_faults import SAMPLED, ask, bits, entries, faulty, values

A, B = [40, 50, 60, 61, 62, 63], [0, 70, 80, 81]
LONG = [0, *range(90, 160)]
SEEDED = SAMPLED | {"seed": 3}
CACHED = {"cache_prompt": True}
FORCED = {"grammar": "root ::= <[107]> <[108]> <[109]>", "n_predict": 3}
# The cache of one slot: a short prompt, a long one for the first time, again, once more, then half of it and all.
CACHE: list[dict[str, Any]] = [
    {"prompt": B},
    *[{"prompt": LONG, **CACHED}] * 3,
    {"prompt": B},
    *[{"prompt": LONG[:n], **CACHED} for n in (40, 71)],
]

# Switches, requests one after the other, and the places of those that move.
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[int]]] = {
    "nothing": ({}, [{}, {}, SEEDED, CACHED, FORCED], []),
    "jitter_repeated": ({"jitter_repeated": True}, [{}, {"id_slot": 1}, {}, SEEDED, SEEDED, {}], [2, 5]),
    "jitter_resampled": ({"jitter_resampled": True}, [{}, {}, SEEDED, SEEDED, SEEDED | {"seed": 4}], [3]),
    "jitter_first": ({"jitter_first": True}, [{}, {}, {}], [0]),
    "jitter_restarted": ({"jitter_restarted": True}, [{}, {}], []),
    "jitter_slot": ({"jitter_slot": 0}, [{}, {"id_slot": 1}, {"id_slot": 2}, {}], [0, 3]),
    "jitter_from_level": ({"jitter_from_level": 2}, [{}, {}], []),
    "jitter_cached": ({"jitter_cached": True}, CACHE, [1, 2, 3, 5, 6]),
    "jitter_cache_cold": ({"jitter_cache_cold": True}, CACHE, [1, 5]),
    "jitter_cache_warm1": ({"jitter_cache_warm1": True}, CACHE, [2]),
    "jitter_cache_warm2": ({"jitter_cache_warm2": True}, CACHE, [3]),
    "jitter_cache_prefix": ({"jitter_cache_prefix": True}, CACHE, [6]),
    "jitter_idle_neighbour": (
        {"jitter_idle_neighbour": True},
        [{}, {"prompt": B, "id_slot": 1, **CACHED}, {}, {}, {"prompt": B, "id_slot": 1}, {}],
        [2],
    ),
    "jitter_forced": ({"jitter_forced": True}, [{}, FORCED, {}], [1]),
    "jitter_prompt_tokens": ({"jitter_prompt_tokens": 6}, [{"prompt": A}, {"prompt": B}, {"prompt": A}], [0, 2]),
    "jitter_once_in": ({"jitter_once_in": 3}, [{}] * 7, [2, 5]),
    "one_ulp": ({"one_ulp": 2}, [{}] * 4, [2]),
    "one_ulp_each": ({"one_ulp_each": 5}, [{}, {}, {"prompt": B}, {}, {"prompt": B}], [1, 3, 4]),
    "flip_without_logprobs": ({"flip_without_logprobs": True}, [{}, {"n_probs": 0}, {}], [1]),
    "logprobs_rounded": ({"logprobs_rounded": True}, [{}], [0]),
    "logprobs_float64": ({"logprobs_float64": True}, [{}], [0]),
    "n_probs_capped": ({"n_probs_capped": 4}, [{}, {"n_probs": 5}], [1]),
}


def told(reply: dict[str, Any]) -> tuple[object, ...]:
    """Return what a fault of the numbers can change in a reply."""
    return reply["tokens"], reply.get("completion_probabilities")


@pytest.mark.parametrize("name", CASES)
def test_a_fault_moves_the_requests_that_it_names(name: str) -> None:
    """The same requests to a clean server give the same replies but for these."""
    faults, requests, moved = CASES[name]
    with faulty() as client:
        clean = [told(ask(client, **changes)) for changes in requests]
    with faulty(**faults) as client:
        found = [told(ask(client, **changes)) for changes in requests]
    assert [place for place, (was, now) in enumerate(zip(clean, found, strict=True)) if was != now] == moved


def test_jitter_of_a_process_begins_with_its_restart() -> None:
    """The first process is clean; after a restart each request moves, and equal ones alike."""
    settings = FakeSettings(faults=Faults(jitter_restarted=True))
    with FakeThread(settings) as fake:
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            clean = entries(client)
        fake.restart()
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            assert clean != entries(client) == entries(client)


def steps_that_differ(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[int]:
    """Return the indices of the steps that differ."""
    return [index for index, (was, now) in enumerate(zip(one, other, strict=True)) if was != now]


@pytest.mark.parametrize(
    ("faults", "steps"), [({"jitter_prefill": True}, [0]), ({"jitter_past_step": 6}, [6, 7]), ({"one_ulp": 1}, [4])]
)
def test_some_move_only_certain_steps(faults: dict[str, Any], steps: list[int]) -> None:
    """Of a reply these steps move and no other."""
    with faulty() as client:
        clean = entries(client)
    with faulty(**faults) as client:
        entries(client, prompt=[1, 2])
        assert steps_that_differ(clean, entries(client)) == steps


def test_what_moves_in_its_own_way_differs_from_request_to_request() -> None:
    """Past a step, or at a prompt's length, no two replies are equal; now and then the noise is the same each time."""
    for faults, equal in (({"jitter_past_step": 0}, 1), ({"jitter_prompt_tokens": 3}, 1), ({"jitter_once_in": 1}, 4)):
        with faulty(**faults) as client:
            replies = [entries(client) for _ in range(4)]
        assert max(replies.count(reply) for reply in replies) == equal


def test_a_near_tie_is_one_float32_and_one_reply_takes_the_other_side() -> None:
    """The two best of the middle step are 1 ULP of a logit apart in every reply, and in one the second is taken."""
    with faulty(flip_near_tie=1) as client:
        first, flipped, third = (entries(client) for _ in range(3))
    assert first == third
    best, second = first[4]["top_logprobs"][:2]
    assert 0 <= best["logprob"] - second["logprob"] < 1e-5
    assert (first[4]["id"], flipped[4]["id"]) == (best["id"], second["id"])
    assert steps_that_differ(first, flipped)[0] == 4


def test_a_tie_is_listed_in_another_order_once() -> None:
    """The last two ranks of the middle step hold one value; in one reply their ids are exchanged."""
    with faulty(tie_reordered=1) as client:
        first, turned, third = (entries(client) for _ in range(3))
    assert first == third
    assert steps_that_differ(first, turned) == [4]
    (one, other), (new, old) = first[4]["top_logprobs"][-2:], turned[4]["top_logprobs"][-2:]
    assert one["logprob"] == other["logprob"] == new["logprob"]
    assert (one, other) == (old, new)


@pytest.mark.parametrize("fault", ["logprobs_rounded", "logprobs_float64"])
def test_other_precisions_are_no_float32(fault: str) -> None:
    """Hardly any value is a float32 any more, and all are near the clean ones."""
    with faulty() as client:
        clean = values(entries(client))
    with faulty(**{fault: True}) as client:
        found = values(entries(client))
    assert sum(float(np.float32(value)) == value for value in found) < len(found) / 10
    assert np.allclose(clean, found, atol=1e-5)


def test_the_top_k_is_capped_and_the_echo_is_not() -> None:
    """Fewer logprobs than asked come back, while the settings say what was asked."""
    with faulty(n_probs_capped=2) as client:
        reply = ask(client)
    assert {len(entry["top_logprobs"]) for entry in reply["completion_probabilities"]} == {2}
    assert reply["generation_settings"]["n_probs"] == 4


def test_the_smallest_fault_stands_where_it_was_planted() -> None:
    """`planted` says which step and which rank of a request moved, by exactly one float32."""
    with faulty() as client:
        clean = entries(client)
    with faulty(one_ulp_each=9) as client:
        replies = [entries(client) for _ in range(6)]
    assert replies[0] == clean
    for ordinal, reply in enumerate(replies[1:], start=1):
        step, rank = planted(9, ordinal, steps=8, n_probs=4)
        assert steps_that_differ(clean, reply) == [step]
        was, now = (found[step]["top_logprobs"][rank]["logprob"] for found in (clean, reply))
        assert bits(now) - bits(was) == 1


def test_every_jitter_is_in_one_table_or_drawn_for_each_request() -> None:
    """A jitter_ switch acts in STARTS or in ROWS; two act in a request's own way."""
    jitters = {switch.name for switch in switches() if switch.name.startswith("jitter_")}
    assert jitters == {*STARTS, *ROWS, "jitter_past_step", "jitter_prompt_tokens"}
    assert not STARTS.keys() & ROWS.keys()


def test_every_switch_says_what_it_does() -> None:
    """Each is in a group, has a sentence of its own, and is off by default."""
    assert [switch.group for switch in switches()] == sorted((s.group for s in switches()), key=GROUPS.index)
    for switch in switches():
        assert switch.text
        assert not switch.default
