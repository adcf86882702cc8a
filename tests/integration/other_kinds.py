"""Records of the other kinds to be shown: ones whose every text is hostile, and what differs in them.

In: where to write, and for accuracy a stored check whose copy is forged. Out: sealed folders with their derived files.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from audit.accuracy.findings import derive_check
from audit.identity.record import Library
from audit.identity.running import Outcome
from audit.stream import canonical
from tests.integration.accuracy_study import Forged
from tests.integration.comparing import build, failed, record
from tests.integration.remedying import measured, remedy_plan
from tests.unit.report.reported import HOSTILE

JSON = Any


def one_value_moved(family: str, _run: int, came: Outcome) -> Outcome:
    """Move one value of one row of gemma2 by one ULP; let every process name a hostile library."""
    answers = []
    for answer in came.answers:
        assert answer.rows is not None
        rows = answer.rows.copy()
        if family == "gemma2" and answer.job.prompt == "short":
            rows[2, 9] = np.nextafter(rows[2, 9], np.float32(-np.inf))
        answers.append(dataclasses.replace(answer, rows=rows))
    return dataclasses.replace(came, answers=answers, libraries=[Library(name=HOSTILE, sha256=None)])


def only_llama(family: str, _run: int, came: Outcome) -> Outcome:
    """Fail on everything but llama, with a hostile message."""
    return came if family == "llama" else failed("crash", HOSTILE)


def hostile_identity(folder: Path) -> JSON:
    """Compare three builds with hostile names: one moves a value of gemma2, the next does not run it."""
    builds = [
        build("a", name=HOSTILE, options=[HOSTILE]),
        build("b", change=one_value_moved, name=f"b {HOSTILE}"),
        build("c", change=only_llama, name=f"c {HOSTILE}", restarts=False, source="http"),
    ]
    return record(folder, *builds, families=("llama", "gemma2"), not_run={"x": HOSTILE, HOSTILE: HOSTILE})


def hostile_remedy(folder: Path) -> JSON:
    """Measure a setting that keeps the cache still; model and message of a start that failed are hostile.

    Its plan has no wave, so that nothing depends on what else the machine does.
    """
    whole = remedy_plan()
    kept = [entry for entry in whole.confirm.conditions if not entry.name.startswith(("concurrent", "cross"))]
    plan = type(whole).of(whole.confirm.model_copy(update={"conditions": kept}), rounds=1, confirmed_max=1)
    return measured(
        folder, lambda names: {"step_ms": 1.0, "jitter_cached": "no-repack" not in names},
        "no-repack", "fa-off", "kvu", "swa-full",
        plan=plan, unknown=frozenset({"swa-full"}), broken=frozenset({"kvu"}), model=HOSTILE, message=HOSTILE,
    ).document  # fmt: skip


def hostile_accuracy(stored: Path, folder: Path) -> JSON:
    """Forge a stored check: hostile words where one is free to say anything, and a bound that rows exceed.

    Only the page is looked at; a verifier refuses such a check.
    """
    forged = Forged(stored)
    forged.manifest["machine"]["cpu"] = HOSTILE
    named = forged.of("inputs")[0]["files"]
    bounds = json.loads(forged.files[f"facts/{named[1]['sha256'][7:]}.json"])
    for model in bounds["models"].values():
        model["bounds"]["max_abs"] = 0.5
    digest = forged.store("facts", canonical(bounds), ".json")
    named[0]["name"], named[1]["sha256"] = HOSTILE, digest
    for line in forged.of("included"):
        forged.edit_capture(line["capture"], _hostile_server)
    forged.write(folder)
    return derive_check(folder)


def _hostile_server(capture: JSON) -> None:
    server = capture["manifest"]["servers"][0]
    server["label"] = HOSTILE
    declared = capture["facts"][server["declaration"]]
    declared["build"] = HOSTILE
    declared["executable_sha256"] = HOSTILE
