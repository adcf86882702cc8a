"""The map shows each trial once, in time, on its slot's lane, with the class of its stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.analyse import judge_run
from audit.plan import Plan
from audit.report.run_map import STAVES_MAX, WIDTH, Map, Mark, class_letter, run_map
from tests.unit.analyse.simulated import Subject, plan_of, write
from tests.unit.report.reported import PLAN, WAVE, eventful


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> list[Map]:
    """Return the maps of the eventful run."""
    return run_map(judge_run(eventful(tmp_path_factory.mktemp("map") / "run")))


def names(plan: Plan) -> list[str]:
    """Return the trials of a plan."""
    blocks = plan.unfold("sha256:" + "0" * 64)
    return [trial.trial for block in blocks for unit in block.units for trial in unit.trials]


def marks(one: Map) -> dict[str, Mark]:
    """Return the named marks of a server."""
    named = [mark for stave in one.staves for mark in stave.marks if mark.named]
    assert len(named) == len({mark.trial for mark in named})
    return {mark.trial: mark for mark in named}


def test_every_answered_trial_has_one_named_mark(maps: list[Map]) -> None:
    """Also a trial of many requests, and one that failed."""
    planned = [
        trial.trial for block in PLAN.unfold("sha256:" + "0" * 64) for unit in block.units for trial in unit.trials
    ]
    assert set(marks(maps[0])) == set(planned)
    assert marks(maps[1])["stream_vs_whole/p/0"].shape == "f"


def test_outcomes_have_shapes_and_moved_classes_letters(maps: list[Map]) -> None:
    """The baseline's class is a; the first other stream of its prompt is b, wherever it appears again."""
    found = marks(maps[0])
    assert found["baseline/greedy/p"].shape == "b"
    assert found[f"{WAVE}/0"].shape == "t"
    assert found[f"{WAVE}/1"].shape == "i"
    assert found["concurrent_greedy_c4/p/0/w0/1"].shape == "d"
    assert "class a" in found[f"{WAVE}/1"].told
    assert {found[f"{WAVE}/0"].hue, found["concurrent_greedy_c4/p/0/w0/1"].hue} == {"k0", "k1"}
    assert found["repeat_greedy/p/0"].hue == ""
    assert found["canary/first"].shape == "s"
    assert (
        marks(maps[1])["concurrent_greedy_c6/p/0/w0/0"].shape == "x"
        if "concurrent_greedy_c6/p/0/w0/0" in marks(maps[1])
        else True
    )


def test_members_of_a_wave_share_its_stretch(maps: list[Map]) -> None:
    """Their lanes are their slots, and a box lies behind them."""
    found = marks(maps[0])
    one, two = found[f"{WAVE}/0"], found[f"{WAVE}/1"]
    assert (one.lane, two.lane) == (0, 1)
    box = next(
        box
        for stave in maps[0].staves
        if one in stave.marks
        for box in stave.waves
        if box.x <= one.x <= box.x + box.width
    )
    assert box.x <= two.x
    assert two.x + two.width <= box.x + box.width + 0.2


def test_nothing_lies_outside_of_its_stave(maps: list[Map]) -> None:
    """A request that goes on into the next stave is cut in two, of which one is named."""
    for one in maps:
        assert 0 < len(one.staves) <= STAVES_MAX + 1
        for stave in one.staves:
            assert all(mark.x >= 0 and mark.x + mark.width <= WIDTH + 0.2 for mark in stave.marks)
            assert all(0 <= mark.lane < len(one.lanes) for mark in stave.marks)


def test_a_run_without_an_answer_has_an_empty_map(tmp_path: Path) -> None:
    """Nothing is drawn of what was never answered, and nothing breaks."""
    plan = plan_of({"name": "repeat_greedy"})
    trials = [
        trial.trial for block in plan.unfold("sha256:" + "0" * 64) for unit in block.units for trial in unit.trials
    ]
    (one,) = run_map(judge_run(write(tmp_path / "run", Subject(plan=plan, failing=set(trials)))))
    assert {mark.shape for stave in one.staves for mark in stave.marks} == {"f"}


@pytest.mark.parametrize(("number", "letter"), [(0, "a"), (25, "z"), (26, "aa"), (51, "az"), (52, "ba"), (702, "aaa")])
def test_classes_are_counted_in_letters(number: int, letter: str) -> None:
    """Past z come two letters."""
    assert class_letter(number) == letter
