"""The derived files of a run: computed from evidence, written beside it, listed apart.

In goes a run folder, out come findings.json, report.html, report.md, cells.csv and datapackage.json; they may be
deleted and made again, byte for byte. Two tables are large and written only where one asks for them: steps.csv, and the
table of trials, which goes to a file of the caller's choice.
"""

from pathlib import Path
from typing import Any

from audit.analyse import trials
from audit.errors import UsageError
from audit.report.kinds import reporter_of
from audit.report.package import csv_bytes
from audit.store import Run, write_derived
from audit.stream import canonical

__all__ = ["derive", "derived_files", "trials_csv"]


def derived_files(folder: Path, *, with_steps: bool = False) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Compute the findings of a sealed run and its derived files, and write nothing.

    Returns: the findings, and the files' bytes by name.
    Raises: UsageError where the run is unsealed; EvidenceError where facts contradict each other.
    """
    run = Run.open(folder)
    if run.seal is None:
        finished = sum(1 for path in (folder / "streams").glob("*.jsonl"))
        raise UsageError(
            f"{folder} is unsealed: its run did not end ({finished} distinct streams are kept)",
            hint="an unsealed run is no evidence yet; finish it: determinism run --resume",
        )
    reported = reporter_of(run).report(run, with_steps)
    return reported.findings, {"findings.json": canonical(reported.findings), **reported.files}


def derive(folder: Path, *, with_steps: bool = False) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Compute as `derived_files` does, and write the files anew."""
    found, files = derived_files(folder, with_steps=with_steps)
    write_derived(folder, files)
    return found, files


def trials_csv(folder: Path) -> bytes:
    """Return the tidy table of all measured trials as CSV, for pandas."""
    return csv_bytes(trials(Run.open(folder)))
