"""The plan of a remedy: formed from that of an audit, cut down for screening, read back strictly."""

from __future__ import annotations

import json

import pytest

from audit.cli.options import DATA
from audit.errors import EvidenceError, PlanError
from audit.plan import Plan
from audit.remedy.plan import RemedyPlan, is_wave, level_of
from tests.integration.auditing import plan_of


def plan() -> RemedyPlan:
    """Return a plan with waves of two levels, a mixed batch and the cache."""
    return RemedyPlan.of(
        plan_of(
            {"name": "repeat_greedy", "prompts": ["a"], "count": 3},
            {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2, 4], "count": 5, "again": 1},
            {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["a", "b"], "count": 4},
            {"name": "cache", "prompts": ["story"], "opener": "b", "count": 2},
        ),
        rounds=2,
        confirmed_max=3,
    )


def test_every_condition_that_a_setting_could_remedy_is_an_aim() -> None:
    """Waves, mixed batches and reuse; of a cache block the cold cell reuses nothing."""
    assert plan().aims == [
        "concurrent_greedy_c2", "concurrent_greedy_c4", "cross_batch_together", "cache_warm1", "cache_warm2",
    ]  # fmt: skip
    assert [is_wave(aim) for aim in plan().aims] == [True, True, True, False, False]
    assert level_of(plan().confirm) == 4


def test_screening_asks_each_condition_once_and_no_control() -> None:
    """It is meant to find what diverges, quickly; what it leaves is confirmed with the whole plan."""
    screen = plan().screen
    assert [(entry.name, entry.count, entry.again) for entry in screen.conditions] == [
        ("concurrent_greedy", 1, 0), ("cross_batch_together", 1, 0), ("cache", 1, 0),
    ]  # fmt: skip


def test_a_later_round_asks_only_what_has_not_diverged() -> None:
    """Levels are left out by themselves, and one warm cell keeps its whole block."""
    asked = plan().asked("screen", ["concurrent_greedy_c2", "cache_warm2"])
    assert [(entry.name, entry.levels) for entry in asked.conditions] == [("concurrent_greedy", [2]), ("cache", [])]


@pytest.mark.parametrize("role", ["before", "confirm", "after"])
def test_what_proves_something_is_asked_the_whole_plan(role: str) -> None:
    """The same requests, to the byte, in the order of the same digest: only then are they the same waves."""
    assert plan().asked(role, []) == plan().confirm


def test_a_plan_without_such_a_condition_is_refused() -> None:
    """Repeats alone have no remedy."""
    with pytest.raises(PlanError, match="no condition that a setting could remedy"):
        RemedyPlan.of(plan_of({"name": "repeat_greedy", "prompts": ["a"]}), rounds=1, confirmed_max=1)


def test_a_stored_plan_is_read_back_and_a_strange_one_refused() -> None:
    """Canonical, complete, and without an aim that none of its entries has."""
    assert RemedyPlan.from_bytes(plan().to_bytes()) == plan()
    values = json.loads(plan().to_bytes())
    for change in ({"aims": ["restart"]}, {"format": 2}, {"speed": 1}):
        with pytest.raises(EvidenceError, match=r"plan\.json is no plan of a remedy"):
            RemedyPlan.from_bytes(json.dumps({**values, **change}).encode())


def test_the_plan_that_is_shipped_can_be_asked() -> None:
    """With three sorts of conditions, at least 16 waves at once, and the controls that a sound run needs."""
    shipped = RemedyPlan.of(Plan.load(DATA / "remedy.toml"), rounds=2, confirmed_max=3)
    assert shipped.aims == ["concurrent_greedy_c8", "cross_batch_together", "cache_warm1", "cache_warm2"]
    waves = [entry.count * len(entry.prompts) for entry in shipped.confirm.conditions if entry.levels]
    assert sum(waves) >= 16
    controls = {entry.name for entry in shipped.confirm.conditions if entry.name.startswith("control_")}
    assert controls == {"control_prompt", "control_seed", "control_temperature"}
