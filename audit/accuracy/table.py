"""The rows of a check as one table, for pandas and Parquet: an export, never evidence."""

from pathlib import Path

import pandas as pd

from audit.accuracy.metrics import COLUMNS
from audit.accuracy.record import AccuracyRun, Measured
from audit.errors import UsageError

__all__ = ["rows_table", "write_parquet"]


def rows_table(run: AccuracyRun) -> pd.DataFrame:
    """Return one row a compared row: model, group, mode, and the columns of the metrics."""
    frames = []
    for line in run.lines():
        if isinstance(line, Measured):
            rows = run.metrics(line.metrics)
            frame = pd.DataFrame({name: getattr(rows, name) for name in COLUMNS})
            frames.append(frame.assign(model=line.model, group=line.group, mode=line.mode))
    if not frames:
        raise UsageError(f"{run.folder} compares nothing, so it has no rows to export")
    return pd.concat(frames, ignore_index=True)[["model", "group", "mode", *COLUMNS]]


def write_parquet(run: AccuracyRun, path: Path) -> int:
    """Write the table to a file that must not exist, and return how many rows it has.

    Raises: UsageError where it exists, or no library that writes Parquet is installed.
    """
    table = rows_table(run)
    try:
        with path.open("xb") as file:
            table.to_parquet(file, index=False, engine="pyarrow")
    except ImportError as error:
        path.unlink(missing_ok=True)
        hint = "install the extra: python -m pip install 'determinism-audit[parquet]'"
        raise UsageError("Parquet cannot be written: the pyarrow package is missing", hint=hint) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return len(table)
