"""Each prediction of prereg/audit can be refuted, can hold, and is inconclusive where the run does not carry it.

Every case is a whole run of both models on a small plan: the conditions of one prediction, in the sizes that it needs,
and the controls. The predictions are the registered file's, evaluated through `findings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from audit.analyse.cells import sizes
from audit.plan import Plan
from audit.prereg import load_predictions, load_registration
from tests.unit.analyse.simulated import CONTROLS, plan_of
from tests.unit.prereg.registered_run import GEMMA, REGISTRATION, SMOLLM, Change, blind, measured, predictions, servers

REGISTERED = {one.id: one for one in load_predictions((REGISTRATION / "predictions.json").read_bytes()).predictions}
ALL_PROMPTS: dict[str, Any] = {"prompts": ["p", "q", "o"]}
BOTH = (GEMMA, SMOLLM)
SHARED = ("concurrent_greedy_c4", "concurrent_greedy_c8", "cross_batch_together", "cache_warm1", "cache_warm2")
SHARED_ENTRIES: tuple[dict[str, Any], ...] = (
    {"name": "concurrent_greedy", "levels": [4], "count": 2},
    {"name": "concurrent_greedy", "levels": [8]},
    {"name": "cross_batch_together", "neighbours": ["p", "q", "o"], "count": 2, **ALL_PROMPTS},
    {"name": "cache", "prompts": ["cached"], "opener": "o", "count": 6},
)
CACHE: dict[str, Any] = {"name": "cache", "prompts": ["cached"], "opener": "o", "count": 9}


def everywhere(*conditions: str, on: tuple[str, ...] = BOTH) -> list[Change]:
    """Move every logprob of these conditions."""
    return [Change(server, condition) for server in on for condition in conditions]


class Case(NamedTuple):
    """The plan for one prediction, and what has to differ for it to hold and to be refuted.

    `entries` begins with the condition that is made smaller where the prediction shall be open. `speaks_of` are the
    servers whose cells count: what differs elsewhere must not matter.
    """

    entries: tuple[dict[str, Any], ...]
    holds: list[Change]
    refuted: list[Change]
    speaks_of: tuple[str, ...] = BOTH


CASES = {
    "published-1": Case(
        ({"name": "repeat_greedy", "count": 30}, {"name": "repeat_seeded", "count": 30}),
        holds=[],
        refuted=[Change(SMOLLM, "repeat_seeded", extent="one")],
    ),
    "published-2": Case(
        SHARED_ENTRIES,
        holds=everywhere(*SHARED),
        # One member of one wave of one model keeps its baseline's logprobs.
        refuted=[
            *everywhere(*SHARED, on=(GEMMA,)),
            Change(SMOLLM, SHARED[0], extent="all but one"),
            *everywhere(*SHARED[1:], on=(SMOLLM,)),
        ],
    ),
    "published-3": Case(
        SHARED_ENTRIES,
        # Moved logprobs are no matter to it.
        holds=everywhere(*SHARED),
        refuted=[Change(GEMMA, "cross_batch_together", "token", "one")],
    ),
    "published-4": Case(
        ({"name": "concurrent_seeded", "levels": [6], "count": 6},),
        holds=[Change(server, "concurrent_seeded_c6", "token", "one") for server in BOTH],
        # The tokens of one model survive, although their logprobs move.
        refuted=[Change(GEMMA, "concurrent_seeded_c6", "token"), Change(SMOLLM, "concurrent_seeded_c6")],
    ),
    "own-1": Case(
        (
            {"name": "concurrent_greedy", "levels": [4], "count": 2, **ALL_PROMPTS},
            {"name": "concurrent_greedy", "levels": [8], **ALL_PROMPTS},
        ),
        holds=everywhere("concurrent_greedy_c4", "concurrent_greedy_c8", on=(GEMMA,)),
        refuted=[
            Change(GEMMA, "concurrent_greedy_c4", extent="all but one"),
            *everywhere("concurrent_greedy_c8", on=(GEMMA,)),
        ],
        speaks_of=(GEMMA,),
    ),
    "own-2": Case(
        ({"name": "concurrent_greedy", "levels": [8], "count": 2, **ALL_PROMPTS},),
        holds=[Change(GEMMA, "concurrent_greedy_c8", "token", "one")],
        refuted=[Change(GEMMA, "concurrent_greedy_c8"), Change(SMOLLM, "concurrent_greedy_c8", "token")],
        speaks_of=(GEMMA,),
    ),
    "own-3": Case(
        (
            {"name": "concurrent_greedy", "levels": [2], "count": 3},
            {"name": "concurrent_greedy", "levels": [4], "count": 2},
            {"name": "concurrent_greedy", "levels": [8]},
            {"name": "concurrent_seeded", "levels": [6]},
            {"name": "oversubscribed", "levels": [12]},
            {"name": "cross_batch_together", "neighbours": ["p", "q", "o"], "count": 2, **ALL_PROMPTS},
            {"name": "cross_batch_staggered", "neighbours": ["p", "q", "o"], "count": 2, **ALL_PROMPTS},
        ),
        holds=everywhere("concurrent_greedy_c2", "cross_batch_staggered", on=(GEMMA,)),
        refuted=[Change(SMOLLM, "oversubscribed_c12", extent="one")],
        speaks_of=(SMOLLM,),
    ),
    "own-4": Case(
        (CACHE,),
        holds=everywhere("cache_warm1", "cache_warm2"),
        refuted=[
            *everywhere("cache_warm1"),
            *everywhere("cache_warm2", on=(GEMMA,)),
            Change(SMOLLM, "cache_warm2", extent="all but one"),
        ],
    ),
    "own-5": Case(
        (
            {**CACHE, "count": 1},
            {"name": "other_slot", "levels": [8]},
            {"name": "idle_neighbour", "neighbours": ["q"]},
            {"name": "stream_vs_whole"},
            {"name": "restart", "count": 2},
            {"name": "first_request"},
        ),
        holds=everywhere("cache_warm1"),
        refuted=[Change(GEMMA, "restart", extent="one")],
    ),
    "own-6": Case(
        ({"name": "without_logprobs", "count": 3, **ALL_PROMPTS},),
        holds=[],
        refuted=[Change(SMOLLM, "without_logprobs", "token", "one")],
    ),
    "own-7": Case(
        ({"name": "prefill_vs_decode", **ALL_PROMPTS},),
        holds=[Change(server, "prefill_vs_decode", extent="one") for server in BOTH],
        refuted=[Change(SMOLLM, "prefill_vs_decode")],
    ),
}
SIZED = [name for name in CASES if name != "own-5"]  # a minimum of 1 leaves no smaller size


def plan_for(case: Case, **fewer: Any) -> Plan:  # noqa: ANN401 - any field of an entry
    """Return the plan of a case with the controls; `fewer` replaces fields of its first entry."""
    first, *others = case.entries
    return plan_of({**first, **fewer}, *others, *CONTROLS)


def status(folder: Path, name: str, plan: Plan, changes: list[Change]) -> str:
    """Run, judge and return the status of one prediction."""
    entry = predictions(folder / "run", *servers(plan, *changes).values())[name]
    assert {cell["server"] for cell in entry["cells"]} == set(CASES[name].speaks_of)
    return str(entry["status"])


def test_the_cases_are_those_of_the_registered_file() -> None:
    """A prediction without a case here is a prediction that nobody has seen fail."""
    assert list(REGISTERED) == list(CASES)
    for one in REGISTERED.values():
        assert one.servers == "*" or tuple(one.servers) == CASES[one.id].speaks_of


def test_the_registered_plan_is_large_enough_for_every_prediction() -> None:
    """A cell that the plan counts as judged has at least the trials that a prediction about it needs."""
    needed = sizes(load_registration(REGISTRATION).plan)
    small = {
        (one.id, name): needed[name].minimum
        for one in REGISTERED.values()
        for name in one.conditions
        if needed[name].minimum < one.minimum
    }
    assert small == {}


@pytest.mark.parametrize("name", CASES)
def test_a_prediction_holds(tmp_path: Path, name: str) -> None:
    """Its rule is met in every cell that it speaks of; what another server does is no matter."""
    case = CASES[name]
    assert status(tmp_path, name, plan_for(case), case.holds) == "holds"


@pytest.mark.parametrize("name", CASES)
def test_a_prediction_is_refuted(tmp_path: Path, name: str) -> None:
    """One cell of one server is enough, and where the rule is about all trials, one trial is."""
    case = CASES[name]
    assert status(tmp_path, name, plan_for(case), case.refuted) == "refuted"


@pytest.mark.parametrize("name", CASES)
def test_a_blind_control_leaves_a_prediction_open(tmp_path: Path, name: str) -> None:
    """What would refute it counts for nothing where a control did not diverge on a server that it speaks of."""
    case = CASES[name]
    subjects = servers(plan_for(case), *case.refuted)
    blind(subjects[case.speaks_of[-1]])
    assert predictions(tmp_path / "run", *subjects.values())[name]["status"] == "inconclusive"


@pytest.mark.parametrize("name", CASES)
def test_a_cell_that_is_not_judged_leaves_a_prediction_open(tmp_path: Path, name: str) -> None:
    """One request that failed in one of its cells, and what holds in all others does not hold as a whole."""
    case = CASES[name]
    plan = plan_for(case)
    subjects = servers(plan, *case.holds)
    subjects[case.speaks_of[0]].failing = {measured(plan, REGISTERED[name].conditions[0])[0]}
    assert predictions(tmp_path / "run", *subjects.values())[name]["status"] == "inconclusive"


@pytest.mark.parametrize("name", SIZED)
def test_a_cell_below_the_minimum_leaves_a_prediction_open(tmp_path: Path, name: str) -> None:
    """A judged cell with too few trials neither holds nor refutes."""
    case = CASES[name]
    plan = plan_for(case, count=1, prompts=case.entries[0].get("prompts", ["p"])[:1])
    assert status(tmp_path, name, plan, case.holds) == "inconclusive"
