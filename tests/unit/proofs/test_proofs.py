"""Every proof holds where its condition happened, and fails, by name, where it did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from audit.conditions import CATALOGUE
from audit.proofs import HELD, PROOFS, Case, Flight, Judged, Moment, Origin, UnitFacts, first_item, prove

MS = 1_000_000
MINE, OLD = ("2", "b"), ("1", "a")


def flight(end_ms: float = 100.0, **changes: object) -> Flight:
    """Make an answered request of 80 tokens, cache off, on slot 0: 20 ms of prefill and 80 ms of decoding."""
    values: dict[str, Any] = {
        "slot": 0,
        "cache": False,
        "sent_ns": int((end_ms - 100) * MS),
        "end_ns": int(end_ms * MS),
        "id_slot": changes.get("slot", 0),
        "tokens_evaluated": 80,
        "cache_n": 0,
        "prompt_n": 80,
        "prompt_ms": 20.0,
        "predicted_n": 32,
        "predicted_ms": 80.0,
        **changes,
    }
    return Flight(**values)


def moment(**changes: object) -> Moment:
    """Make a snapshot of an idle server with two slots."""
    metrics = {"n_busy_slots_per_decode": "1", "n_decode_total": "100"}
    values: dict[str, Any] = {
        "slots": ((0, False, 0), (1, False, 90)),
        "metrics": metrics,
        "props": "p",
        "process": MINE,
        **changes,
    }
    return Moment(**values)


def busy(before: str, after: str, decodes: str = "140") -> dict[str, Any]:
    """Make the two snapshots of a wave by their busy slots per decode."""
    return {
        "before": moment(metrics={"n_busy_slots_per_decode": before, "n_decode_total": "100"}),
        "after": moment(metrics={"n_busy_slots_per_decode": after, "n_decode_total": decodes}),
    }


# 100 decodes at 1 busy slot, then 40 at 2: (1.28571 * 140 - 100) / 40 = 2.0.
WAVE = UnitFacts(slots=2, earlier=None, flights=(flight(100), flight(104, slot=1)), **busy("1", "1.28571"))
SERIAL = replace(WAVE, flights=(flight(100), flight(200, slot=1)))
# Four requests of 100 ms on two slots: two at once, then the other two.
QUEUE = UnitFacts(
    slots=2,
    earlier=None,
    before=moment(),
    after=moment(),
    flights=tuple(flight(end, slot=-1, id_slot=slot) for end, slot in ((100, 0), (101, 1), (200, 0), (201.5, 1))),
)
MEMBER = flight(100)


def cached(cache_n: int, evaluated: int = 80, **changes: object) -> Case:
    """Make a trial that took `cache_n` tokens from the cache."""
    fields: dict[str, Any] = {
        "cache": True,
        "cache_n": cache_n,
        "prompt_n": evaluated - cache_n,
        "tokens_evaluated": evaluated,
    }
    return case(flight(**(fields | changes)))


def case(*flights: Flight, **changes: object) -> Case:
    """Make the case of a solo trial with these requests."""
    flights = flights or (flight(),)
    values: dict[str, Any] = {
        "flights": flights,
        "tokens": "t",
        "reference_tokens": "t",
        "unit": UnitFacts(slots=2, earlier=None, before=moment(), after=moment(), flights=flights),
        **changes,
    }
    return Case(**values)


def member(unit: UnitFacts, **changes: object) -> Case:
    """Make the case of the first member of a wave."""
    assert unit.flights[0] is not None
    return case(unit.flights[0], **{"unit": unit, **changes})


def origin(**changes: object) -> Origin:
    """Make what stands before the first request of a restarted process."""
    values: dict[str, Any] = {
        "process": MINE,
        "earlier": (OLD,),
        "invokes_between": 0,
        "adjacent": True,
        "restarted": True,
        **changes,
    }
    return Origin(**values)


def slots(*tokens: int | None, processing: bool = False) -> UnitFacts:
    """Make a unit before which the slots held these numbers of tokens."""
    held = tuple((slot, processing, count) for slot, count in enumerate(tokens))
    return UnitFacts(slots=len(held), earlier=None, before=moment(slots=held), after=moment(), flights=(flight(),))


def test_a_window_cannot_begin_before_its_request_was_sent() -> None:
    """Timings that reach further back than the request are no window, and so they prove no overlap."""
    assert flight(sent_ns=0).window == (0.0, 100 * MS)
    assert flight(sent_ns=1).window is None
    early = replace(WAVE, flights=(flight(100), flight(104, slot=1, sent_ns=5 * MS)))
    assert prove("concurrent_greedy", member(early)) == Judged("failed", "windows")


PREFIXES = tuple(flight(tokens_evaluated=80 + k, prompt_n=80 + k) for k in range(3))
FRESH = case(origin=origin())
FIRST_OF_ALL = case(origin=origin(earlier=(), adjacent=False, restarted=False))
RESTING = case(neighbours=(flight(slot=1, cache=True),), unit=slots(0, 80))

HOLDS: list[tuple[str, Case]] = [
    *((family, case()) for family in CATALOGUE if family.startswith(("repeat_", "control_"))),
    ("stream_vs_whole", case()),
    ("without_logprobs", case()),
    ("first_request", FIRST_OF_ALL),
    ("first_request", FRESH),
    ("restart", FRESH),
    ("other_slot", case(flight(slot=1))),
    ("concurrent_greedy", member(WAVE)),
    ("concurrent_seeded", member(WAVE)),
    ("wave_repeat", member(WAVE, unit_first=WAVE)),
    ("oversubscribed", member(QUEUE)),
    ("cross_batch_together", case(MEMBER, neighbours=(flight(110), flight(95, prompt_ms=30.0, sent_ns=-MS * 16)))),
    ("cross_batch_staggered", case(MEMBER, neighbours=(flight(500), flight(120)))),
    ("cache_cold", cached(1)),
    ("cache_warm1", cached(40)),
    ("cache_warm2", cached(79)),
    ("cache_prefix", cached(2, 6)),
    ("idle_neighbour", RESTING),
    ("prefill_vs_decode", case(*PREFIXES)),
]

FAILS: list[tuple[str, str, Case]] = [
    *((family, "cache", case(flight(cache_n=1, prompt_n=79))) for family in PROOFS if not family.startswith("cache")),
    *((family, "slot", case(flight(slot=1, id_slot=0))) for family in ("repeat_greedy", "without_logprobs")),
    ("stream_vs_whole", "cache", case(flight(prompt_n=None, tokens_evaluated=None))),
    ("stream_vs_whole", "slot", case(flight(id_slot=None))),
    ("first_request", "process", case()),
    ("first_request", "process", case(origin=origin(process=None))),
    ("first_request", "process", case(origin=origin(earlier=(OLD, MINE)))),
    ("restart", "process", case(origin=origin(invokes_between=1))),
    ("restart", "process", case(origin=origin(adjacent=False))),
    ("other_slot", "slot", case(flight(slot=0))),
    ("concurrent_greedy", "windows", member(SERIAL)),
    ("concurrent_seeded", "windows", member(replace(WAVE, flights=(flight(100), None)))),
    ("concurrent_seeded", "windows", member(replace(WAVE, flights=(flight(100), flight(slot=1, prompt_ms=None))))),
    ("concurrent_greedy", "slots", member(replace(WAVE, flights=(flight(100), flight(104))))),
    ("concurrent_greedy", "busy", member(replace(WAVE, **busy("1", "1.1")))),
    ("concurrent_greedy", "busy", member(replace(WAVE, **busy("1", "1", "100")))),
    ("concurrent_greedy", "busy", member(replace(WAVE, **busy("1", "nan")))),
    ("wave_repeat", "windows", member(WAVE, unit_first=SERIAL)),
    ("wave_repeat", "windows", member(SERIAL, unit_first=WAVE)),
    ("wave_repeat", "windows", member(WAVE)),
    ("oversubscribed", "windows", member(replace(QUEUE, slots=3))),
    ("oversubscribed", "windows", member(replace(QUEUE, slots=1))),
    (
        "oversubscribed",
        "slots",
        member(replace(QUEUE, flights=tuple(flight(e, slot=-1) for e in (100, 100, 200, 200)))),
    ),
    (
        "oversubscribed",
        "queue",
        # The last one, [90, 190], begins while the first, [0, 100], runs; the second is [105, 111].
        member(
            replace(
                QUEUE,
                flights=tuple(
                    flight(end, slot=-1, id_slot=slot, prompt_ms=length, predicted_ms=0.0)
                    for end, length, slot in ((100, 100.0, 0), (111, 6.0, 1), (190, 100.0, 1))
                ),
            )
        ),
    ),
    ("cross_batch_together", "windows", case(MEMBER, neighbours=(flight(110), flight(111)))),
    ("cross_batch_together", "windows", case(MEMBER, neighbours=(flight(110), None))),
    ("cross_batch_together", "windows", case(MEMBER)),
    ("cross_batch_staggered", "windows", case(MEMBER, neighbours=(flight(100),))),
    ("cross_batch_staggered", "windows", case(MEMBER, neighbours=(flight(200),))),
    ("cross_batch_staggered", "windows", case(flight(predicted_ms=None), neighbours=(flight(120),))),
    ("cache_cold", "cache", cached(2)),
    ("cache_cold", "cache", cached(0, 63)),
    ("cache_warm1", "cache", cached(39)),
    ("cache_warm2", "cache", cached(40, prompt_n=39)),
    ("cache_warm2", "cache", cached(40, 63)),
    ("cache_prefix", "cache", cached(1)),
    ("cache_prefix", "cache", cached(6, 6)),
    ("cache_prefix", "cache", case(flight(cache=True, cache_n=None))),
    ("idle_neighbour", "neighbour", replace(RESTING, unit=slots(0, 79))),
    ("idle_neighbour", "neighbour", replace(RESTING, unit=slots(0, 80, processing=True))),
    ("idle_neighbour", "neighbour", replace(RESTING, unit=slots(90))),
    ("idle_neighbour", "neighbour", replace(RESTING, neighbours=(None,))),
    ("prefill_vs_decode", "ids", case(reference_tokens="u")),
    ("prefill_vs_decode", "ids", case(reference_tokens=None)),
    ("prefill_vs_decode", "prefix", case(*PREFIXES[:1], *PREFIXES[2:])),
]


@pytest.mark.parametrize(("family", "evidence"), HOLDS)
def test_a_condition_that_happened_is_proven(family: str, evidence: Case) -> None:
    """The evidence of the condition is enough."""
    assert prove(family, evidence) == HELD


@pytest.mark.parametrize(("family", "reason", "evidence"), FAILS)
def test_a_condition_that_did_not_happen_is_vacuous(family: str, reason: str, evidence: Case) -> None:
    """The proof fails and says which part of it."""
    assert prove(family, evidence) == Judged("failed", reason)


@pytest.mark.parametrize(
    ("family", "reason", "evidence"),
    [
        ("idle_neighbour", "neighbour", replace(RESTING, unit=slots(0, None))),
        ("idle_neighbour", "neighbour", replace(RESTING, unit=replace(slots(), before=moment(slots=None)))),
        ("concurrent_greedy", "busy", member(replace(WAVE, before=moment(metrics={"n_decode_total": "100"})))),
        ("concurrent_greedy", "busy", member(replace(WAVE, before=moment(metrics=None), after=moment(metrics=None)))),
    ],
)
def test_a_proof_that_the_server_does_not_offer_is_weak(family: str, reason: str, evidence: Case) -> None:
    """What the server does not say is neither held nor failed."""
    assert prove(family, evidence) == Judged("weak", reason)


def test_every_family_has_a_proof_that_can_hold_and_fail() -> None:
    """The catalogue, the registry and the two lists above name the same families."""
    families = set(CATALOGUE)
    assert set(PROOFS) == families
    assert {family for family, _ in HOLDS} == families
    assert {family for family, _, _ in FAILS} == families


def test_the_first_item_looks_at_every_request() -> None:
    """One request of many that touched the cache is enough; one that asked for it may."""
    assert first_item(PREFIXES) == HELD
    assert first_item([*PREFIXES, flight(cache_n=5, prompt_n=75)]) == Judged("failed", "cache")
    assert first_item([flight(cache=True, cache_n=5, prompt_n=75)]) == HELD
    assert first_item([flight(slot=-1, id_slot=3)]) == HELD
