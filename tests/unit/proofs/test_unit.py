"""A unit is clean where the server was idle, did our work and no other, and stayed who it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from audit.proofs import HELD, Flight, Identity, Judged, Moment, UnitFacts, accounting, idle, judge_all, same_server

ONE, TWO = ("1", "a"), ("2", "b")
COUNTERS = {
    "prompt_tokens_total": "100",
    "requests_deferred": "0",
    "requests_processing": "0",
    "tokens_predicted_total": "50",
}


def moment(metrics: dict[str, str | None] | None = None, **changes: object) -> Moment:
    """Make a snapshot of an idle server."""
    values: dict[str, Any] = {
        "slots": ((0, False, 0),),
        "metrics": {**COUNTERS, **(metrics or {})},
        "props": "p",
        "process": ONE,
        **changes,
    }
    return Moment(**values)


FLIGHT = Flight(
    slot=0,
    cache=False,
    sent_ns=-3_000_000,
    end_ns=0,
    id_slot=0,
    tokens_evaluated=7,
    cache_n=0,
    prompt_n=7,
    prompt_ms=1.0,
    predicted_n=3,
    predicted_ms=1.0,
)
AFTER: dict[str, str | None] = {"prompt_tokens_total": "114", "tokens_predicted_total": "56"}
UNIT = UnitFacts(slots=1, earlier=moment(), before=moment(), after=moment(AFTER), flights=(FLIGHT, FLIGHT))
WITHOUT = moment(metrics=None)


def failed(reason: str) -> Judged:
    """Return a failure."""
    return Judged("failed", reason)


def test_a_clean_unit_is_idle_and_accounts_for_its_tokens() -> None:
    """Nothing runs before or after, and the counters moved by 2 x 7 and 2 x 3."""
    assert idle(UNIT) == accounting(UNIT) == HELD


@pytest.mark.parametrize(
    "changes",
    [
        {"before": None},
        {"after": None},
        {"before": moment(slots=((0, True, 0),))},
        {"after": moment({"requests_processing": "1"})},
        {"after": moment({"requests_deferred": "2"})},
        {"after": moment({"requests_deferred": "none"})},
        {"before": moment(metrics=None, slots=((0, True, 0),))},
        {"before": moment(slots=((1, False, 0),))},
        {"after": moment(slots=((0, False, 0), (0, False, 0)))},
    ],
)
def test_a_server_that_works_for_others_is_not_idle(changes: dict[str, Any]) -> None:
    """A slot that processes, a request that waits, slots numbered otherwise, or a missing snapshot fails the check."""
    assert idle(replace(UNIT, **changes)) == failed("idle")


@pytest.mark.parametrize("missing", [{"slots": None}, {"metrics": None}])
def test_idle_is_weak_only_where_both_snapshots_lack_it(missing: dict[str, Any]) -> None:
    """An endpoint that answers once and then not, or the reverse, is no weak evidence but a failed check."""
    lacking = replace(moment(), **missing)
    assert idle(replace(UNIT, before=lacking, after=lacking)) == Judged("weak", "idle")
    assert idle(replace(UNIT, before=lacking)) == failed("idle")
    assert idle(replace(UNIT, after=lacking)) == failed("idle")


def test_a_counter_that_is_absent_leaves_idle_weak() -> None:
    """A server whose metrics do not say how many requests wait does not offer the check."""
    assert idle(replace(UNIT, after=moment({"requests_deferred": None}))) == Judged("weak", "idle")


@pytest.mark.parametrize(
    "changes",
    [
        {"after": moment({**AFTER, "prompt_tokens_total": "115"})},
        {"after": moment({**AFTER, "tokens_predicted_total": "55"})},
        {"after": moment({**AFTER, "tokens_predicted_total": "NaN"})},
        {"after": moment({**AFTER, "tokens_predicted_total": "5_6"})},
        {"flights": (FLIGHT, FLIGHT, None)},
        {"flights": (FLIGHT,)},
        # The one counter is too large to tell, but the other one contradicts.
        {"after": moment({"prompt_tokens_total": "1e+06", "tokens_predicted_total": "55"})},
    ],
)
def test_tokens_that_are_not_ours_fail_the_accounting(changes: dict[str, Any]) -> None:
    """A movement that differs by one, no number, or a request without reply fails the check."""
    assert accounting(replace(UNIT, **changes)) == failed("accounting")


@pytest.mark.parametrize(
    "changes",
    [
        {"before": replace(moment(), metrics=None)},
        {"after": replace(moment(), metrics=None)},
        {"after": moment({**AFTER, "prompt_tokens_total": None})},
        {"after": moment({**AFTER, "prompt_tokens_total": "1.00001e+06"})},
        {"flights": (FLIGHT, msgspec.structs.replace(FLIGHT, prompt_n=None))},
    ],
)
def test_accounting_is_weak_where_it_cannot_be_done(changes: dict[str, Any]) -> None:
    """No metrics, an absent counter, or one above the six printed digits leaves the question open."""
    assert accounting(replace(UNIT, **changes)) == Judged("weak", "accounting")


@pytest.mark.parametrize("counter", ["prompt_tokens_total", "tokens_predicted_total"])
def test_a_counter_that_fell_fails_the_accounting(counter: str) -> None:
    """Since the snapshot before it may stand still or rise; where it fell another process must have been there."""
    for count, judged in (("1", HELD), (COUNTERS[counter], HELD), ("101", failed("accounting"))):
        assert accounting(replace(UNIT, earlier=moment({counter: count}))) == judged
    assert accounting(replace(UNIT, earlier=moment({counter: "1.01e+06"}))) == failed("accounting")
    assert accounting(replace(UNIT, earlier=moment({counter: "101"}, process=TWO))) == HELD
    assert accounting(replace(UNIT, earlier=moment({counter: None}))) == HELD
    assert accounting(replace(UNIT, earlier=replace(moment(), metrics=None))) == HELD
    assert accounting(replace(UNIT, earlier=None)) == HELD


def test_accounting_is_exact_up_to_six_digits() -> None:
    """999999 is printed in full, so that the movement up to it must be exact."""
    before = moment({"prompt_tokens_total": "999985"})
    for after, judged in (
        ("999999", HELD),
        ("999998", failed("accounting")),
        ("1000000", Judged("weak", "accounting")),
    ):
        unit = replace(UNIT, before=before, after=moment({**AFTER, "prompt_tokens_total": after}))
        assert accounting(unit) == judged


START = Identity(props="p", process=ONE, lasting=("build", 8), explained=False)
RESTART = replace(START, process=TWO, explained=True)


def test_the_server_that_the_run_began_with_is_the_same() -> None:
    """Snapshots equal the latest server line, and a restart explains a new process."""
    assert same_server(UNIT, before=[START], after=[START]) == HELD
    moved = replace(UNIT, before=moment(process=TWO), after=moment(process=TWO))
    assert same_server(moved, before=[START, RESTART], after=[START, RESTART]) == HELD


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"after": None}, [START]),
        ({}, []),
        ({"after": moment(props="q")}, [START]),
        ({"before": moment(process=TWO)}, [START]),
        ({"before": moment(process=TWO), "after": moment(process=TWO)}, [START, replace(RESTART, explained=False)]),
        ({}, [replace(START, lasting=("other build", 8)), START]),
        ({}, [replace(START, props="q"), START]),
    ],
)
def test_another_server_is_not_the_same(changes: dict[str, Any], lines: list[Identity]) -> None:
    """Other settings, another process without a reason, another build, or no identity at all fail the check."""
    assert same_server(replace(UNIT, **changes), before=lines, after=lines) == failed("same server")


def test_a_failure_outweighs_a_weakness_and_the_first_of_each_is_named() -> None:
    """Several checks make one."""
    weak, weaker, bad, worse = Judged("weak", "a"), Judged("weak", "b"), failed("c"), failed("d")
    assert judge_all([HELD, weak, weaker]) == weak
    assert judge_all([weak, bad, worse]) == bad
    assert judge_all([]) == HELD
