"""An identity record, arranged for reading: the context of its page, and the page's two files.

In go a record and its findings, out come `report.html` and `report.md`. Nothing is judged here, and nothing of the
record's own words is markup: `audit.report.render` makes them visible and escapes them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from audit.identity.evidence import IdentityRun, Process, Round, read_rounds
from audit.identity.findings import PRECEDENCE
from audit.identity.order import load_identity_predictions
from audit.identity.record import BuildEntry, CellEntry
from audit.identity.text import headline, shown_name
from audit.report.difference import cut
from audit.report.render import html_page, markdown_page
from audit.report.words import counted, listed, predictions_words, rule_words

__all__ = ["identity_page", "identity_view"]

JSON = dict[str, Any]
_SECTIONS = (
    ("predictions", "Predictions"),
    ("instrument", "The instrument"),
    ("determinism", "Determinism"),
    ("identity", "Identity"),
    ("differences", "Differences"),
    ("epochs", "Epochs"),
    ("verdict", "Verdict"),
    ("builds", "Builds"),
    ("verify", "How to verify"),
    ("reading", "How to read this"),
    ("limits", "Limits"),
)
_NEIGHBOURS = 2
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MACHINE = ("cpu", "cpu_flags", "cores", "kernel", "memory_bytes")
_CHECKS = {
    "self": "stored rows, sent through the comparison against themselves, are equal",
    "one_ulp": "the last value of stored rows, moved by one ULP, is exactly one difference of one ULP",
}
_MEASURES = {
    "repeats": "the share of builds and cells whose two runs are equal",
    "identical": "the share of judged cells of neighbouring builds that are identical",
    "argmax": "the share of compared rows of differing cells with the same most likely token",
}
_VERDICTS = {
    "IDENTICAL": "both sides repeat themselves, and every compared row and every free token is equal, bit for bit",
    "WITHIN TOLERANCE": "a side does not repeat itself; tokens and most likely tokens are equal, and the sides "
    "differ by at most twice what either differs from itself",
    "DIFFERENT": "a compared row or a token differs, or only one side could run",
    "NOT RUN": "no result: neither side ran, or a side cannot be judged; the reason stands beside it",
}
_SOURCES = {
    "git": "a git revision, built from source",
    "binary": "a program on this machine",
    "pypi": "a published wheel",
    "http": "a server that ran already, asked twice and not restarted",
}


def identity_page(run: IdentityRun, findings: JSON) -> dict[str, bytes]:
    """Return the report as HTML and as Markdown, the same bytes for the same folder.

    Raises: EvidenceError where facts contradict each other.
    """
    context = identity_view(run, findings)
    return {
        "report.html": html_page("identity.html", context),
        "report.md": markdown_page("identity.md", context),
    }


def identity_view(run: IdentityRun, findings: JSON) -> JSON:
    """Return the context of a record's page."""
    manifest = run.manifest
    names = {build.label: shown_name(build) for build in manifest.builds}
    rounds = read_rounds(run)
    pairs = [_pair(number, pair, run, names) for number, pair in enumerate(findings["pairs"], 1)]
    epochs = _epochs(findings, names) if len(manifest.builds) > _NEIGHBOURS else None
    return {
        "findings": findings,
        "manifest": manifest,
        "plan": run.asked,
        "title": _title(list(names.values())),
        "names": list(names.values()),
        "conclusion": _conclusion(findings),
        "rows": headline(findings["pairs"][0], manifest, run.asked).split(", ", 1)[1],
        "predictions": _predictions(run, findings),
        "instrument": [{**one, "words": _CHECKS.get(one["check"], one["check"])} for one in findings["instrument"]],
        "determinism": _determinism(findings, manifest.builds, names),
        "restarted": all(build.restarts for build in manifest.builds),
        "pairs": pairs,
        "differing": [cell for pair in pairs for cell in pair["cells"] if cell["moved"]],
        "some_differ": any(pair["counts"]["DIFFERENT"] for pair in findings["pairs"]),
        "epochs": epochs,
        "builds": [_build(build, names, rounds) for build in manifest.builds],
        "models": [_model(run, cell) for cell in manifest.cells],
        "machine": {name: manifest.machine.get(name) for name in _MACHINE},
        "program": {name: manifest.program.get(name) for name in ("name", "version", "commit")},
        "rows_kept": any((run.folder / "rows").glob("*.f32")),
        "sections": [entry for entry in _SECTIONS if epochs is not None or entry[0] != "epochs"],
        "precedence": PRECEDENCE,
        "verdicts": _VERDICTS,
    }


def _title(names: list[str]) -> str:
    first, last = names[0], names[-1]
    if len(names) > _NEIGHBOURS:
        return f"Identity of {len(names)} builds, {first} to {last}"
    return f"Identity of {first} and {last}"


def _conclusion(findings: JSON) -> JSON:
    """Return the one line that a report begins with, in parts."""
    own = {name: sum(build[name] for build in findings["determinism"]) for name in ("identical", "not_identical")}
    unchecked = sum(build["unchecked"] for build in findings["determinism"])
    asked = sum(own.values()) + unchecked
    repeats = f"{own['identical']} of {asked} pairs of build and cell repeat themselves"
    repeats += f", {own['not_identical']} do not" * bool(own["not_identical"])
    repeats += f", {unchecked} could not be checked" * bool(unchecked)
    families = [family for pair in findings["pairs"] for family in pair["families"] if family["cells"]]
    count = {verdict: sum(family["verdict"] == verdict for family in families) for verdict in PRECEDENCE}
    shown = [f"{count[verdict]} {verdict}" for verdict in PRECEDENCE if count[verdict]]
    if shown:
        shown[0] = shown[0].replace(" ", " is " if shown[0].startswith("1 ") else " are ", 1)
    several = len(findings["pairs"]) > 1
    noun = "comparison of neighbouring builds" if several else "family that was asked"
    plural = "comparisons of neighbouring builds" if several else "families that were asked"
    return {
        "instrument": "The record is sound."
        if findings["sound"]
        else "The record is inconclusive: a check of the comparison failed, so that its verdicts are no results.",
        "determinism": f"{repeats}.",
        "identity": f"Of {counted(len(families), noun, plural)} {listed(shown)}." if shown else "No family was asked.",
        "predictions": predictions_words([entry["status"] for entry in findings["predictions"]]),
        "exploratory": findings["exploratory"],
    }


def _predictions(run: IdentityRun, findings: JSON) -> list[JSON]:
    data = run.registration().get("predictions.json")
    known = {one.id: one for one in load_identity_predictions(data)} if data is not None else {}
    entries = []
    for number, entry in enumerate(findings["predictions"], 1):
        one = known[entry["id"]]
        rule = (
            f"Holds where {_MEASURES[one.measure]} is {rule_words(one.holds.op, one.holds.value)}, is refuted where it "
            f"is {rule_words(one.refuted.op, one.refuted.value)}; n at least {one.minimum}"
        )
        entries.append({**entry, "anchor": f"prediction/{number}", "rule": rule})
    return entries


def _determinism(findings: JSON, builds: list[BuildEntry], names: Mapping[str, str]) -> list[JSON]:
    restarts = {build.label: build.restarts for build in builds}
    rows = []
    for number, one in enumerate(findings["determinism"], 1):
        verdict = "does not repeat" if one["not_identical"] else "unchecked" if one["unchecked"] else "repeats"
        cells = one["identical"] + one["not_identical"] + one["unchecked"]
        rows.append(
            {
                **one,
                "anchor": f"b{number}",
                "name": names[one["build"]],
                "verdict": verdict,
                "cells": cells,
                "restarts": restarts[one["build"]],
            }
        )
    return rows


def _pair(number: int, pair: JSON, run: IdentityRun, names: Mapping[str, str]) -> JSON:
    """Return one comparison: its families with their cells, and the families without any by their reason."""
    old = names[pair["old"]]
    place = {cell.cell: f"p{number}/c{at}" for at, cell in enumerate(run.manifest.cells, 1)}
    cells = [_cell(cell, place[cell["cell"]], old, names[pair["new"]]) for cell in pair["cells"]]
    asked = [family for family in pair["families"] if family["cells"]]
    without: dict[str, list[str]] = {}
    for family in pair["families"]:
        if not family["cells"]:
            without.setdefault(family["reason"], []).append(family["family"])
    return {
        **pair,
        "anchor": f"p{number}",
        "old_name": old,
        "new_name": names[pair["new"]],
        "headline": headline(pair, run.manifest, run.asked),
        "cells": cells,
        "families": [
            {
                **family,
                "anchor": f"p{number}/f{at}",
                "end": _end(family, old),
                "own": [cell for cell in cells if cell["family"] == family["family"]],
                "identical": sum(
                    cell["verdict"] == "IDENTICAL" for cell in cells if cell["family"] == family["family"]
                ),
            }
            for at, family in enumerate(asked, 1)
        ],
        "without": without,
        "inheriting": [family["family"] for family in asked if family["inherits"]],
    }


def _end(family: JSON, old: str) -> str:
    """Return what follows for a family."""
    if family["inherits"]:
        return f"validation inheritable from {old}"
    if family["verdict"] == "NOT RUN":
        return "nothing follows"
    if family["verdict"] == "IDENTICAL":
        return f"back to its reference gate: {counted(family['cells'] - family['ran'], 'cell')} did not run"
    return "back to its reference gate"


def _cell(cell: JSON, anchor: str, old: str, new: str) -> JSON:
    found = cell["difference"]
    return {
        **cell,
        "anchor": anchor,
        "old_name": old,
        "new_name": new,
        "moved": None if found is None else _moved(found),
    }


def _moved(found: JSON) -> JSON:
    """Return a difference with its first value side by side, and its counts as shares."""
    first = found["first"]
    decimals = [_decimal(first[side]) for side in ("old", "new")]
    bits = [f"0x{first[f'{side}_hex']}" for side in ("old", "new")]
    return {
        **found,
        "first": {
            **first,
            "place": "prefill" if first["step"] == 0 else f"decoded step {first['step']}",
            "old": (cut(*decimals), cut(*bits)),
            "new": (cut(*reversed(decimals)), cut(*reversed(bits))),
        },
        "ulp_first": _apart(first),
        "nats": f"{found['nats_max']:.4g}",
        "share": "none: a row has no range" if found["share_max"] is None else f"{found['share_max']:.3g}",
        "counts": [
            ("rows that differ", *_share(found["rows"])),
            ("values that differ", *_share(found["values"])),
            ("rows with the same most likely token", *_share(found["argmax"])),
        ],
    }


def _share(counted_pair: list[int]) -> tuple[int, int, str]:
    k, n = counted_pair
    return k, n, f"{100 * k / n:.3g} %" if n else "none"


def _decimal(value: float) -> str:
    """Return the shortest decimal that names this float32 value."""
    return str(np.float32(value))


def _apart(first: JSON) -> int:
    """Count the float32 values between the first differing ones; the signs of zero are 0 apart."""

    def ordinal(bits: str) -> int:
        value = int(bits, 16)
        return 0x80000000 - value if value & 0x80000000 else value

    return abs(ordinal(first["new_hex"]) - ordinal(first["old_hex"]))


def _epochs(findings: JSON, names: Mapping[str, str]) -> JSON:
    """Return one row a build: the letter of its class in each cell, and whether it leaves that of the build before."""
    letters: dict[str, list[str]] = {label: [] for label in names}
    for entry in findings["classes"]:
        found = {label: _letter(at) for at, group in enumerate(entry["classes"]) for label in group}
        for label, row in letters.items():
            row.append(found.get(label, ""))
    rows: list[JSON] = []
    last = [""] * len(findings["classes"])
    for number, (label, row) in enumerate(letters.items(), 1):
        begins = [bool(one) and bool(before) and one != before for one, before in zip(row, last, strict=True)]
        rows.append({"name": names[label], "anchor": f"e{number}", "letters": list(zip(row, begins, strict=True))})
        last = [one or before for one, before in zip(row, last, strict=True)]
    return {"cells": [entry["cell"] for entry in findings["classes"]], "rows": rows}


def _letter(at: int) -> str:
    """Return a, b, ... z, a1, b1, ..."""
    lap, place = divmod(at, len(_LETTERS))
    return _LETTERS[place] + (str(lap) if lap else "")


def _build(build: BuildEntry, names: Mapping[str, str], rounds: Mapping[Process, Round]) -> JSON:
    """Return what a build is pinned by: what was asked for, and the digests of what its processes had mapped."""
    own = [found for (label, _, _), found in rounds.items() if label == build.label]
    executables = sorted({found.executable for found in own if found.executable})
    libraries = sorted({(name, sha256 or "not read") for found in own for name, sha256 in found.libraries})
    paths = list(dict.fromkeys(_path_words(found.path) for found in own if found.path))
    failures = list(dict.fromkeys(found.failure for found in own if found.failure))
    pins = {
        "label": build.label,
        "source": _SOURCES[build.source],
        "commit": build.commit,
        "archive": build.archive,
        "options": " ".join(build.options) or None,
        "executable": ", ".join(executables) or None,
        "code path": "; ".join(paths) or None,
        "processes": f"{len(own)}" + ("" if build.restarts else ", of one server that was not restarted"),
        "failures": "; ".join(failures) or None,
    }
    return {
        "name": names[build.label],
        "anchor": f"build/{list(names).index(build.label) + 1}",
        "pins": pins,
        "libraries": libraries,
    }


def _path_words(path: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{name} {' '.join(path[name]) or 'not said'}" for name in ("weights", "cache", "compute"))


def _model(run: IdentityRun, cell: CellEntry) -> JSON:
    facts = {name: run.fact(digest) if run.has("facts", digest) else None for name, digest in cell.prompts.items()}
    return {
        "cell": cell.cell,
        "family": cell.family,
        "quantization": cell.quantization,
        "sha256": cell.model_sha256,
        "vocabulary": cell.vocabulary,
        "prompts": ", ".join(
            f"{name} (left out)" if fact is None else f"{name} ({len(fact['ids'])} tokens)"
            for name, fact in facts.items()
        ),
    }
