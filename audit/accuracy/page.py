"""A check of accuracy, arranged for reading: the context of its page, and the page's two files.

In go a sealed check and its findings, out come `report.html` and `report.md`. Nothing is judged here, and nothing of
the record's own words is markup: `audit.report.render` makes them visible and escapes them.
"""

from typing import Any

from audit.accuracy.bounds import Bounds
from audit.accuracy.metrics import METRICS
from audit.accuracy.predictions import load_predictions
from audit.accuracy.record import AccuracyRun, Included, Inputs
from audit.accuracy.text import conclusion
from audit.report.render import html_page, markdown_page
from audit.report.words import counted, listed, predictions_words, rule_words
from audit.stream import canonical

__all__ = ["accuracy_page", "accuracy_view"]

JSON = dict[str, Any]
_SECTIONS = (
    ("predictions", "Predictions"),
    ("bounds", "Bounds"),
    ("cells", "Cells"),
    ("winners", "Clear winners"),
    ("failures", "Failures"),
    ("sources", "Captures and builds"),
    ("verify", "How to verify"),
    ("reading", "How to read this"),
    ("limits", "Limits"),
)
_BOUNDS_INPUT = 1
_WHOLE = 100.0
_MACHINE = ("cpu", "cpu_flags", "cores", "kernel", "memory_bytes")
_METRIC_WORDS = {
    "max_abs": "largest difference of a logprob in nats",
    "relative_l2": "length of the difference over that of the reference's row",
    "total_variation": "total variation of the two distributions",
}
_MEASURES = {
    "failed": "the number of rows that fail",
    "clear": "the number of rows with a clear winner",
    "winners_lost": "the number of clear winners that are lost",
    "bests_differ": "the number of rows whose best token differs",
    **{name: f"the {words}" for name, words in _METRIC_WORDS.items()},
}
_MODES = {"serial": "sent alone", "batch": "sent in waves"}
_VERDICTS = {
    "within": "no row of the cell exceeds a bound or loses a clear winner",
    "beyond": "at least one row exceeds a bound or loses a clear winner",
}


def accuracy_page(run: AccuracyRun, findings: JSON) -> dict[str, bytes]:
    """Return the report as HTML and as Markdown, the same bytes for the same folder.

    Raises: UsageError, EvidenceError where the folder is no check, or its facts contradict each other.
    """
    context = accuracy_view(run, findings)
    return {
        "report.html": html_page("accuracy.html", context),
        "report.md": markdown_page("accuracy.md", context),
    }


def accuracy_view(run: AccuracyRun, findings: JSON) -> JSON:
    """Return the context of a check's page."""
    manifest, lines = run.manifest, list(run.lines())
    models, said = list(findings["bounds"]), conclusion(findings)
    named = next(line for line in lines if isinstance(line, Inputs)).files
    anchors = {(cell["model"], cell["group"], cell["mode"]): f"c{at}" for at, cell in enumerate(findings["cells"], 1)}
    return {
        "findings": findings,
        "manifest": manifest,
        "title": f"Accuracy of {listed(models)}",
        "conclusion": {
            "verdict": f"{said[0].upper()}{said[1:]}.",
            "predictions": predictions_words([entry["status"] for entry in findings["predictions"]]),
            "exploratory": findings["exploratory"],
        },
        "predictions": _predictions(run, findings),
        "bounds": _bounds(run, named),
        "inputs": [{"name": one["name"], "sha256": one["sha256"]} for one in named],
        "models": [
            {
                "name": model,
                "cells": [
                    _cell(cell, findings["bounds"][model], anchors)
                    for cell in findings["cells"]
                    if cell["model"] == model
                ],
            }
            for model in models
        ],
        "coverage": [
            {**one, "winners": one["clear"], "words": _MODES.get(one["mode"], one["mode"])}
            for one in findings["coverage"]
        ],
        "failures": [
            {**one, "anchor": anchors[one["model"], one["group"], one["mode"]]} for one in findings["failures"]
        ],
        "failed": sum(cell["failed"] for cell in findings["cells"]),
        "sources": _sources(run, findings, [line for line in lines if isinstance(line, Included)]),
        "machine": {name: manifest.machine.get(name) for name in _MACHINE},
        "program": {name: manifest.program.get(name) for name in ("name", "version", "commit")},
        "rows": counted(sum(cell["rows"] for cell in findings["cells"]), "row"),
        "metrics": METRICS,
        "metric_words": _METRIC_WORDS,
        "sections": _SECTIONS,
        "verdicts": _VERDICTS,
    }


def _predictions(run: AccuracyRun, findings: JSON) -> list[JSON]:
    data = run.registration().get("predictions.json")
    known = {one.id: one for one in load_predictions(data)} if data is not None else {}
    entries = []
    for number, entry in enumerate(findings["predictions"], 1):
        one = known[entry["id"]]
        where = f"{listed(one.groups)}, {listed([_MODES[mode] for mode in one.modes])}"
        rule = (
            f"In {where}: holds where {_MEASURES[one.measure]} is {rule_words(one.holds.op, one.holds.value)}, is "
            f"refuted where it is {rule_words(one.refuted.op, one.refuted.value)}; at least "
            f"{counted(one.minimum, 'row')}"
        )
        found = f"{entry['found']:,}" if isinstance(entry["found"], int) else _number(entry["found"])
        entries.append({**entry, "anchor": f"prediction/{number}", "rule": rule, "found": found})
    return entries


def _bounds(run: AccuracyRun, named: list[JSON]) -> list[JSON]:
    """Return each model's bounds with the maxima that they were made from."""
    one = named[_BOUNDS_INPUT]
    bounds = Bounds.parse(canonical(run.fact(str(one["sha256"]))), name=str(one["name"]))
    return [
        {
            "model": model,
            "anchor": f"m{number}",
            "factor": f"{bounds.factor:g}",
            "rows": entry.rows,
            "metrics": [
                (name, _number(getattr(entry.maxima, name)), _number(getattr(entry.bounds, name))) for name in METRICS
            ],
        }
        for number, (model, entry) in enumerate(sorted(bounds.models.items()), 1)
    ]


def _cell(cell: JSON, bounds: JSON, anchors: dict[tuple[str, str, str], str]) -> JSON:
    """Return a cell with each metric beside its bound; `width` is its share of the bound, of a bar of 100."""
    return {
        **cell,
        "anchor": anchors[cell["model"], cell["group"], cell["mode"]],
        "winners": cell["clear"],
        "verdict": "beyond" if cell["failed"] else "within",
        "mode_words": _MODES.get(cell["mode"], cell["mode"]),
        "values": [
            {
                "name": name,
                "words": _METRIC_WORDS[name],
                "largest": _number(cell[name]),
                "bound": _number(bounds[name]),
                "share": f"{100 * cell[name] / bounds[name]:.0f} %" if bounds[name] else "none",
                "width": min(_WHOLE, round(_WHOLE * cell[name] / bounds[name], 2)) if bounds[name] else _WHOLE,
                "beyond": cell[f"beyond_{name}"],
            }
            for name in METRICS
        ],
    }


def _sources(run: AccuracyRun, findings: JSON, included: list[Included]) -> list[JSON]:
    """Return each capture with its seal, and the digests that its server was declared with."""
    entries = []
    for number, (line, source) in enumerate(zip(included, findings["sources"], strict=True), 1):
        capture = run.capture(line.capture)
        server = capture["manifest"]["servers"][0]
        declared = capture["facts"].get(server["declaration"]) or {}
        libraries = declared.get("libraries") or []
        entries.append({
            **source,
            "anchor": f"capture/{number}",
            "seal": line.seal,
            "server": server["label"],
            "declared": {
                "executable": declared.get("executable_sha256"),
                "model file": declared.get("model_sha256"),
                **{f"library {one.get('name')}": one.get("sha256") for one in libraries if isinstance(one, dict)},
                "command line": " ".join(map(str, declared.get("argv") or [])) or None,
            },
        })  # fmt: skip
    return entries


def _number(value: float) -> str:
    return f"{value:.4g}"
