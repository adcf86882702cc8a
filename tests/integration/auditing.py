"""A whole audit in a test: run a small plan against fake servers, judge it twice, and let the two programs agree.

In: settings of fakes and entries of a plan. Out: the findings, as `audit.analyse` computes them and `scripts/verify.py`
confirms them. It starts nothing but fakes and the verifier.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.capture import Progress, capture
from audit.client import Address
from audit.fake import FakeSettings, FakeThread, Faults
from audit.order import Order
from audit.plan import Plan
from audit.report import derive
from audit.sitting import Target
from audit.store import Run
from audit.stream import digest

JSON = Any
REPOSITORY = Path(__file__).resolve().parents[2]
VERIFIER = REPOSITORY / "scripts" / "verify.py"
STORY = "{block} is the number on the door of the archive; behind it lie the letters of a family that moved every year"
CONTROLS: list[dict[str, JSON]] = [
    {"name": name, "prompts": ["a", "b"]} for name in ("control_prompt", "control_seed", "control_temperature")
]
STEP_MS = 5.0  # long enough that overlap shows in the windows of a machine that others use too


def plan_of(*conditions: dict[str, JSON], controls: bool = True, **more: JSON) -> Plan:
    """Return a plan of these entries, with the controls that a sound run needs."""
    return Plan.parse(
        {
            "name": "small",
            "steps": 12,
            "n_probs": 5,
            "pace_per_second": 1000.0,
            "canary": {"prompt": "a"},
            "prompts": {
                "a": {"text": "Once upon a time there was"},
                "b": {"text": "def median(values):"},
                "story": {"text": STORY},
            },
            "conditions": [*conditions, *(CONTROLS if controls else [])],
            **more,
        }
    )


def fake_of(*, slots: int = 8, step_ms: float = STEP_MS, **more: JSON) -> FakeThread:
    """Return a fake server that is still to be started; what is no setting is a fault."""
    settings = {name: more.pop(name) for name in list(more) if name in FakeSettings.__dataclass_fields__}
    return FakeThread(FakeSettings(slots=slots, step_ms=step_ms, faults=Faults(**more), **settings))


@dataclass(frozen=True)
class Owner:
    """Restarts a fake as if it were a server of our own."""

    fake: FakeThread

    def restart(self) -> None:
        """Replace the process."""
        self.fake.restart()

    def abort(self) -> None:
        """End nothing: a fake belongs to its test."""

    def declaration(self) -> dict[str, JSON]:
        """Return what the operator knows."""
        return {"argv": ["fake"]}


def run(
    folder: Path,
    plan: Plan,
    *targets: Target,
    report: Callable[[Progress], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a plan against servers and return the seal."""
    order = Order(plan=plan, registered=digest(plan.to_bytes()))
    return asyncio.run(capture(order, list(targets), folder, report=report, stopped=stopped))


def target(url: str, label: str = "s", **more: JSON) -> Target:
    """Return a server to audit."""
    return Target(address=Address(label=label, url=url), **more)


def verify(folder: Path) -> tuple[int, dict[str, JSON]]:
    """Let the verifier look at a run: its exit code and its report."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(VERIFIER), "--json", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["exit"] == done.returncode
    (report,) = document["runs"]
    return done.returncode, report


@dataclass(frozen=True)
class Found:
    """The findings of a sealed run, on which both programs agreed."""

    document: dict[str, JSON]
    run: Run

    def cell(self, condition: str, server: str = "s") -> dict[str, JSON]:
        """Return one cell."""
        cells = self.document["cells"]
        found: dict[str, JSON] = next(c for c in cells if (c["condition"], c["server"]) == (condition, server))
        return found

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of every cell, by condition, of the first server."""
        return {cell["condition"]: cell["verdict"] for cell in reversed(self.document["cells"])}

    def check(self, name: str) -> tuple[str, int, int]:
        """Return status, k and n of an instrument check."""
        entry = next(entry for entry in self.document["instrument"] if entry["check"] == name)
        return entry["status"], entry["k"], entry["n"]

    def lines(self, kind: str) -> list[dict[str, JSON]]:
        """Return the lines of one kind."""
        return lines(self.run.folder, kind)


def lines(folder: Path, kind: str) -> list[dict[str, JSON]]:
    """Return the complete lines of one kind, as they stand in the history."""
    data = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    return [line for line in map(json.loads, (one for one in data if one.endswith(b"\n"))) if line["line"] == kind]


def compared(document: dict[str, JSON]) -> dict[str, JSON]:
    """Return findings without the two fields of a cell that docs/reference/verdicts.md leaves out of the comparison."""
    cells = [{k: v for k, v in cell.items() if k not in {"reason", "consequence"}} for cell in document["cells"]]
    return {**document, "cells": cells}


def judge(folder: Path) -> Found:
    """Judge a sealed run with both programs, which must agree in every field and in the exit code."""
    document, _ = derive(folder)
    code, report = verify(folder)
    assert report["contradictions"] == []
    assert compared(report["findings"]) == compared(document)
    assert code == (0 if document["sound"] else 3)
    return Found(document, Run.open(folder))


def audit(folder: Path, plan: Plan, **settings: JSON) -> Found:
    """Run a plan against one fake server and judge it."""
    with fake_of(**settings) as fake:
        assert run(folder, plan, target(fake.url)) is not None
    return judge(folder)
