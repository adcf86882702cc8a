"""The derived files of a run: computed from evidence, written beside it, listed apart.

In goes a run folder, out come `findings.json` and `cells.csv`; they may be deleted and made again, byte for byte. The
table of trials is larger than the evidence that it is made from, so it is written only where one asks for it.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from audit.analyse import findings, trials
from audit.errors import UsageError
from audit.store import Run, write_derived
from audit.stream import canonical

__all__ = ["derive", "trials_csv"]


def derive(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Compute the findings of a sealed run and write its derived files.

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
    found = findings(run)
    files = {
        "findings.json": canonical(found),
        "cells.csv": _csv(pd.json_normalize(found["cells"])),
    }
    write_derived(folder, files)
    return found, files


def trials_csv(folder: Path) -> bytes:
    """Return the tidy table of all measured trials as CSV, for pandas."""
    return _csv(trials(Run.open(folder)))


def _csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode("utf-8")
