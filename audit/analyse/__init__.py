"""From facts to findings: judge every trial, group the trials into cells, and say what follows.

In goes a run folder, out comes the findings document, a pure function of it, as docs/reference/verdicts.md says. The
order of the modules is that of the data: evidence.py reads the history, judge.py judges each trial, table.py lays them
out, cells.py, waves.py, witness.py and instrument.py count them, and here all is put together. No network is reached,
and nothing is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from audit.analyse.cells import JUDGED, cell_entries, pooled_entries
from audit.analyse.evidence import Evidence, read_evidence
from audit.analyse.instrument import instrument_entries
from audit.analyse.table import tabulate
from audit.analyse.waves import threshold_entries, wave_entries
from audit.analyse.witness import Witnesses
from audit.errors import UsageError
from audit.finding import checked
from audit.prereg import Counts, evaluate, load_predictions
from audit.store import Run
from audit.stream import FORMAT

__all__ = ["Judgement", "findings", "judge_run", "trials"]

PREDICTIONS = "predictions.json"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An audit with all that follows from its facts: the history by server, one row a measured trial, the findings."""

    run: Run
    evidence: Mapping[str, Evidence]
    trials: pd.DataFrame
    findings: dict[str, Any]


def trials(run: Run) -> pd.DataFrame:
    """Return the table of all measured trials of an audit.

    Raises: UsageError where the run is no audit; EvidenceError where its facts contradict each other.
    """
    return tabulate(run, read_evidence(_audit(run)))


def findings(run: Run) -> dict[str, Any]:
    """Return the findings of an audit, ready for canonical JSON.

    Raises: UsageError where the run is no audit; EvidenceError where its facts contradict each other.
    """
    return judge_run(run).findings


def judge_run(run: Run) -> Judgement:
    """Judge an audit.

    Raises: UsageError where the run is no audit; EvidenceError where its facts contradict each other.
    """
    evidence = read_evidence(_audit(run))
    table = tabulate(run, evidence)
    servers, plan = list(evidence), run.plan
    cells = cell_entries(table, plan=plan, servers=servers, extras=Witnesses(run))
    instrument = [entry for one in evidence.values() for entry in instrument_entries(run, one, table)]
    sound = _sound(cells, instrument)
    found = {
        "format": FORMAT,
        "kind": "audit",
        "seal": run.seal,
        "sound": sound,
        "conclusion": "sound" if sound else "inconclusive",
        "instrument": instrument,
        "cells": cells,
        "pooled": pooled_entries(cells),
        "waves": wave_entries(table, plan=plan, servers=servers),
        "thresholds": threshold_entries(cells, plan=plan, servers=servers),
        "predictions": _predictions(run, cells, instrument),
        "exploratory": _exploratory(run),
    }
    return Judgement(run=run, evidence=evidence, trials=table, findings=checked(found))


def _audit(run: Run) -> Run:
    if run.manifest.kind != "audit":
        raise UsageError(f"{run.folder} is of kind {run.manifest.kind}, and only an audit has cells")
    return run


def _sound(cells: list[dict[str, Any]], instrument: list[dict[str, Any]]) -> bool:
    """Tell whether controls and canaries held, no other check failed, and something was judged."""
    must_hold = [entry for entry in instrument if entry["check"].startswith(("control_", "canary"))]
    return (
        all(entry["status"] == "held" for entry in must_hold)
        and all(entry["status"] != "failed" for entry in instrument)
        and any(cell["verdict"] in JUDGED for cell in cells)
    )


def _predictions(run: Run, cells: list[dict[str, Any]], instrument: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluate the predictions of the run's registration; none where it has none, or this copy leaves them out."""
    data = run.registration().get(PREDICTIONS)
    if data is None:
        return []
    held: dict[str, set[str]] = {}
    for entry in instrument:
        if entry["status"] == "held":
            held.setdefault(entry["server"], set()).add(entry["check"])
    counts = [
        Counts(
            server=cell["server"],
            condition=cell["condition"],
            verdict=cell["verdict"],
            usable=cell["usable"],
            logprob_identical=cell["logprob_identical"],
            token_identical=cell["token_identical"],
            waves=cell["by_wave"]["n"],
            waves_identical=cell["by_wave"]["n"] - cell["by_wave"]["divergent"],
        )
        for cell in cells
    ]
    return evaluate(load_predictions(data).predictions, cells=counts, held=held)


def _exploratory(run: Run) -> str | None:
    """Return why a run's results are exploratory, None for a registered one."""
    registration = run.manifest.registration
    if registration is None:
        return "not registered"
    return None if registration.status == "registered" else registration.status
