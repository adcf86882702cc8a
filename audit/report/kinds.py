"""The kinds of runs that can be reported: how each is judged and which files, words and code follow.

In goes a run, out comes what `determinism report` writes and says. To report another kind of record, add a row to
`KINDS`; nothing else here or in derive.py knows one kind from another.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import pandas as pd

from audit.analyse import judge_run
from audit.errors import UsageError
from audit.report.audit_view import audit_view
from audit.report.package import Sheet, package_bytes
from audit.report.render import html_page, markdown_page
from audit.report.steps import step_table
from audit.report.text import findings_text, verdict_code
from audit.store import Run

__all__ = ["KINDS", "Kind", "Reported", "reporter_of"]

JSON = dict[str, Any]


class Reported(NamedTuple):
    """What one run comes to: its findings, and the derived files beside findings.json."""

    findings: JSON
    files: dict[str, bytes]


class _Code(Protocol):
    def __call__(self, findings: JSON, *, strict: bool) -> int: ...


class Kind(NamedTuple):
    """How one kind of run is reported.

    `report` judges a run and writes its files, with the table of steps where that is asked for; `text` says the
    findings on a terminal; `code` is their exit code.
    """

    report: Callable[[Run, bool], Reported]
    text: Callable[[JSON], str]
    code: _Code


def reporter_of(run: Run) -> Kind:
    """Return how a run is reported.

    Raises: UsageError where this version cannot report its kind.
    """
    if run.manifest.kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise UsageError(f"{run.folder} is of kind {run.manifest.kind}, and only {known} runs can be reported")
    return KINDS[run.manifest.kind]


def _report_audit(run: Run, with_steps: bool) -> Reported:  # noqa: FBT001 - given by position to a row of the table
    judged = judge_run(run)
    steps = step_table(run, judged.trials)
    sheets = {"cells.csv": Sheet(pd.json_normalize(judged.findings["cells"]))}
    if with_steps:
        sheets["steps.csv"] = Sheet(steps)
    context = audit_view(judged, steps)
    return Reported(
        judged.findings,
        {
            **{name: sheet.data for name, sheet in sheets.items()},
            "datapackage.json": package_bytes(sheets, name="determinism-audit", seal=str(run.seal)),
            "report.html": html_page("audit.html", context),
            "report.md": markdown_page("audit.md", context),
        },
    )


KINDS: Mapping[str, Kind] = {
    "audit": Kind(report=_report_audit, text=findings_text, code=verdict_code),
}
