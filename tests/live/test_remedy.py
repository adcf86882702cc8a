"""A remedy of a real llama.cpp build on a model of random weights, and a cell isolated on it.

No setting is asserted to help: that depends on the processor and the build. That every start is a sound audit, that the
table follows from them, that memory and speed are there, and that one slot serializes, does not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from audit.local.launch import LaunchSettings
from audit.local.models import resolve_model
from audit.remedy.catalogue import named
from audit.remedy.launcher import LlamaLauncher
from audit.remedy.measure import measure
from audit.remedy.page import derive_remedy
from audit.remedy.plan import RemedyPlan
from tests.integration.auditing import plan_of
from tests.integration.remedying import agree

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

# The models in F32 diverge at 8 on every processor that was tried; one thread, see test_tiny_audit.py.
MODEL, LEVEL = "tiny-llama-f32", 8
PLAN = plan_of(
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [LEVEL], "count": 3, "minimum": LEVEL},
    {"name": "cache", "prompts": ["story"], "opener": "b"},
    steps=96,
    n_probs=10,
    canary={"prompt": "a", "steps": 1},
)


def test_two_settings_of_a_real_build_are_measured(tmp_path: Path) -> None:
    """-ub 1 and -np 1: each start an audit, the same judged by both programs, and -np 1 no remedy but serialized."""
    launcher = LlamaLauncher(file=resolve_model(MODEL), base=LaunchSettings(slots=LEVEL, ctx_per_slot=512, threads=1))
    plan = RemedyPlan.of(PLAN, rounds=1, confirmed_max=1)
    folder = tmp_path / "run"
    said: list[str] = []
    assert measure(plan, launcher, named(["ub-1", "np-1"]), folder, perform=asyncio.run, say=said.append) is not None
    document = derive_remedy(folder)
    agree(folder, document)
    assert document["build"].startswith("xllamacpp==")
    first, *others = document["arms"]
    assert (first["role"], first["setting"], first["sound"]) == ("before", "", True)
    assert all(arm["memory_bytes"] > 1 << 20 for arm in document["arms"])
    assert first["solo"]["tokens"] > 0
    wave = next(one for one in document["conditions"] if one["condition"] == f"concurrent_greedy_c{LEVEL}")
    if not wave["moved"]:
        pytest.skip(f"this processor lacks what moves {MODEL} at {LEVEL}")
    assert {arm["setting"] for arm in others} >= {"ub-1", "np-1"}
    rows = {row["setting"]: row for row in document["settings"]}
    statuses = {cell["condition"]: cell["status"] for cell in rows["np-1"]["cells"]}
    assert statuses[f"concurrent_greedy_c{LEVEL}"] == "serialized"
    assert "-ub 1" in " ".join(rows["ub-1"]["argv"])
    text = b"".join(path.read_bytes() for path in folder.rglob("*.json*"))
    assert str(Path.home()).encode() + b"/" not in text
