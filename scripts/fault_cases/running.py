"""Runs a plan against a faulty fake and judges the record twice, all in this process.

In: a plan, settings of a fake and faults. Out: what both programs found. The verifier is loaded from its file, as it
stands; the two programs share no code, only a process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from audit.capture import capture
from audit.client import Address
from audit.fake import FakeServer, FakeSettings
from audit.order import Order
from audit.plan import Plan
from audit.report import derive
from audit.report.text import verdict_code
from audit.sitting import Target
from audit.stream import digest
from scripts.fault_cases.direct import Owner, in_memory

__all__ = ["Judged", "judge", "record", "verifier"]

_VERIFIER = Path(__file__).resolve().parents[1] / "verify.py"


@cache
def verifier() -> ModuleType:
    """Load scripts/verify.py."""
    spec = importlib.util.spec_from_file_location("verify_in_process", _VERIFIER)
    if spec is None or spec.loader is None:
        raise AssertionError("the verifier is not where it was")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def record(folder: Path, plan: Plan, settings: FakeSettings, *, direct: bool) -> str | None:
    """Run a plan against one fake, owned and labelled `s`.

    Args:
        folder: where the record goes.
        plan: what is run, without a registration.
        settings: the fake.
        direct: whether requests go through memory instead of a socket.

    Returns: the seal.
    Raises: ServerError and what else ends a run.
    """

    async def run() -> str | None:
        async with FakeServer(settings) as server:
            target = Target(address=Address(label="s", url=server.url), owned=Owner(server))
            order = Order(plan=plan, registered=digest(plan.to_bytes()))
            with in_memory(server) if direct else nullcontext():
                return await capture(order, [target], folder, report=lambda _: None)

    # Nothing made here has to outlive a power cut, and to wait for the medium after each unit is most of the time.
    with patch("os.fsync"):
        return asyncio.run(run())


@dataclass(frozen=True)
class Judged:
    """What the two programs made of one record.

    Attributes:
        findings: the audit's.
        code: its exit code.
        other: the verifier's report, with its own findings and exit code.
    """

    findings: dict[str, Any]
    code: int
    other: dict[str, Any]

    @property
    def disagreements(self) -> list[str]:
        """What the two do not agree on, or contradicts itself; empty where all is well."""
        found = [f"{one['check']}: {one['message']}" for one in self.other["contradictions"]]
        if self.other["exit"] != self.code:
            found.append(f"exit {self.code} here, {self.other['exit']} there: {self.other['sentence']}")
        if compared(self.other["findings"]) != compared(self.findings):
            found.append("the findings differ")
        return found

    @property
    def cells(self) -> dict[str, dict[str, Any]]:
        """The cells by condition."""
        return {cell["condition"]: cell for cell in self.findings["cells"]}

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdicts by condition."""
        return {condition: cell["verdict"] for condition, cell in self.cells.items()}

    @property
    def instrument(self) -> dict[str, str]:
        """The status of every instrument check that did not hold."""
        entries = self.findings["instrument"]
        return {entry["check"]: entry["status"] for entry in entries if entry["status"] != "held"}


def compared(findings: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return findings without the two fields of a cell that docs/reference/verdicts.md leaves out of the comparison."""
    if findings is None:
        return None
    cells = [{k: v for k, v in cell.items() if k not in {"reason", "consequence"}} for cell in findings["cells"]]
    return {**findings, "cells": cells}


def judge(folder: Path) -> Judged:
    """Judge a sealed record with both programs."""
    findings, _ = derive(folder)
    options = argparse.Namespace(expect=None, level="bytes", repo=None, demand=False)
    return Judged(findings, verdict_code(findings, strict=False), verifier().verify(folder, options))
