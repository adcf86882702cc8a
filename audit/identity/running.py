"""What it takes to run one build on one model: what is asked of a process, and what comes back.

These are shapes: `serving` fills them over HTTP, `dumping` with a program built into the source. A runner starts a
process, asks, and ends it; it compares nothing, and a failure is an answer like any other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from audit.identity.assets import Asset
from audit.identity.plan import IdentityPlan
from audit.identity.record import BuildEntry, CaptureFailure, Library, RowsKind

__all__ = ["Answer", "Build", "Job", "Outcome", "Runner", "code_path"]

Form = Literal["free", "forced"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One prompt to be answered; `forced` are the ids to follow instead of the most likely ones."""

    form: Form
    prompt: str
    ids: Sequence[int]
    forced: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a job: rows of shape (steps + 1, vocabulary) and the token that each leads to, or a failure."""

    job: Job
    tokens: tuple[int, ...] = ()
    rows: NDArray[np.float32] | None = None
    failure: CaptureFailure | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One process: its answers in the order of the jobs, what it was made of, and what it said of its code path."""

    answers: list[Answer] = field(default_factory=list)
    executable: str | None = None
    libraries: list[Library] = field(default_factory=list)
    path: dict[str, list[str]] | None = None
    failure: CaptureFailure | None = None


class Runner(Protocol):
    """Runs a build: one process a call."""

    def run(self, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job]) -> Outcome:
        """Start the build on a model, let it answer every job, and end it."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build that is ready to run."""

    entry: BuildEntry
    rows: RowsKind
    runner: Runner


_BUFFER = re.compile(r"(\S+)\s+(model|KV|RS|compute) buffer size")
# Old builds also log whole replies, in lines that tell nothing and are long to search.
_LINE_LENGTH_MAX = 1000
_KINDS = {"model": "weights", "KV": "cache", "RS": "cache", "compute": "compute"}


def code_path(log: str) -> dict[str, list[str]] | None:
    """Read from a log of llama.cpp where weights, cache and computation were placed, and with which CPU features.

    Returns: sorted names under `weights`, `cache`, `compute` and `features`; None where the log says nothing of it.
    """
    found: dict[str, set[str]] = {"weights": set(), "cache": set(), "compute": set(), "features": set()}
    for line in log.splitlines():
        if len(line) > _LINE_LENGTH_MAX:
            continue
        match = _BUFFER.search(line)
        if match is not None:
            found[_KINDS[match[2]]].add(match[1])
        elif "system_info:" in line:
            found["features"].update(re.findall(r"([A-Z][A-Z0-9_]*) = 1\b", line))
    return {kind: sorted(names) for kind, names in found.items()} if found["weights"] else None
