"""How a budget is spent: screening leaves time to confirm, and a confirmation is begun only with its start after it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from audit.remedy.measure import Measuring
from audit.store import RunWriter
from tests.integration.remedying import FakeLauncher, remedy_plan


def measuring(folder: Path, *, budget_s: float | None, spent_s: float, before_s: float) -> Measuring:
    """Return a remedy that has been going on for some time, whose first start took some of it."""
    return Measuring(
        plan=remedy_plan(confirmed_max=3),
        launcher=FakeLauncher(faults=lambda _: {}),
        settings=(),
        writer=RunWriter(folder),
        perform=asyncio.run,
        say=lambda _: None,
        stopped=lambda: False,
        budget_s=budget_s,
        begun_s=time.monotonic() - spent_s,
        took_s={"before": before_s, "screen": 10.0},
    )


@pytest.mark.parametrize(
    ("budget_s", "before_s", "reserve_s"), [(1200.0, 60.0, 360.0), (1200.0, 150.0, 600.0), (None, 60.0, 0.0)]
)
def test_screening_leaves_time_to_confirm_but_at_most_half(
    tmp_path: Path, budget_s: float | None, before_s: float, reserve_s: float
) -> None:
    """Three settings with a start after each, at what the first start took."""
    assert measuring(tmp_path / "run", budget_s=budget_s, spent_s=0.0, before_s=before_s).reserve_s() == reserve_s


@pytest.mark.parametrize(("spent_s", "begun"), [(100.0, True), (300.0, True), (400.0, False)])
def test_nothing_is_begun_that_would_end_too_late(tmp_path: Path, spent_s: float, begun: bool) -> None:
    """A start of 60 s with another after it, of 500 s."""
    going = measuring(tmp_path / "run", budget_s=500.0, spent_s=spent_s, before_s=60.0)
    assert going.time_for("before", reserve_s=60.0) is begun


def test_without_a_budget_there_is_always_time(tmp_path: Path) -> None:
    """However long it has been going on."""
    going = measuring(tmp_path / "run", budget_s=None, spent_s=1e6, before_s=60.0)
    assert going.time_for("screen", reserve_s=1e6)
