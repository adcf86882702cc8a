"""Advice: what was measured on the very build, else upstream's own words with their source, else nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit.advice import advice_of, advice_on_builds, build_key, entry_of, moved_cells, position

JSON = Any
DECLARED = {
    "build": "xllamacpp==1",
    "libraries": [{"name": "libggml.so", "sha256": "ab"}, {"name": "libm.so.6", "sha256": "cd"}],
    "model_sha256": "ef",
}
WAVE = ("s", "concurrent_greedy_c8")


def folder_of(path: Path, declared: JSON) -> Path:
    """Write as much of a run as advice reads."""
    (path / "facts").mkdir(parents=True)
    (path / "facts" / "11.json").write_text(json.dumps(declared))
    servers = [{"label": "s", "declaration": "sha256:11"}]
    (path / "manifest.json").write_text(json.dumps({"kind": "audit", "servers": servers}))
    return path


def table_of(path: Path, declared: JSON) -> Path:
    """Write a table of advice with one entry for a build."""
    remedies = [{"setting": "no-repack", "conditions": [WAVE[1]], "best": True}]
    named = {"build": "xllamacpp==1", "model": "m", "remedies": remedies, "source": "results/x"}
    path.write_text(json.dumps({"format": 1, "entries": [{"key": build_key(declared), **named}]}))
    return path


def test_the_setting_that_helped_on_this_very_build_is_named(tmp_path: Path) -> None:
    """With what it helped, and where that was measured."""
    run, table = folder_of(tmp_path / "run", DECLARED), table_of(tmp_path / "t.json", DECLARED)
    (line,) = advice_of(run, [WAVE], table=table)
    assert "no-repack made concurrent_greedy_c8 identical on this very build (xllamacpp==1)" in line
    assert "results/x" in line


@pytest.mark.parametrize(
    "change",
    [{"model_sha256": "00"}, {"libraries": [{"name": "libggml.so", "sha256": "00"}]}, {"libraries": []}],
)
def test_another_build_or_model_gets_upstreams_words(tmp_path: Path, change: dict[str, JSON]) -> None:
    """A setting that helps one build need not help the next; what upstream says has its source."""
    run, table = folder_of(tmp_path / "run", DECLARED | change), table_of(tmp_path / "t.json", DECLARED)
    lines = advice_of(run, [WAVE], table=table)
    assert not any("no-repack" in line for line in lines)
    assert position().source in lines[0]
    assert position().source.endswith("tools/server/README.md")


def test_a_condition_that_the_setting_did_not_help_gets_upstreams_words(tmp_path: Path) -> None:
    """The measured help is that of a condition, not of the build."""
    run, table = folder_of(tmp_path / "run", DECLARED), table_of(tmp_path / "t.json", DECLARED)
    lines = advice_of(run, [("s", "cache_warm1")], table=table)
    assert [position().source in lines[0], any("no-repack" in line for line in lines)] == [True, False]


@pytest.mark.parametrize("condition", ["repeat_greedy", "restart", "control_prompt", "stream_vs_whole"])
def test_where_nobody_has_said_anything_there_is_no_advice(tmp_path: Path, condition: str) -> None:
    """Upstream's words are about batches and caches alone."""
    assert advice_of(tmp_path, [("s", condition)]) == []


@pytest.mark.parametrize(("difference", "lines"), [({"ulp_max": 1}, 2), (None, 0)])
def test_two_builds_that_differ_get_upstreams_words(difference: JSON, lines: int) -> None:
    """Only where both ran and their rows differ: of a build that does not start nobody has said anything."""
    cells = [{"difference": None, "verdict": "IDENTICAL"}, {"difference": difference, "verdict": "DIFFERENT"}]
    found = advice_on_builds({"pairs": [{"cells": cells}]})
    assert [line.startswith("advice: ") for line in found] == [True] * lines
    assert not found or ("issues/12816" in found[0] and "determinism bisect" in found[1])


def test_the_systems_own_library_and_the_interpreter_are_no_part_of_a_build() -> None:
    """The embedded build's executable is Python; a program of one file is its own library."""
    without = {**DECLARED, "libraries": DECLARED["libraries"][:1]}
    assert build_key(DECLARED) == build_key(without) == build_key({**without, "executable_sha256": "12"})
    program = {"build": "binary:x", "executable_sha256": "12", "model_sha256": "ef"}
    assert build_key(program) != build_key({**program, "executable_sha256": "13"})
    assert build_key({"model_sha256": "ef"}) is None


def test_only_cells_that_moved_are_advised_on() -> None:
    """Neither identical ones nor ones without a result."""
    verdicts = ("identical", "divergent", "vacuous", "token-identical", "unstable")
    cells = [{"server": "s", "condition": verdict, "verdict": verdict} for verdict in verdicts]
    assert moved_cells({"cells": cells}) == [("s", "divergent"), ("s", "token-identical")]


def test_what_is_no_sound_remedy_has_no_entry(tmp_path: Path) -> None:
    """Neither another kind, nor an inconclusive one, nor a folder without findings."""
    assert entry_of(tmp_path, source="x") is None
    documents: list[JSON] = [{"kind": "audit", "sound": True}, {"kind": "remedy", "sound": False}, []]
    for document in documents:
        (tmp_path / "findings.json").write_text(json.dumps(document))
        assert entry_of(tmp_path, source="x") is None


def test_the_table_that_is_shipped_is_that_of_the_stored_remedies(repository: Path) -> None:
    """scripts/advice_table.py would change nothing."""
    command = [sys.executable, "-m", "scripts.advice_table", "--check"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stderr
