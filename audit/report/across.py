"""Runs side by side: which cells have another verdict, and which streams are of one class across runs.

In go run folders, out come a document, its text, and the context of a page. A *subject* is one server of one run. Cells
are matched by condition and by the server's label, or, where every run has one server, by condition alone. Streams are
compared by digest, and only between subjects whose prompt is the same fact: the same ids and the same text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from audit.analyse import Judgement, judge_run
from audit.analyse.cells import JUDGED
from audit.analyse.evidence import Evidence
from audit.errors import UsageError
from audit.report.run_map import class_letter
from audit.report.text import bounds_text, table_text
from audit.report.visible import terminal
from audit.report.words import condition_words, in_order
from audit.store import Run
from audit.stream import FORMAT

__all__ = ["Told", "across", "across_page_context", "across_text", "one_by_one", "run_names", "told_of"]

JSON = dict[str, Any]
_RUNS_MIN = 2
_ONE_EACH = "the server of each run"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one server of one run has to say here: plain values, small enough to come from another machine.

    `baselines` are prompt and stream of each completed baseline, by trial; `given` are the digests of all streams of
    measured trials and baselines.
    """

    server: str
    document: JSON
    cells: list[JSON]
    baselines: dict[str, tuple[str, str]]
    given: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """One server of one run, and the row group that its cells belong to."""

    name: str
    group: str
    told: Told

    @property
    def document(self) -> JSON:
        """Who it is."""
        return {"name": self.name, "group": self.group, "server": self.told.server, **self.told.document}


def told_of(folder: Path) -> list[Told]:
    """Judge one run, and return what its servers have to say: a pure function of the folder.

    Raises: UsageError where it is no audit; EvidenceError where it contradicts itself.
    """
    judged = judge_run(Run.open(folder))
    return [_said(judged, server) for server in judged.evidence]


def _said(judged: Judgement, server: str) -> Told:
    manifest, evidence = judged.run.manifest, judged.evidence[server]
    attested = evidence.entry.attested
    baselines = _baselines(evidence)
    own = judged.trials[judged.trials["server"] == server]
    return Told(
        server=server,
        document={
            "seal": judged.run.seal,
            "sound": judged.findings["sound"],
            "exploratory": judged.findings["exploratory"],
            "plan": manifest.plan,
            "build": attested.build_info,
            "declared_build": _declared(judged.run, evidence, "build"),
            "model": attested.model,
            "cpu": manifest.machine.get("cpu"),
        },
        cells=[cell for cell in judged.findings["cells"] if cell["server"] == server],
        baselines=baselines,
        given=frozenset({str(name) for name in own["logprob"].dropna()} | {stream for _, stream in baselines.values()}),
    )


def _declared(run: Run, evidence: Evidence, name: str) -> str | None:
    declaration = evidence.entry.declaration
    fact = run.fact(declaration) if declaration and run.has("facts", declaration) else None
    value = fact.get(name) if isinstance(fact, dict) else None
    return value if isinstance(value, str) else None


def one_by_one(folders: Sequence[Path]) -> list[list[Told]]:
    """Judge runs here, one after the other."""
    return [told_of(folder) for folder in folders]


def across(folders: Sequence[Path], *, judge: Callable[[Sequence[Path]], list[list[Told]]] = one_by_one) -> JSON:
    """Compare runs.

    Args:
        folders: the runs.
        judge: does what `one_by_one` does, in the same order, wherever it likes.

    Returns: `subjects`, `cells` (one entry a group and condition, with the cell of every subject and whether their
        verdicts differ), `streams` (one entry a baseline trial of a group, with the class of every subject) and
        `common` (one entry a pair of subjects, with the number of streams that both gave).
    Raises: UsageError for fewer than two runs, or one that is no audit; EvidenceError where one contradicts itself.
    """
    if len(folders) < _RUNS_MIN:
        raise UsageError(f"{len(folders)} run is named, and runs are compared", hint="determinism across RUN RUN ...")
    runs = judge(folders)
    alone = all(len(servers) == 1 for servers in runs)
    subjects = [
        _Subject(name=f"{name}:{told.server}", group=_ONE_EACH if alone else told.server, told=told)
        for name, servers in zip(run_names(folders), runs, strict=True)
        for told in servers
    ]
    return {
        "format": FORMAT,
        "subjects": [subject.document for subject in subjects],
        "cells": _cells(subjects),
        "streams": _streams(subjects),
        "common": _common(subjects),
    }


def run_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each run: that of its folder, with a number where several have it."""
    short = [folder.resolve().name for folder in folders]
    return [
        name if name not in short[:place] else f"{name}#{short[:place].count(name) + 1}"
        for place, name in enumerate(short)
    ]


def _groups(subjects: Sequence[_Subject]) -> list[tuple[str, list[_Subject]]]:
    names = dict.fromkeys(subject.group for subject in subjects)
    return [(name, [subject for subject in subjects if subject.group == name]) for name in names]


def _cells(subjects: Sequence[_Subject]) -> list[JSON]:
    entries = []
    for group, members in _groups(subjects):
        found = {(subject.name, cell["condition"]): cell for subject in members for cell in subject.told.cells}
        for condition in in_order([condition for _, condition in found]):
            cells = {subject.name: _cell(found.get((subject.name, condition))) for subject in members}
            judged = {cell["verdict"] for cell in cells.values() if cell is not None and cell["verdict"] in JUDGED}
            entries.append({"group": group, "condition": condition, "changed": len(judged) > 1, "subjects": cells})
    return entries


def _cell(cell: Mapping[str, Any] | None) -> JSON | None:
    if cell is None:
        return None
    kept = ("verdict", "qualifiers", "usable", "logprob_identical", "token_identical", "distinct", "by_wave")
    return {name: cell[name] for name in kept}


def _streams(subjects: Sequence[_Subject]) -> list[JSON]:
    """Return, for every baseline of a group, which subjects gave one stream; `-` where there is none to compare."""
    entries = []
    for group, members in _groups(subjects):
        said = {subject.name: subject.told.baselines for subject in members}
        for trial in dict.fromkeys(name for baselines in said.values() for name in baselines):
            classes: dict[tuple[str, str], str] = {}
            prompts: dict[str, int] = {}
            row: dict[str, str] = {}
            for subject in members:
                found = said[subject.name].get(trial)
                if found is None:
                    row[subject.name] = "-"
                    continue
                prompt, digest = found
                number = prompts.setdefault(prompt, len(prompts) + 1)
                letter = classes.setdefault((prompt, digest), class_letter(len(classes)))
                row[subject.name] = letter if number == 1 else f"{letter} (prompt {number})"
            entries.append({"group": group, "trial": trial, "classes": row, "distinct": len(classes)})
    return entries


def _common(subjects: Sequence[_Subject]) -> list[JSON]:
    """Return, for each pair of subjects of a group, how many different streams both gave, in whatever trials."""
    given = {subject.name: subject.told.given for subject in subjects}
    return [
        {
            "group": group,
            "subjects": [one.name, other.name],
            "common": len(given[one.name] & given[other.name]),
            "streams": [len(given[one.name]), len(given[other.name])],
        }
        for group, members in _groups(subjects)
        for one, other in combinations(members, 2)
    ]


def _baselines(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return prompt and stream of each baseline that was completed, by trial."""
    found = {}
    for name, one in evidence.planned.items():
        said = evidence.outcome(name) if one.trial.role == "baseline" else None
        if said is not None and said.logprob is not None:
            found[name] = (evidence.prompts.get(one.prompt, ""), said.logprob)
    return found


def _told(cell: JSON | None) -> str:
    if cell is None:
        return "not planned"
    words = " ".join([cell["verdict"], *(f"({word})" for word in cell["qualifiers"])])
    return f"{words} {cell['logprob_identical']}/{cell['usable']}, moved {bounds_text(cell['by_wave'])}"


def across_text(document: JSON) -> str:
    """Return the comparison for a terminal: subjects by number, cells, then classes of baselines."""
    numbers = {subject["name"]: f"[{number}]" for number, subject in enumerate(document["subjects"], 1)}
    told = [
        "subjects\n"
        + table_text([
            {
                "": numbers[one["name"]],
                "run:server": terminal(one["name"]),
                "build": terminal(one["declared_build"] or one["build"]),
                "record": "sound" if one["sound"] else "inconclusive",
                "seal": str(one["seal"]).removeprefix("sha256:")[:16],
            }
            for one in document["subjects"]
        ])
    ]  # fmt: skip
    for group in dict.fromkeys(entry["group"] for entry in document["cells"]):
        cells = [entry for entry in document["cells"] if entry["group"] == group]
        rows = [
            {
                "": "changed" if entry["changed"] else "",
                "condition": entry["condition"],
                **{numbers[name]: _told(cell) for name, cell in entry["subjects"].items()},
            }
            for entry in cells
        ]
        told.append(f"cells of {terminal(group)}; identical of usable trials, and waves that moved\n{table_text(rows)}")
        streams = [entry for entry in document["streams"] if entry["group"] == group]
        rows = [
            {"baseline": entry["trial"], **{numbers[name]: letter for name, letter in entry["classes"].items()}}
            for entry in streams
        ]
        told.append(f"classes of the baselines of {terminal(group)}; one letter is one stream\n{table_text(rows)}")
        told += [
            f"{numbers[entry['subjects'][0]]} gave {entry['streams'][0]} different streams and "
            f"{numbers[entry['subjects'][1]]} gave {entry['streams'][1]}; {entry['common']} of them are the same\n"
            for entry in document["common"]
            if entry["group"] == group
        ]
    return "\n".join(told) + "\n" + _last_line(document) + "\n"


def _last_line(document: JSON) -> str:
    changed = sum(entry["changed"] for entry in document["cells"])
    one = sum(entry["distinct"] == 1 for entry in document["streams"])
    return (
        f"{changed} of {len(document['cells'])} cells changed their verdict; "
        f"{one} of {len(document['streams'])} baselines are one stream in all subjects"
    )


def across_page_context(document: JSON) -> JSON:
    """Return what the page of a comparison shows."""
    groups = [
        {
            "name": group,
            "subjects": [one for one in document["subjects"] if one["group"] == group],
            "cells": [
                {**entry, "words": condition_words(entry["condition"]), "bounds": _bounds(entry)}
                for entry in document["cells"]
                if entry["group"] == group
            ],
            "streams": [entry for entry in document["streams"] if entry["group"] == group],
            "common": [entry for entry in document["common"] if entry["group"] == group],
        }
        for group in dict.fromkeys(one["group"] for one in document["subjects"])
    ]
    return {"document": document, "groups": groups, "conclusion": _last_line(document), "title": "Runs side by side"}


def _bounds(entry: JSON) -> dict[str, str]:
    return {name: bounds_text(cell["by_wave"]) for name, cell in entry["subjects"].items() if cell is not None}
