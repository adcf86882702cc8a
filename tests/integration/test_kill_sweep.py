"""A few moments of scripts/kill_sweep.py in the gate: killed with -9, resumed, and equal to what nobody disturbed."""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path

import pytest

from audit.fake import FakeSettings, FakeThread
from scripts.kill_sweep import STEP_MS, Sweep


def test_runs_that_are_killed_at_random_moments_find_what_an_undisturbed_one_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs, killed up to three times each; the seed of the moments is printed, and differs each time."""
    seed = random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    with FakeThread(FakeSettings(slots=4, step_ms=STEP_MS)) as fake:
        sweep = Sweep(tmp_path, fake.url, seed=seed)
        assert sweep.undisturbed.exit == 0
        assert [sweep.disturb(str(number), kills) for number, kills in enumerate((1, 3))] == [[], []], f"seed {seed}"
    # The comparison is no wall: one digest, one count, one exit code that is another is found.
    alone = sweep.undisturbed
    trial = {**alone.trials[0], "logprob": "sha256:0", "vacuous": False}
    cell = {**alone.cells[0], "accounted": 0}
    for other in (
        dataclasses.replace(alone, exit=3),
        dataclasses.replace(alone, trials=[trial, *alone.trials[1:]]),
        dataclasses.replace(alone, cells=[cell, *alone.cells[1:]]),
    ):
        assert len(alone.differences(other)) == 1
    assert f"seed {seed}" in capsys.readouterr().out
