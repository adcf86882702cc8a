"""The script that renders stored runs again says ok only for the same bytes, and refuses everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.report import derive
from scripts.derived_files import main, runs, surroundings
from scripts.screenshots import SHOTS, SIZE_MAX
from tests.unit.analyse.simulated import Subject, plan_of, write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a small reported run."""
    write(tmp_path / "run", Subject(plan=plan_of({"name": "repeat_greedy"})))
    derive(tmp_path / "run", with_steps=True)
    return tmp_path / "run"


def test_the_same_bytes_are_ok(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With steps.csv where the run has it."""
    assert main([str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == ["ok    run: byte for byte", "derived files: 0 of 1 runs differ"]


@pytest.mark.parametrize("name", ["report.html", "cells.csv", "steps.csv", "findings.json"])
def test_other_bytes_fail_and_are_named(run: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Exit 1; with --write they are made anew, and are right again."""
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    assert main([str(run)]) == 1
    assert f"FAIL  run: {name}" in capsys.readouterr().out
    assert main(["--write", str(run)]) == 0
    assert main([str(run)]) == 0


def test_it_looks_at_every_stored_run(repository: Path) -> None:
    """Each sealed folder of results/ has derived files, so that none is passed over but a copy without its rows."""
    sealed = {path.parent.name for path in (repository / "results").glob("*/SHA256SUMS")} - {"local"}
    looked_at = {folder.name for folder in runs(repository / "results")}
    assert sealed - looked_at == {"2026-11-30-identity-epochs-gemma"}
    assert looked_at < sealed
    assert surroundings()["TZ"] != "UTC"


def test_the_pictures_are_there_and_small(repository: Path) -> None:
    """Each that the script takes, and no other."""
    pictures = {path.name: path.stat().st_size for path in (repository / "docs" / "assets").glob("*.png")}
    assert set(pictures) == {f"{shot.name}.png" for shot in SHOTS}
    assert max(pictures.values()) < SIZE_MAX
