"""The derived files of a run of any kind, for those who have to compare or renew them.

In goes a run folder, out come its findings and the bytes of each derived file, as the package of its kind makes them.
Nothing is written here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from audit.accuracy.findings import check_files
from audit.identity.gate import identity_files
from audit.kind import kind_of
from audit.remedy.page import remedy_files
from audit.report.derive import derived_files

__all__ = ["files_of"]

Files = tuple[dict[str, Any], dict[str, bytes]]

_KINDS: Mapping[str, Callable[[Path], Files]] = {
    "identity": identity_files,
    "accuracy": check_files,
    "remedy": remedy_files,
}


def files_of(folder: Path, *, with_steps: bool = False) -> Files:
    """Compute the findings of a sealed run and its derived files; `with_steps` asks for the table of an audit's steps.

    Raises: UsageError where the run is unsealed, or of a kind that has no findings; EvidenceError where facts
        contradict each other.
    """
    make = _KINDS.get(kind_of(folder))
    return derived_files(folder, with_steps=with_steps) if make is None else make(folder)
