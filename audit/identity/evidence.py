"""An identity record, read once: what each build answered, by cell, round, form and prompt.

In goes a run folder, out come captures with their digests, and rows where this copy holds them. Facts that contradict
each other are refused; nothing is judged.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.errors import EvidenceError
from audit.identity.plan import IdentityPlan
from audit.identity.record import (
    AnyIdentityLine,
    CaptureLine,
    CellEntry,
    IdentityManifest,
    ProcessLine,
    identity_line_from_bytes,
)
from audit.record import End
from audit.store import Folder

__all__ = ["Capture", "IdentityRun", "Process", "Round", "read_rounds", "read_values"]


class IdentityRun(Folder[IdentityManifest, AnyIdentityLine]):
    """The folder of an identity record."""

    kind = "identity"
    manifest_type = IdentityManifest
    read_line = staticmethod(identity_line_from_bytes)

    @cached_property
    def asked(self) -> IdentityPlan:
        """The plan that was executed.

        Raises: EvidenceError where it is another than the manifest names.
        """
        return IdentityPlan.from_bytes(self.plan_bytes())


@dataclass(frozen=True)
class Capture:
    """What one build answered to one prompt; `digests` has one a row, and is empty where it failed."""

    tokens: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    file: str | None = None
    shape: tuple[int, int] = (0, 0)
    failure: str | None = None
    message: str = ""

    @property
    def usable(self) -> bool:
        """Whether there are rows for every token."""
        return self.failure is None and len(self.digests) == len(self.tokens) > 0


@dataclass
class Round:
    """One process of a build on a cell: captures by (form, prompt)."""

    captures: dict[tuple[str, str], Capture] = field(default_factory=dict)
    path: Any = None
    libraries: tuple[tuple[str, str | None], ...] = ()
    executable: str | None = None
    failure: str | None = None
    ended: bool = False


Process = tuple[str, str, int]


def read_rounds(run: IdentityRun) -> dict[Process, Round]:
    """Read the history: a `Round` for each (build, cell, number of the round).

    Raises: EvidenceError where lines contradict the manifest, the plan or each other.
    """
    cells = {cell.cell: cell for cell in run.manifest.cells}
    builds = {build.label for build in run.manifest.builds}
    rounds: dict[Process, Round] = {}
    ended = False
    for line in run.lines():
        if isinstance(line, ProcessLine | CaptureLine):
            if line.build not in builds or line.cell not in cells:
                raise EvidenceError(f"history line {line.n} speaks of {line.build}, {line.cell}, which were not asked")
            _take(rounds, line, cells[line.cell], run)
        ended = ended or isinstance(line, End)
    if not ended:
        raise EvidenceError("the history has no line `end`")
    return rounds


def _take(rounds: dict[Process, Round], line: ProcessLine | CaptureLine, cell: CellEntry, run: IdentityRun) -> None:
    key = (line.build, line.cell, line.round)
    if isinstance(line, ProcessLine) and line.phase == "start":
        if key in rounds:
            raise EvidenceError(f"history line {line.n}: the process {key} began before")
        rounds[key] = Round()
        return
    if key not in rounds or rounds[key].ended:
        raise EvidenceError(f"history line {line.n}: no process {key} runs")
    if isinstance(line, ProcessLine):
        found = rounds[key]
        found.ended = True
        found.path = None if line.path is None else run.fact(line.path)
        found.libraries = tuple((library.name, library.sha256) for library in line.libraries)
        found.executable = line.executable
        found.failure = None if line.failure is None else f"{line.failure.kind}: {line.failure.message}"
        return
    place = (line.form, line.prompt)
    if place in rounds[key].captures or line.prompt not in cell.prompts:
        raise EvidenceError(f"history line {line.n}: {line.form} {line.prompt} was answered before, or not asked")
    rounds[key].captures[place] = _capture(line, cell, run.asked.rows)


def _capture(line: CaptureLine, cell: CellEntry, rows: int) -> Capture:
    if (line.failure is None) == (line.rows is None):
        raise EvidenceError(f"history line {line.n} has both rows and a failure, or neither")
    if line.failure is not None or line.rows is None:
        kind, message = ("", "") if line.failure is None else (line.failure.kind, line.failure.message)
        return Capture(failure=kind, message=message)
    shape = line.rows.shape
    if shape[1] != cell.vocabulary or len(line.rows.digests) != shape[0] or len(line.tokens) != rows:
        raise EvidenceError(
            f"history line {line.n}: rows of shape {shape} for {len(line.tokens)} of {rows} tokens and a vocabulary of "
            f"{cell.vocabulary}"
        )
    if shape[0] < len(line.tokens):
        return Capture(failure="rows", message=f"{shape[0]} rows for {len(line.tokens)} tokens")
    return Capture(tuple(line.tokens), tuple(line.rows.digests), line.rows.file, shape)


def read_values(run: IdentityRun, capture: Capture) -> NDArray[np.float32] | None:
    """Map the rows of a capture, shape (rows, vocabulary); None where this copy leaves them out.

    Raises: EvidenceError where the bytes are not those of the digest.
    """
    if capture.file is None or not run.has("rows", capture.file):
        return None
    rows = run.rows(capture.file, capture.shape)
    if rows.digests != capture.digests:
        raise EvidenceError(f"rows {capture.file} have other digests than the history says")
    return rows.values
