"""A thousand clean trials raise no alarm, and the smallest fault is found and located in each of a thousand others."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.fake import FakeSettings, Faults
from scripts import fault_mixtures, sensitivity
from scripts.fault_cases.plans import requests
from scripts.fault_cases.running import Judged, judge, record

TRIALS = 1000


def test_a_thousand_clean_trials_raise_no_alarm(tmp_path: Path) -> None:
    """Every trial is identical, every check holds, and both programs exit with 0."""
    assert sensitivity.measure(tmp_path / "run", TRIALS, None) == sensitivity.Counts(TRIALS, 0, 0, ())


def test_a_thousand_smallest_faults_are_found_and_located(tmp_path: Path) -> None:
    """One float32 in one top-k entry of one step of each trial: found by both programs, where it was planted."""
    assert sensitivity.measure(tmp_path / "run", TRIALS, 7) == sensitivity.Counts(TRIALS, TRIALS, TRIALS, ())


def test_one_request_in_a_thousand_is_found(tmp_path: Path) -> None:
    """Of a thousand repeats the one that was hit is not identical, and the cell is not either."""
    plan = sensitivity.plan_of(TRIALS)
    faults = Faults(jitter_once_in=TRIALS)
    record(
        tmp_path / "run", plan, FakeSettings(slots=1, step_ms=0.0, prefill_ms_per_token=0.0, faults=faults), direct=True
    )
    judged = judge(tmp_path / "run")
    assert judged.disagreements == []
    cell = judged.cells["repeat_greedy"]
    hit = requests(plan)[TRIALS - 1][0]
    assert (cell["verdict"], cell["usable"], cell["logprob_identical"]) == ("token-identical", TRIALS, TRIALS - 1)
    assert cell["witness"]["trial"] == hit


def test_the_measurement_fails_where_a_fault_is_missed_or_raised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that plants nothing is not mistaken for a program that finds everything, nor the reverse."""
    for clean, faulty in ((0, 9), (1, 10), (0, 10)):
        counts = {None: sensitivity.Counts(10, clean, 0, ()), 1: sensitivity.Counts(10, faulty, faulty, ())}
        monkeypatch.setattr(sensitivity, "measure", lambda _folder, _count, seed, counts=counts: counts[seed])
        assert sensitivity.main(["--trials", "10"]) == int((clean, faulty) != (0, 10))
        assert f"{faulty} of 10 found, {faulty} located" in capsys.readouterr().out


def test_mixtures_of_faults_are_judged_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of the random mixtures; scripts/fault_mixtures.py runs as many as one likes."""
    assert fault_mixtures.main(["--count", "4", "--seed", "3"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("4 mixtures of seed 3: ")
    assert last.endswith("; 0 wrong")


def test_the_same_seed_makes_the_same_mixtures() -> None:
    """A mixture can be made again from what was printed; another seed makes others."""
    first = [str(mixture) for mixture in fault_mixtures.mixtures(30, 5)]
    assert first == [str(mixture) for mixture in fault_mixtures.mixtures(30, 5)]
    assert first != [str(mixture) for mixture in fault_mixtures.mixtures(30, 6)]
    assert len(set(first)) == 30


def test_a_mixture_that_is_judged_differently_or_breaks_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disagreement and an exception both make the exit code 1, and are printed with the mixture."""
    monkeypatch.setattr(fault_mixtures, "record", lambda *_, **__: None)
    wrong = Judged({"cells": []}, 0, {"contradictions": [], "exit": 3, "sentence": "inconclusive", "findings": None})
    monkeypatch.setattr(fault_mixtures, "judge", lambda _: wrong)
    assert fault_mixtures.main(["--count", "1", "--seed", "1"]) == 1
    assert "WRONG: exit 0 here, 3 there: inconclusive" in capsys.readouterr().out
    monkeypatch.delattr(fault_mixtures, "judge")
    assert fault_mixtures.main(["--count", "1", "--seed", "1"]) == 1
    assert "NameError" in capsys.readouterr().out
