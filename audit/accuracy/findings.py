"""Findings of a check: a pure function of its folder.

In goes a sealed check, out comes the findings document, with one cell a model, group and mode, the coverage by clear
winners, the rows beyond a bound, and the predictions. docs/reference/accuracy.md describes it. No row is needed.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from audit.accuracy.bounds import Bounds, Triple
from audit.accuracy.corpus import FRESH
from audit.accuracy.metrics import METRICS, Measures
from audit.accuracy.page import accuracy_page
from audit.accuracy.predictions import evaluate, load_predictions
from audit.accuracy.record import AccuracyRun, Included, Inputs, Measured
from audit.errors import EvidenceError, UsageError
from audit.store import write_derived
from audit.stream import FORMAT, canonical

__all__ = ["check_files", "derive_check", "findings"]

# A cell with thousands of failures names the first ones; the metrics files hold all.
_FAILURES_MAX = 50
_BOUNDS_INPUT = 1


def findings(run: AccuracyRun) -> dict[str, Any]:
    """Compute the findings of a check.

    Raises: UsageError where this is no sealed check; EvidenceError where its facts contradict each other.
    """
    if run.manifest.kind != "accuracy" or run.seal is None:
        raise UsageError(f"{run.folder} is no sealed check of kind accuracy")
    lines = list(run.lines())
    measured = [line for line in lines if isinstance(line, Measured)]
    inputs = [line for line in lines if isinstance(line, Inputs)]
    if not measured or not inputs:
        raise UsageError(f"{run.folder} is a capture and compares nothing", hint="determinism accuracy check")
    named = inputs[0].files[_BOUNDS_INPUT]
    bounds = Bounds.parse(canonical(run.fact(str(named["sha256"]))), name=str(named["name"]))
    cells, failures = [], []
    for line in measured:
        if line.model not in bounds.models:
            raise EvidenceError(f"{run.folder}: line {line.n} measures {line.model}, which has no bounds")
        cell, failed = _cell(line, run.metrics(line.metrics), bounds.models[line.model].bounds)
        cells.append(cell)
        failures += failed
    coverage = [
        {"model": cell["model"], "mode": cell["mode"], "clear": cell["clear"]}
        for cell in cells
        if cell["group"] == FRESH
    ]
    within = not any(cell["failed"] for cell in cells) and all(one["clear"] for one in coverage)
    registration = run.manifest.registration
    files = run.registration()
    predictions = load_predictions(files["predictions.json"]) if files else []
    status = "not registered" if registration is None else registration.status
    return {
        "format": FORMAT,
        "kind": "accuracy",
        "seal": run.seal,
        "sound": True,
        "conclusion": "within" if within else "beyond",
        "sources": _sources(run, [line for line in lines if isinstance(line, Included)]),
        "bounds": {model: _named(one.bounds) for model, one in sorted(bounds.models.items())},
        "cells": cells,
        "coverage": coverage,
        "failures": failures[:_FAILURES_MAX],
        "predictions": evaluate(predictions, cells),
        "exploratory": None if status == "registered" else status,
    }


def _named(triple: Triple) -> dict[str, float]:
    return {name: getattr(triple, name) for name in METRICS}


def _cell(line: Measured, rows: Measures, bounds: Triple) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the counts of one group in one mode, and its failures, in the order of its rows."""
    if len(rows) != line.rows or not line.rows:
        raise EvidenceError(f"line {line.n} says {line.rows} rows, and its metrics have {len(rows)}")
    beyond = {name: getattr(rows, name) > getattr(bounds, name) for name in METRICS}
    clear = rows.gap > 2 * bounds.max_abs
    differ = rows.best_reference != rows.best_server
    lost = clear & differ
    failed = lost | np.any(list(beyond.values()), axis=0)
    where = {"model": line.model, "group": line.group, "mode": line.mode}
    cell = where | {
        "rows": line.rows,
        "failed": int(failed.sum()),
        **{f"beyond_{name}": int(beyond[name].sum()) for name in METRICS},
        "winners_lost": int(lost.sum()),
        "clear": int(clear.sum()),
        "bests_differ": int(differ.sum()),
        **{name: float(getattr(rows, name).max()) for name in METRICS},
    }
    failures = [
        where
        | {
            "slot": int(rows.slot[at]),
            "position": int(rows.position[at]),
            "why": [name for name in METRICS if beyond[name][at]] + (["winner"] if lost[at] else []),
        }
        for at in np.flatnonzero(failed)[:_FAILURES_MAX]
    ]
    return cell, failures


def _sources(run: AccuracyRun, included: list[Included]) -> list[dict[str, Any]]:
    """Return what each capture is, whose rows were compared: side, kind of rows, build."""
    found = []
    for line in included:
        capture = run.capture(line.capture)
        head = next((one for one in capture["history"] if one["line"] == "captured"), None)
        if head is None:
            raise EvidenceError(f"{run.folder}: line {line.n} includes a capture that does not say of what it is")
        declared = capture["facts"].get(capture["manifest"]["servers"][0]["declaration"]) or {}
        build = declared.get("build")
        found.append({
            **{name: head[name] for name in ("model", "group", "side", "source")},
            "build": build if isinstance(build, str) else None,
        })  # fmt: skip
    return found


def check_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Compute the findings of a sealed check and its derived files, and write nothing.

    Raises: UsageError where this is no sealed check; EvidenceError where its facts contradict each other.
    """
    run = AccuracyRun.open(folder)
    data = canonical(findings(run))
    found = json.loads(data)
    return found, {"findings.json": data, **accuracy_page(run, found)}


def derive_check(folder: Path) -> dict[str, Any]:
    """Compute as `check_files` does, and write the files beside the record."""
    found, files = check_files(folder)
    write_derived(folder, files)
    return found
