"""The files of a check beside the common store: rows that two folders share, and metrics.

In go digests, out come files or bytes. Nothing is compared.
"""

import os
import shutil
from pathlib import Path

from audit.errors import EvidenceError, UsageError
from audit.store import Run
from audit.stream import digest

__all__ = ["link_rows", "stored_metrics"]


def link_rows(source: Path, target: Path, name: str) -> None:
    """Give a file of rows a second name in another folder, or bytes of its own on another file system.

    Args:
        source: the folder of the run that holds it.
        target: the folder of the run that takes it.
        name: its digest.

    Raises: UsageError where it cannot be stored.
    """
    place = Path("rows") / (name.removeprefix("sha256:") + ".f32")
    if (target / place).exists():
        return
    try:
        os.link(source / place, target / place)
    except OSError:
        try:
            shutil.copyfile(source / place, target / place)
        except OSError as error:
            raise UsageError(f"{target / place}: cannot be stored: {error.strerror}") from error


def stored_metrics(run: Run, name: str) -> bytes:
    """Read a file of metrics by its digest.

    Raises: EvidenceError where it is not there, or holds other bytes.
    """
    path = run.folder / "metrics" / (name.removeprefix("sha256:") + ".jsonl")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}") from error
    if digest(data) != name:
        raise EvidenceError(f"{path} holds other bytes than its name says")
    return data
