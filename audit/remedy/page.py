"""A remedy, arranged for reading: the context of its page, and the files that are derived from its folder.

In go a record and its findings, out come `report.html` and `report.md`. Nothing is judged here, and nothing of the
record's own words is markup: `audit.report.render` makes them visible and escapes them.
"""

from pathlib import Path
from typing import Any

from audit.advice import position
from audit.errors import UsageError
from audit.remedy.findings import remedy_findings
from audit.remedy.record import RemedyRun
from audit.remedy.text import command_line, conclusion, price, untried_by_words
from audit.report.render import html_page, markdown_page
from audit.report.words import condition_words
from audit.store import write_derived
from audit.stream import canonical

__all__ = ["derive_remedy", "remedy_files", "remedy_view"]

JSON = dict[str, Any]
_SECTIONS = (
    ("instrument", "The instrument"),
    ("table", "Settings and their price"),
    ("factor", "The guilty factor"),
    ("lines", "Command lines"),
    ("starts", "Starts"),
    ("untried", "Not tried"),
    ("advice", "Advice"),
    ("verify", "How to verify"),
    ("reading", "How to read this"),
    ("limits", "Limits"),
)
_MACHINE = ("cpu", "cpu_flags", "cores", "kernel", "memory_bytes")
_ROLES = {
    "before": "without any setting, first",
    "screen": "screened: each condition once",
    "confirm": "confirmed: the whole plan",
    "after": "without any setting, again",
}
STATUS_WORDS = {
    "remedy": "identical in every usable trial of the whole plan, which diverges without it before and after",
    "too rare": "identical, but without it so little diverges that as many waves could have missed it",
    "not reproduced": "identical, but without it the divergence did not show both before and after",
    "unconfirmed": "identical when it was screened, and not confirmed",
    "serialized": "the requests were not worked on together, so that there was no batch to be invariant",
    "not reached": "the condition did not take place under this setting, for example since nothing was reused",
    "not asked": "other settings kept this condition still, so that it was not asked of these",
    "inconclusive": "tainted, unstable, too few trials, or a check of the start failed",
    "diverges": "at least one trial has other logprobs than when sent alone",
}


def remedy_files(folder: Path) -> tuple[JSON, dict[str, bytes]]:
    """Compute the findings of a sealed remedy and its derived files, and write nothing.

    A copy without the rows of its starts gives the same findings.

    Raises: UsageError where it is unsealed; EvidenceError where facts contradict each other.
    """
    run = RemedyRun.open(folder)
    if run.seal is None:
        raise UsageError(
            f"{folder} is unsealed: it did not end", hint="an unsealed record is no evidence; measure it again"
        )
    found = remedy_findings(run)
    context = remedy_view(run, found)
    return found, {
        "findings.json": canonical(found),
        "report.html": html_page("remedy.html", context),
        "report.md": markdown_page("remedy.md", context),
    }


def derive_remedy(folder: Path) -> JSON:
    """Compute as `remedy_files` does, and write the files anew."""
    found, files = remedy_files(folder)
    write_derived(folder, files)
    return found


def remedy_view(run: RemedyRun, findings: JSON) -> JSON:
    """Return the context of a remedy's page."""
    manifest, without = run.manifest, findings["without"]
    moved = [one for one in findings["conditions"] if one["moved"]]
    return {
        "findings": findings,
        "manifest": manifest,
        "title": f"Remedies for {findings['model']}",
        "conclusion": conclusion(findings),
        "level": findings["level"],
        "moved": [{**one, "words": condition_words(one["condition"])} for one in moved],
        "still": [
            {**one, "words": condition_words(one["condition"])} for one in findings["conditions"] if not one["moved"]
        ],
        "without": price(without, without),
        "rows": [
            {
                **row,
                "anchor": f"s{number}",
                "price": price(row, without),
                "line": command_line(row),
            }
            for number, row in enumerate(findings["settings"], 1)
        ],
        "arms": [_arm(number, arm) for number, arm in enumerate(findings["arms"], 1)],
        "proving": [arm for arm in findings["arms"] if arm["role"] != "screen"],
        "untried": untried_by_words(findings),
        "position": position(),
        "machine": {name: manifest.machine.get(name) for name in _MACHINE},
        "program": {name: manifest.program.get(name) for name in ("name", "version", "commit")},
        "sections": _SECTIONS,
        "statuses": STATUS_WORDS,
    }


def _arm(number: int, arm: JSON) -> JSON:
    cells = [
        f"{cell['condition']} {cell['verdict']} {cell['by_wave']['divergent']}/{cell['by_wave']['n']}"
        for cell in arm["cells"]
    ]
    rates = {name: "-" if arm[name] is None else f"{arm[name]['per_second']:.1f}" for name in ("solo", "together")}
    return {
        **arm,
        "anchor": f"a{number}",
        "role_words": _ROLES[arm["role"]],
        "setting": arm["setting"] or "none",
        "cells": cells,
        "rates": rates,
        "line": command_line(arm),
        "memory": "-" if arm["memory_bytes"] is None else f"{arm['memory_bytes'] // 2**20}",
    }
