"""The seal and the derived files of a run of any kind, for those who have to compare or renew them.

In goes a run folder, out come its seal, or its findings and the bytes of each derived file, as the package of its kind
reads and makes them. Nothing is written here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from audit.accuracy.findings import check_files
from audit.accuracy.record import AccuracyRun
from audit.identity.evidence import IdentityRun
from audit.identity.gate import identity_files
from audit.kind import kind_of
from audit.remedy.page import remedy_files
from audit.remedy.record import RemedyRun
from audit.report.derive import derived_files
from audit.store import Run

__all__ = ["files_of", "seal_of"]

Files = tuple[dict[str, Any], dict[str, bytes]]

_KINDS: Mapping[str, Callable[[Path], Files]] = {
    "identity": identity_files,
    "accuracy": check_files,
    "remedy": remedy_files,
}
_FOLDERS: Mapping[str, type[IdentityRun | AccuracyRun | RemedyRun]] = {
    "identity": IdentityRun,
    "accuracy": AccuracyRun,
    "remedy": RemedyRun,
}


def seal_of(folder: Path) -> str | None:
    """Return the digest of a run's seal, None where it is unsealed.

    Raises: UsageError where this is no run; EvidenceError where a file is not the one that was sealed.
    """
    return _FOLDERS.get(kind_of(folder), Run).open(folder).seal


def files_of(folder: Path, *, with_steps: bool = False) -> Files:
    """Compute the findings of a sealed run and its derived files; `with_steps` asks for the table of an audit's steps.

    Raises: UsageError where the run is unsealed, or of a kind that has no findings; EvidenceError where facts
        contradict each other.
    """
    make = _KINDS.get(kind_of(folder))
    return derived_files(folder, with_steps=with_steps) if make is None else make(folder)
