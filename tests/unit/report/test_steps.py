"""The table of steps says where and by how much each moved stream left its reference."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from audit.analyse import judge_run
from audit.report.steps import COLUMNS, step_table
from tests.unit.report.reported import WAVE, eventful


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the steps of the eventful run."""
    judged = judge_run(eventful(tmp_path_factory.mktemp("steps") / "run"))
    return step_table(judged.run, judged.trials)


def test_it_has_the_columns_that_it_promises(table: pd.DataFrame) -> None:
    """In this order, so that a reader of steps.csv can rely on it."""
    assert tuple(table.columns) == COLUMNS


def test_one_float32_is_one_ulp_at_its_step_and_nowhere_else(table: pd.DataFrame) -> None:
    """All eight steps are compared, and only step 3 moved."""
    own = table[table["trial"] == f"{WAVE}/0"]
    assert own["step"].tolist() == list(range(8))
    assert own.loc[own["moved"], "step"].tolist() == [3]
    assert own.loc[own["moved"], "ulp"].tolist() == [1]
    assert own.loc[~own["moved"], "nats"].tolist() == [0.0] * 7
    assert not own["flipped"].any()


def test_nothing_is_compared_after_another_token(table: pd.DataFrame) -> None:
    """The last row of a pair is the one whose token differs."""
    own = table[table["trial"] == "concurrent_greedy_c4/p/0/w0/1"]
    assert own["step"].tolist() == list(range(6))
    assert own["flipped"].tolist() == [False] * 5 + [True]


def test_controls_are_not_in_it(table: pd.DataFrame) -> None:
    """They must differ, and say nothing about jitter."""
    assert not table["condition"].str.startswith("control_").any()
    assert set(table["condition"]) >= {"concurrent_greedy_c2", "concurrent_greedy_c4", "cache_warm1"}


def test_without_streams_it_is_empty(tmp_path: Path) -> None:
    """A copy that leaves streams out has no steps, and its columns all the same."""
    run = eventful(tmp_path / "run")
    judged = judge_run(run)
    for path in (run.folder / "streams").iterdir():
        path.unlink()
    table = step_table(run, judged.trials)
    assert table.empty
    assert tuple(table.columns) == COLUMNS
