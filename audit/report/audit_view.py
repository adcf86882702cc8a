"""An audit, arranged for reading: what each section of its report shows, in the order in which it shows it.

In goes a judged audit, out comes the context of the templates: words, counts, anchors, plots. Nothing is judged here,
and a count never stands without its n.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from audit.analyse import Judgement
from audit.analyse.cells import JUDGED
from audit.compare import first_difference
from audit.prereg import load_predictions
from audit.record import Interrupt, Resume
from audit.report import plots, wave_plots
from audit.report.anchors import Anchors
from audit.report.difference import difference_words, side_by_side
from audit.report.run_map import run_map
from audit.report.steps import step_table
from audit.report.system import system_view
from audit.report.text import bounds_text
from audit.report.words import (
    CHECKS,
    CONTROL,
    GROUPS,
    VERDICTS,
    condition_words,
    counted,
    group_of,
    in_order,
    listed,
    predictions_words,
    rule_words,
)
from audit.store import Run

__all__ = ["audit_view"]

JSON = dict[str, Any]
_SECTIONS = (
    ("predictions", "Predictions"),
    ("instrument", "The instrument"),
    ("cells", "Cells"),
    ("map", "The map of the run"),
    ("plots", "Plots"),
    ("witnesses", "Witnesses"),
    ("system", "The system under test"),
    ("deviations", "Deviations"),
    ("verify", "How to verify"),
    ("reading", "How to read this"),
    ("limits", "Limits"),
)
_MACHINE = ("cpu", "cpu_flags", "cores", "kernel", "memory_bytes")
_MEASURES = {
    "logprob_identical": "the share of trials with identical logprobs",
    "token_identical": "the share of trials with identical tokens",
    "waves_identical": "the share of waves without a trial that moved",
}


def audit_view(judged: Judgement, steps: pd.DataFrame | None = None) -> JSON:
    """Return the context of an audit's report; `steps` is its table of steps where it is there already."""
    findings, run = judged.findings, judged.run
    servers = list(judged.evidence)
    anchors = Anchors(servers)
    steps = step_table(run, judged.trials) if steps is None else steps
    cells = [_cell(cell, anchors) for cell in findings["cells"]]
    return {
        "findings": findings,
        "manifest": run.manifest,
        "servers": servers,
        "title": f"Audit of {listed(servers)}",
        "conclusion": _conclusion(findings),
        "predictions": _predictions(run, findings, anchors),
        "instrument": _instrument(findings, servers),
        "exclusions": [cell for cell in cells if any(cell["excluded"].values())],
        "proofs": _proofs(cells),
        "matrix": _matrix(cells, servers),
        "plots": _plots(judged, steps, servers),
        "maps": run_map(judged),
        "witnesses": _witnesses(judged, cells),
        "systems": [system_view(run, evidence) for evidence in judged.evidence.values()],
        "machine": {name: run.manifest.machine.get(name) for name in _MACHINE},
        "program": {name: run.manifest.program.get(name) for name in ("name", "version", "commit")},
        "unplanned": _unplanned(judged),
        "exploratory_cells": _exploratory_cells(findings, cells),
        "sections": _SECTIONS,
        "streams_kept": any((run.folder / "streams").glob("*.jsonl")),
        "anchors": anchors,
        "verdicts": VERDICTS,
        "checks": CHECKS,
    }


def _conclusion(findings: JSON) -> JSON:
    """Return the one line that a report begins with, in parts."""
    cells = [cell for cell in findings["cells"] if not cell["condition"].startswith(CONTROL)]
    count = {verdict: sum(cell["verdict"] == verdict for cell in cells) for verdict in VERDICTS}
    kinds = {verdict: count[verdict] for verdict in VERDICTS if verdict in JUDGED and count[verdict]}
    without = sum(count[verdict] for verdict in VERDICTS if verdict not in JUDGED)
    shown = [f"{number} {verdict}" for verdict, number in kinds.items()]
    if shown:
        shown[0] = shown[0].replace(" ", " is " if shown[0].startswith("1 ") else " are ", 1)
    shown += [f"{without} without a result"] * bool(without)
    instrument = (
        "The record is sound: its controls diverged, its canaries held."
        if findings["sound"]
        else "The record is inconclusive: its instrument failed, so that its cells are no results."
    )
    return {
        "sound": findings["sound"],
        "instrument": instrument,
        "cells": f"Of {counted(len(cells), 'cell')} {listed(shown)}." if shown else "No cell was planned.",
        "predictions": predictions_words([entry["status"] for entry in findings["predictions"]]),
        "exploratory": findings["exploratory"],
    }


def _cell(cell: JSON, anchors: Anchors) -> JSON:
    server, condition = cell["server"], cell["condition"]
    return {
        **cell,
        "anchor": anchors.cell(server, condition),
        "finding": anchors.finding(server, condition) if cell["witness"] else None,
        "words": condition_words(condition),
        "control": condition.startswith(CONTROL),
        "judged": cell["verdict"] in JUDGED,
        "bounds": bounds_text(cell["by_wave"]),
        "trial_bounds": bounds_text(cell["by_trial"]),
        "left_out": {name: count for name, count in cell["excluded"].items() if count},
    }


def _predictions(run: Run, findings: JSON, anchors: Anchors) -> list[JSON]:
    data = run.registration().get("predictions.json")
    known = {one.id: one for one in load_predictions(data).predictions} if data is not None else {}
    entries = []
    for entry in findings["predictions"]:
        one = known[entry["id"]]
        where = "in each cell" if one.unit == "cell" else "over all its cells together"
        entries.append({
            **entry,
            "anchor": anchors.prediction(entry["id"]),
            "rule": f"Holds where {_MEASURES[one.measure]} is {rule_words(one.holds.op, one.holds.value)} {where}, "
            f"is refuted where it is {rule_words(one.refuted.op, one.refuted.value)}; n at least {one.minimum}",
            "requires": list(one.requires),
            "cells": [_spoken(cell, anchors) for cell in entry["cells"]],
        })  # fmt: skip
    return entries


def _spoken(cell: JSON, anchors: Anchors) -> JSON:
    name = cell["condition"]
    return {**cell, "anchor": anchors.cell(cell["server"], name), "words": condition_words(name)}


def _instrument(findings: JSON, servers: Sequence[str]) -> list[JSON]:
    """Return one row a check, with what each server showed."""
    found = {(entry["check"], entry["server"]): entry for entry in findings["instrument"]}
    checks = list(dict.fromkeys(entry["check"] for entry in findings["instrument"]))
    return [
        {
            "check": check,
            "words": CHECKS.get(check, check),
            "entries": [found.get((check, server)) for server in servers],
        }
        for check in checks
    ]


def _proofs(cells: Sequence[JSON]) -> list[JSON]:
    """Return, by condition, how many of the planned trials are proven to have happened as planned."""
    rows = []
    for condition in in_order([cell["condition"] for cell in cells]):
        own = [cell for cell in cells if cell["condition"] == condition]
        reasons: dict[str, int] = {}
        for cell in own:
            for reason, count in cell["reasons"].items():
                reasons[reason] = reasons.get(reason, 0) + count
        rows.append({
            "words": condition_words(condition),
            "planned": sum(cell["planned"] for cell in own),
            "usable": sum(cell["usable"] for cell in own),
            "reasons": reasons,
            "weak": any("weak" in cell["qualifiers"] for cell in own),
        })  # fmt: skip
    return rows


def _matrix(cells: Sequence[JSON], servers: Sequence[str]) -> list[JSON]:
    """Return headings, below each its conditions, with the cell of every server."""
    found = {(cell["server"], cell["condition"]): cell for cell in cells}
    conditions = in_order([cell["condition"] for cell in cells])
    headings = [*GROUPS, "Others"]
    return [
        {
            "heading": heading,
            "rows": [
                {
                    "condition": name,
                    "words": condition_words(name),
                    "cells": [found.get((server, name)) for server in servers],
                }
                for name in conditions
                if group_of(name) == heading
            ],
        }
        for heading in headings
        if any(group_of(name) == heading for name in conditions)
    ]


def _plots(judged: Judgement, steps: pd.DataFrame, servers: Sequence[str]) -> list[plots.Plot]:
    drawn = [
        plots.first_steps_plot(steps, servers),
        plots.size_plot(steps, servers),
        plots.margin_plot(steps, servers),
        wave_plots.overlap_plot(_waves(judged)),
        wave_plots.growth_plot(judged.findings["cells"], servers, lambda verdict: verdict in JUDGED),
    ]
    return [plot for plot in drawn if plot is not None]


def _waves(judged: Judgement) -> dict[str, pd.DataFrame]:
    """Return, for each server, the members of the first wave of the largest level that took place."""
    waves = {}
    for server, evidence in judged.evidence.items():
        trials = judged.trials
        own = trials[(trials["server"] == server) & trials["usable"] & (trials["family"] == "concurrent_greedy")]
        own = own[own["window_begin_ns"].notna()]
        if own.empty:
            continue
        largest = own[own["level"] == own["level"].max()]
        members = largest[largest["unit"] == largest["unit"].iloc[0]]
        prompt_ms = [float(evidence.replies(trial)[-1].prompt_ms or 0.0) for trial in members["trial"]]
        waves[server] = pd.DataFrame({
            "trial": members["trial"],
            "slot": members["slot"],
            "begin_ns": members["window_begin_ns"],
            "prefill_ns": members["window_begin_ns"] + pd.Series(prompt_ms, index=members.index) * 1e6,
            "end_ns": members["window_end_ns"],
        })  # fmt: skip
    return waves


def _witnesses(judged: Judgement, cells: Sequence[JSON]) -> list[JSON]:
    """Return each witness in words, with the two steps side by side."""
    columns = ["server", "trial", "logprob", "reference_logprob", "prompt", "slot", "reference_slot"]
    rows = {(row[0], row[1]): row[2:] for row in judged.trials[columns].to_numpy().tolist()}
    told = []
    for cell in cells:
        witness = cell["witness"]
        if witness is None:
            continue
        *streams, prompt, slot, reference_slot = rows[cell["server"], witness["trial"]]
        stream, reference = (judged.run.stream(name) for name in streams)
        tokens_only = cell["condition"] == "without_logprobs"
        found = first_difference(stream, reference, tokens_only=tokens_only)
        step = witness["step"]
        two = (one.steps[step] if step < len(one.steps) else None for one in (stream, reference))
        told.append({
            "cell": cell,
            "sentences": difference_words(stream, reference, found),
            # A control must differ, so that its sentence is enough.
            "pairs": [] if cell["control"] else side_by_side(*two),
            "prompt": prompt,
            "slot": slot,
            "reference_slot": reference_slot,
            "members": len(judged.evidence[cell["server"]].planned[witness["trial"]].unit.trials),
        })  # fmt: skip
    return told


def _unplanned(judged: Judgement) -> list[str]:
    """Return what did not go as planned, as far as the record says."""
    registration = judged.run.manifest.registration
    told = []
    if judged.findings["exploratory"]:
        told.append(f"The whole run is exploratory: {judged.findings['exploratory']}.")
    elif registration is not None:
        told.append(f"The run executed the registered plan of {registration.name} as it was registered.")
    if judged.run.manifest.program.get("dirty"):
        told.append("Tracked files of the program differed from the commit that the manifest names.")
    told += _interruptions(judged.run)
    for server, evidence in judged.evidence.items():
        skipped: dict[str, int] = {}
        for skip in evidence.skips.values():
            skipped[skip.reason] = skipped.get(skip.reason, 0) + 1
        told += [f"{server}: {counted(count, 'unit')} not sent ({reason})." for reason, count in skipped.items()]
        failed = sum(complete.reply is None for _, complete in evidence.answered)
        again = sum(attempt.number > 0 for attempt in evidence.attempts.values())
        told += [f"{server}: {counted(failed, 'request')} failed."] * bool(failed)
        told += [f"{server}: {counted(again, 'unit')} tried more than once."] * bool(again)
    return told


def _interruptions(run: Run) -> list[str]:
    """Return where the run was broken off and taken up; nearly every history is read through for it once only."""
    history = (run.folder / "history.jsonl").read_bytes()
    if b'"line":"interrupt"' not in history and b'"line":"resume"' not in history:
        return []
    told = []
    for line in run.lines():
        if isinstance(line, Interrupt):
            told.append(f"Line {line.n} of the history: the run was interrupted ({line.reason}).")
        elif isinstance(line, Resume):
            told.append(f"Line {line.n} of the history: a later process took the run up.")
    return told


def _exploratory_cells(findings: JSON, cells: Sequence[JSON]) -> list[JSON]:
    """Return the cells that no registered prediction speaks of."""
    spoken = {(cell["server"], cell["condition"]) for entry in findings["predictions"] for cell in entry["cells"]}
    return [cell for cell in cells if (cell["server"], cell["condition"]) not in spoken and not cell["control"]]
