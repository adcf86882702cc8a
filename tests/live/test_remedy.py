"""A remedy of a real llama.cpp build on a model of random weights, and a cell isolated on it.

No setting is asserted to help: that depends on the processor and the build. That every start is a sound audit, that the
table follows from them, that memory and speed are there, and that one slot serializes, does not.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from audit.cli import _run as run_command_line
from audit.local.launch import LaunchSettings
from audit.local.models import resolve_model
from audit.remedy.catalogue import named
from audit.remedy.launcher import LlamaLauncher
from audit.remedy.measure import measure
from audit.remedy.page import derive_remedy
from audit.remedy.plan import RemedyPlan
from tests.conftest import PROCESSOR
from tests.integration.auditing import plan_of
from tests.integration.remedying import agree
from tests.integration.test_remedy_resume import cut_after, lines_of

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

# The models in F32 diverge at 8 on every processor that was tried; one thread, see test_tiny_audit.py.
MODEL, LEVEL = "tiny-llama-f32", 8
WAVE = f"concurrent_greedy_c{LEVEL}"
JSON = Any
PLAN = plan_of(
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [LEVEL], "count": 3, "minimum": LEVEL},
    {"name": "cache", "prompts": ["story"], "opener": "b"},
    steps=96,
    n_probs=10,
    canary={"prompt": "a", "steps": 1},
)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JSON]:
    """-ub 1 and -np 1 of the embedded build, measured, and judged alike by both programs."""
    launcher = LlamaLauncher(file=resolve_model(MODEL), base=LaunchSettings(slots=LEVEL, ctx_per_slot=512, threads=1))
    plan = RemedyPlan.of(PLAN, rounds=1, confirmed_max=1)
    folder = tmp_path_factory.mktemp("remedy") / "run"
    settings = named(["ub-1", "np-1"])
    assert measure(plan, launcher, settings, folder, perform=asyncio.run, say=lambda _: None) is not None
    document = derive_remedy(folder)
    agree(folder, document)
    wave = next(one for one in document["conditions"] if one["condition"] == WAVE)
    if not wave["moved"]:
        pytest.skip(f"{PROCESSOR} what moves {MODEL} at {LEVEL}")
    return folder, document


def test_two_settings_of_a_real_build_are_measured(record: tuple[Path, JSON]) -> None:
    """Each start is a sound audit with speed and memory; -np 1 only serializes; no path of this machine is stored."""
    folder, document = record
    assert document["build"].startswith("xllamacpp==")
    first, *others = document["arms"]
    assert (first["role"], first["setting"], first["sound"]) == ("before", "", True)
    assert all(arm["memory_bytes"] > 1 << 20 for arm in document["arms"])
    assert first["solo"]["tokens"] > 0
    assert {arm["setting"] for arm in others} >= {"ub-1", "np-1"}
    rows = {row["setting"]: row for row in document["settings"]}
    statuses = {cell["condition"]: cell["status"] for cell in rows["np-1"]["cells"]}
    assert statuses[WAVE] == "serialized"
    assert "-ub 1" in " ".join(rows["ub-1"]["argv"])
    text = b"".join(path.read_bytes() for path in folder.rglob("*.json*"))
    assert str(Path.home()).encode() + b"/" not in text


def test_a_remedy_of_a_real_build_is_taken_up(record: tuple[Path, JSON], tmp_path: Path) -> None:
    """By the command, as if it had been killed before its last start; another context is refused by the server line."""
    lines = lines_of(record[0])
    last = max(at for at, line in enumerate(lines) if line["line"] == "arm")
    folder = cut_after(record[0], tmp_path / "run", last)
    words = ["remedy", "--resume", str(folder), "--model", MODEL, "--setting", "ub-1", "--setting", "np-1"]
    words += ["--slots", str(LEVEL), "--threads", "1", "--ctx"]
    assert run_command_line([*words, "1024"]) == 2
    assert lines_of(folder) == lines[:last]
    assert run_command_line([*words, "512"]) in {0, 3}
    again = lines_of(folder)
    assert [line["line"] for line in again[last:]] == ["resume", *(line["line"] for line in lines[last:])]
    assert again[last + 1]["settings"] == lines[last]["settings"]
    agree(folder, json.loads((folder / "findings.json").read_bytes()))


def test_the_batch_of_a_real_build_is_isolated(record: tuple[Path, JSON], tmp_path: Path) -> None:
    """A start is an audit, so that its cell can be isolated on the settings that it declares."""
    arm = record[0] / "arms" / record[1]["arms"][0]["arm"]
    words = ["--local", MODEL, "--tries", "1", "--runs", "2", "--out", str(tmp_path / "pack")]
    assert run_command_line(["isolate", str(arm), WAVE, *words]) in {0, 3}
    result = json.loads((tmp_path / "pack" / "result.json").read_bytes())
    assert result["tried"][0] == {"factor": "number", "words": f"0 of {LEVEL - 1} neighbours", "k": 0, "n": 1}
    assert result["whole"]["k"] > 0
    assert f"-np {LEVEL} " in (tmp_path / "pack" / "server.txt").read_text()
