"""The README's table of remedies is that of the stored ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.remedies_table import price, shown

JSON = Any


def test_the_readme_shows_the_stored_remedies(repository: Path) -> None:
    """scripts/remedies_table.py would change nothing."""
    command = [sys.executable, "-m", "scripts.remedies_table", "--check"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stderr


def row(setting: str, status: str, per_second: float | None) -> JSON:
    """Return a row of findings as far as the table reads it."""
    cell = {"condition": "cache_warm1", "status": status, "by_wave": {"n": 3, "high": 0.631597, "divergent": 0}}
    return {"setting": setting, "cells": [cell], "together": None if per_second is None else {"per_second": per_second}}


def test_a_remedy_is_shown_with_its_bound_and_price() -> None:
    """Only what is confirmed is a remedy; without a speed there is no price."""
    waves = {"n": 3, "divergent": 3, "high": 1.0}
    condition = {"condition": "cache_warm1", "verdict": "divergent", "moved": True, "by_wave": waves}
    found = {
        "conditions": [condition], "level": 8, "without": {"together": {"per_second": 100.0}},
        "settings": [row("ub-1", "remedy", 50.0), row("kvu", "unconfirmed", 90.0)],
    }  # fmt: skip
    assert shown(found, "cache_warm1") == "3/3 moved; `ub-1` (0/3, rate at most 0.63, -50 % tokens/s at 8)"
    assert shown(found, "concurrent_greedy_c8") == "not planned"
    assert price(found, row("x", "remedy", None)) == ""
    assert shown({**found, "settings": []}, "cache_warm1") == "3/3 moved; no remedy among those tried"
    rare = {**found, "settings": [row("ub-1", "too rare", 50.0), row("kvu", "diverges", 90.0)]}
    assert shown(rare, "cache_warm1") == "3/3 moved; too rare to tell, `ub-1` 0/3"
    unmoved = {**condition, "moved": False, "verdict": "identical"}
    assert shown({**found, "conditions": [unmoved]}, "cache_warm1") == "identical without any setting"
