"""The findings of an identity record: a pure function of its folder.

In goes a run folder, out comes the document that docs/reference/identity.md describes: what repeats itself, a verdict
for each cell and family of each pair of neighbouring builds, classes of builds with equal rows, the checks of the
comparison itself, and the registered predictions.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from audit.identity.compare import Part, Values, compare_rows
from audit.identity.evidence import Capture, IdentityRun, Process, Round, read_rounds, read_values
from audit.identity.judge import CellFacts, CellJudgement, compared_captures, complete, judge_cell, repeats
from audit.identity.order import IdentityPrediction, load_identity_predictions
from audit.identity.record import BuildEntry, CellEntry
from audit.stream import FORMAT

__all__ = ["PRECEDENCE", "exit_code", "identity_findings", "report_code"]

# The verdict of a family is the first of these that any of its cells has, but NOT RUN only where all have it.
PRECEDENCE = ("DIFFERENT", "WITHIN TOLERANCE", "IDENTICAL", "NOT RUN")
_OK, _DIFFERENT, _NOTHING, _INCONCLUSIVE = 0, 1, 2, 3


def identity_findings(run: IdentityRun) -> dict[str, Any]:
    """Return the findings of an identity record, ready for canonical JSON.

    Raises: EvidenceError where facts contradict each other.
    """
    manifest, rounds = run.manifest, read_rounds(run)
    pairs = [_pair(run, rounds, old, new) for old, new in pairwise(manifest.builds)]
    instrument = _instrument(run, rounds)
    sound = all(entry["status"] != "failed" for entry in instrument)
    registration = manifest.registration
    return {
        "format": FORMAT,
        "kind": "identity",
        "seal": run.seal,
        "rows": manifest.rows,
        "device": run.asked.device,
        "sound": sound,
        "conclusion": "sound" if sound else "inconclusive",
        "instrument": instrument,
        "determinism": [_determinism(run, rounds, build) for build in manifest.builds],
        "pairs": pairs,
        "classes": [_classes(manifest.builds, rounds, cell) for cell in manifest.cells],
        "predictions": _predictions(run, rounds, pairs),
        "exploratory": "not registered"
        if registration is None
        else None
        if registration.status == "registered"
        else registration.status,
    }


def exit_code(findings: dict[str, Any], *, require_all: bool) -> int:
    """Return 0 where every family that ran is identical, 1 where one differs or the CPU does not repeat itself.

    3 where a family is only within tolerance, or with `require_all` did not run; 2 where nothing ran.
    """
    families = [family for pair in findings["pairs"] for family in pair["families"]]
    verdicts = {family["verdict"] for family in families}
    unrepeated = findings["device"] == "cpu" and any(build["not_identical"] for build in findings["determinism"])
    if "DIFFERENT" in verdicts or unrepeated:
        return _DIFFERENT
    if not verdicts - {"NOT RUN"}:
        return _NOTHING
    skipped = any(family["verdict"] == "NOT RUN" or family["ran"] < family["cells"] for family in families)
    if not findings["sound"] or "WITHIN TOLERANCE" in verdicts or (require_all and skipped):
        return _INCONCLUSIVE
    return _OK


def report_code(findings: dict[str, Any], *, strict: bool) -> int:
    """Return 0 for a sound record whatever it found, 3 for another; with `strict` what was found counts too."""
    statuses = {prediction["status"] for prediction in findings["predictions"]}
    if not findings["sound"]:
        return _INCONCLUSIVE
    if strict and "refuted" in statuses:
        return _DIFFERENT
    found = exit_code(findings, require_all=False) if strict else _OK
    return _INCONCLUSIVE if strict and not found and "inconclusive" in statuses else found


def _facts(
    run: IdentityRun, rounds: dict[Process, Round], old: BuildEntry, new: BuildEntry, cell: CellEntry
) -> CellFacts:
    def both(build: BuildEntry) -> tuple[Round | None, Round | None]:
        return rounds.get((build.label, cell.cell, 0)), rounds.get((build.label, cell.cell, 1))

    return CellFacts(cell, run.asked.device, both(old), both(new), (old.restarts, new.restarts))


def _pair(run: IdentityRun, rounds: dict[Process, Round], old: BuildEntry, new: BuildEntry) -> dict[str, Any]:
    def read(capture: Capture) -> Values | None:
        return read_values(run, capture)

    judged = [(cell, judge_cell(_facts(run, rounds, old, new, cell), read)) for cell in run.manifest.cells]
    families = _families(judged) + [
        {
            "family": skipped.family,
            "verdict": "NOT RUN",
            "ran": 0,
            "cells": 0,
            "inherits": None,
            "reason": skipped.reason,
        }
        for skipped in run.manifest.not_run
    ]
    return {
        "old": old.label,
        "new": new.label,
        "cells": [_cell_entry(cell, judgement) for cell, judgement in judged],
        "families": families,
        "counts": {name: sum(family["verdict"] == name for family in families) for name in PRECEDENCE},
    }


def _cell_entry(cell: CellEntry, judged: CellJudgement) -> dict[str, Any]:
    return {
        "cell": cell.cell,
        "family": cell.family,
        "verdict": judged.verdict,
        "reason": judged.reason,
        "old_repeats": judged.old_repeats,
        "new_repeats": judged.new_repeats,
        "tokens": list(judged.tokens),
        "rows": list(judged.rows),
        "tolerance_nats": judged.tolerance_nats,
        "difference": None if judged.difference is None else judged.difference.entry(),
        "path_differs": judged.path_differs,
    }


def _families(judged: Sequence[tuple[CellEntry, CellJudgement]]) -> list[dict[str, Any]]:
    """Group cells by family: a family inherits only where every one of its cells ran and is identical."""
    entries = []
    for family in dict.fromkeys(cell.family for cell, _ in judged):
        own = [judgement for cell, judgement in judged if cell.family == family]
        verdicts = {judgement.verdict for judgement in own}
        verdict = next(name for name in PRECEDENCE if name in verdicts)
        ran = sum(judgement.verdict != "NOT RUN" for judgement in own)
        reasons = list(dict.fromkeys(judgement.reason for judgement in own if judgement.reason))
        entries.append(
            {
                "family": family,
                "verdict": verdict,
                "ran": ran,
                "cells": len(own),
                "inherits": verdict == "IDENTICAL" and ran == len(own),
                "reason": reasons[0] if reasons else "",
            }
        )
    return entries


def _determinism(run: IdentityRun, rounds: dict[Process, Round], build: BuildEntry) -> dict[str, Any]:
    found = [_repeats(rounds, build.label, cell) for cell in run.manifest.cells]
    return {
        "build": build.label,
        "identical": found.count(True),
        "not_identical": found.count(False),
        "unchecked": found.count(None),
    }


def _repeats(rounds: dict[Process, Round], label: str, cell: CellEntry) -> bool | None:
    return repeats((rounds.get((label, cell.cell, 0)), rounds.get((label, cell.cell, 1))), list(cell.prompts))


def _classes(builds: Sequence[BuildEntry], rounds: dict[Process, Round], cell: CellEntry) -> dict[str, Any]:
    """Group the builds whose rows and free tokens are equal; a build that did not finish is in no class."""
    groups: dict[Any, list[str]] = {}
    absent = []
    reference: Round | None = None
    for build in builds:
        found = rounds.get((build.label, cell.cell, 1))
        if found is None or not complete(found, list(cell.prompts)):
            absent.append(build.label)
            continue
        reference = reference or found
        captures = [compared_captures(reference, found, name)[1] for name in cell.prompts]
        free = [found.captures["free", name].tokens for name in cell.prompts]
        key = (tuple((one.tokens, one.digests) for one in captures), tuple(free))
        groups.setdefault(key, []).append(build.label)
    return {"cell": cell.cell, "classes": list(groups.values()), "not_run": absent}


def _instrument(run: IdentityRun, rounds: dict[Process, Round]) -> list[dict[str, Any]]:
    """Send stored rows through the comparison: equal to themselves, different by one ULP of one value.

    Every capture of the record is tried; `not available` where this copy holds no rows.
    """
    tried = same = moved = 0
    seen: set[str] = set()
    for found in rounds.values():
        for capture in found.captures.values():
            if not capture.usable or capture.file is None or capture.file in seen:
                continue
            seen.add(capture.file)
            values = read_values(run, capture)
            if values is None:
                continue
            tried += 1
            same += compare_rows([Part("", values, values)]) is None
            planted = values.copy()
            planted[-1, -1] = np.nextafter(planted[-1, -1], np.float32(0 if planted[-1, -1] else 1))
            difference = compare_rows([Part("", values, planted)])
            moved += difference is not None and difference.values[0] == 1 and difference.ulp_max == 1
    return [
        {
            "check": name,
            "status": "not available" if not tried else "held" if k == tried else "failed",
            "k": k,
            "n": tried,
        }
        for name, k in (("self", same), ("one_ulp", moved))
    ]


def _predictions(
    run: IdentityRun, rounds: dict[Process, Round], pairs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    data = run.registration().get("predictions.json")
    predictions = [] if data is None else load_identity_predictions(data)
    return [_prediction(run, rounds, pairs, prediction) for prediction in predictions]


def _prediction(
    run: IdentityRun,
    rounds: dict[Process, Round],
    pairs: Sequence[dict[str, Any]],
    prediction: IdentityPrediction,
) -> dict[str, Any]:
    names = {build.label: build.name for build in run.manifest.builds}
    asked = [cell for cell in run.manifest.cells if prediction.models == "*" or cell.model_sha256 in prediction.models]
    labels = [label for label, name in names.items() if prediction.builds == "*" or name in prediction.builds]
    cells = {cell.cell for cell in asked}
    shares: list[tuple[int, int]] = []
    if prediction.measure == "repeats":
        found = [_repeats(rounds, label, cell) for label in labels for cell in asked]
        shares = [(int(one), 1) for one in found if one is not None]
    else:
        judged = [
            cell
            for pair in pairs
            if pair["old"] in labels and pair["new"] in labels
            for cell in pair["cells"]
            if cell["cell"] in cells and cell["verdict"] != "NOT RUN" and cell["rows"][1]
        ]
        if prediction.measure == "identical":
            shares = [(int(cell["verdict"] == "IDENTICAL"), 1) for cell in judged]
        else:
            shares = [tuple(cell["difference"]["argmax"]) for cell in judged if cell["difference"] is not None]
    k, n = sum(one for one, _ in shares), sum(of for _, of in shares)
    return {
        "id": prediction.id,
        "statement": prediction.statement,
        "status": _status(prediction, k, n),
        "k": k,
        "n": n,
    }


def _status(prediction: IdentityPrediction, k: int, n: int) -> str:
    if n == 0:
        return "not applicable"
    if n < prediction.minimum:
        return "inconclusive"
    holds, refuted = prediction.holds.met(k, n), prediction.refuted.met(k, n)
    return "inconclusive" if holds == refuted else "holds" if holds else "refuted"
