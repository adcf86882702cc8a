"""A made-up run of the registered study: the two models it speaks of, a small plan, and its real predictions.json.

In: a plan and what moves on which server. Out: the predictions of the findings, by their ids. The run is written by
tests/unit/analyse/simulated.py; here only the manifest gets the digest of the registered file, so that it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import msgspec

from audit.analyse import findings
from audit.plan import Plan
from audit.record import AnyManifest
from audit.store import RunWriter
from audit.stream import Stream, digest
from audit.trial import Trial
from tests.unit.analyse import simulated
from tests.unit.analyse.simulated import Subject, moved

REGISTRATION = Path(__file__).resolve().parents[3] / "prereg" / "audit"
GEMMA, SMOLLM = "gemma3-270m-q4_k_m", "smollm2-135m-q4_1"
SLOTS = 8


class Change(NamedTuple):
    """What differs from the reference: one float32 or one token, in which of a condition's trials of a server."""

    server: str
    condition: str
    what: Literal["logprob", "token"] = "logprob"
    extent: Literal["all", "all but one", "one"] = "all"


class _Writer(RunWriter):
    """A writer whose manifest names the registered files."""

    def begin(self, manifest: AnyManifest, *, plan: bytes, registration: dict[str, bytes]) -> None:
        """Write the beginning, with the digest of each registered file."""
        assert manifest.registration is not None
        files = {name: {"sha256": digest(data), "blob": "0" * 40} for name, data in registration.items()}
        named = msgspec.structs.replace(manifest.registration, files=files)
        super().begin(msgspec.structs.replace(manifest, registration=named), plan=plan, registration=registration)


def planned(plan: Plan) -> list[tuple[Trial, str]]:
    """Return every trial of a plan with its block."""
    blocks = plan.unfold(digest(plan.to_bytes()))
    return [(trial, block.block) for block in blocks for unit in block.units for trial in unit.trials]


def measured(plan: Plan, condition: str) -> list[str]:
    """Return the measured trials of a condition."""
    trials = [trial for trial, _ in planned(plan)]
    return [trial.trial for trial in trials if (trial.role, trial.condition) == ("measured", condition)]


def one_ulp(stream: Stream) -> Stream:
    """Move the logprob of step 3 by one float32."""
    return moved(stream, 3)


def other_token(stream: Stream) -> Stream:
    """Give step 5 another token, whether or not it has a logprob."""
    step = stream.steps[5]
    changed = step._replace(token=simulated.VOCABULARY - 1 - step.token)
    return stream._replace(steps=(*stream.steps[:5], changed, *stream.steps[6:]))


def servers(plan: Plan, *changes: Change) -> dict[str, Subject]:
    """Return the two models' servers with what differs on each, and nothing else."""
    found = {label: Subject(plan=plan, label=label, slots=SLOTS) for label in (GEMMA, SMOLLM)}
    for change in changes:
        names = measured(plan, change.condition)
        assert names, f"the plan has no trial of {change.condition}"
        chosen = {"all": names, "all but one": names[1:], "one": names[:1]}[change.extent]
        function = one_ulp if change.what == "logprob" else other_token
        found[change.server].streams.update(dict.fromkeys(chosen, function))
    return found


def blind(subject: Subject) -> None:
    """Let a control of the seed give its baseline's stream, as a server would that ignores seeds."""
    trials = {trial.trial: (trial, block) for trial, block in planned(subject.plan)}
    control, _ = trials["control_seed/p/0"]
    baseline, block = trials[control.reference or ""]
    stream = subject.stream(baseline, block)
    subject.streams[control.trial] = lambda _: stream


def predictions(folder: Path, *subjects: Subject) -> dict[str, dict[str, Any]]:
    """Write the run with the registered predictions, judge it, and return what became of each."""
    files = {"predictions.json": (REGISTRATION / "predictions.json").read_bytes()}
    with patch.object(simulated, "RunWriter", _Writer):
        run = simulated.write(folder, *subjects, registration=files)
    return {entry["id"]: entry for entry in findings(run)["predictions"]}
