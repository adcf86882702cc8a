"""A sealed capture, read strictly: what it is of, what it holds, and which of its sequences are refused.

In goes a folder, out comes a `Capture` whose requests were formed again from corpus and plan and found the same to the
byte. `packed` is all of it but its rows as one fact, from which every byte of manifest, plan, history and seal can be
made again. Nothing is compared with a reference here.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from audit.accuracy.corpus import Corpus, Sequence
from audit.accuracy.plan import AccuracyPlan, Mode, Side, planned, sending_plan, units
from audit.accuracy.record import AccuracyRun, Captured, Inputs
from audit.accuracy.refusal import row_refusal, unit_refusals
from audit.analyse.evidence import Evidence, Planned, gather
from audit.errors import EvidenceError, UsageError
from audit.record import Complete, Invoke, Line, Manifest, RowsFact, ServerLine
from audit.request import request_body
from audit.store import SUMS
from audit.stream import FORMAT, canonical, digest

__all__ = ["Capture", "open_capture"]

# What must be the same for every capture of one side, of what an operator declares.
_BUILD_FIELDS = ("build", "executable_sha256", "libraries", "libraries_source", "environment_present", "settings")


@dataclass(frozen=True)
class Capture:
    """One group of one model on one side, as it was recorded.

    `declaration` is what the operator declares of the server, and `seal` the digest of the folder's seal.
    """

    folder: Path
    run: AccuracyRun
    seal: str
    lines: tuple[Line, ...]
    head: Captured
    plan: AccuracyPlan
    corpus: Corpus
    declaration: dict[str, Any]

    @property
    def manifest(self) -> Manifest:
        """The capture's manifest."""
        return self.run.manifest

    @property
    def label(self) -> str:
        """What it is of, in words."""
        return f"{self.head.model} {self.head.group} {self.head.side}"

    @property
    def build(self) -> dict[str, Any]:
        """What names the build and how it was started: the same in every capture of a side."""
        return {name: self.declaration.get(name) for name in _BUILD_FIELDS}

    @property
    def members(self) -> list[Sequence]:
        """The sequences of its group."""
        return self.corpus.members_of(self.head.model, self.head.group)

    @cached_property
    def planned(self) -> dict[str, Planned]:
        """Its trials by name."""
        return planned(self.plan, self.members, _side(self.head))

    @cached_property
    def evidence(self) -> Evidence:
        """What its history says of the one server."""
        return next(iter(gather(self.lines, self.manifest, self.planned).values()))

    @cached_property
    def refused(self) -> dict[tuple[Mode, str], str]:
        """The reason of each refused sequence, by mode and id; row values are judged when they are read."""
        teachers = {one.id: one.teacher for one in self.members}
        vocabulary = self.corpus.models[self.head.model].vocabulary
        found: dict[tuple[Mode, str], str] = {}
        for unit in units(self.plan, self.members, _side(self.head)):
            reasons = unit_refusals(self.evidence, unit, teachers=teachers, vocabulary=vocabulary)
            sequences = {trial.trial: trial for trial in unit.trials}
            found |= {(_mode(sequences[name].condition), sequences[name].prompt): why for name, why in reasons.items()}
        return found

    def rows_fact(self, mode: Mode, sequence: str) -> RowsFact:
        """Return where the rows of a sequence are.

        Raises: EvidenceError where it was recorded otherwise; ask `refused` first.
        """
        for name, one in self.planned.items():
            trial = one.trial
            if (trial.condition, trial.prompt, trial.n_probs) == (mode, sequence, "vocabulary"):
                fact = self.evidence.replies(name)[-1].rows
                if fact is not None:
                    return fact
        raise EvidenceError(f"{self.folder}: {mode} {sequence} has no rows")

    def rows(self, mode: Mode, sequence: str) -> NDArray[np.float32]:
        """Return the rows of a sequence, checked against their digests, shape (rows, vocabulary).

        Raises: EvidenceError where the bytes are others; UsageError where a value is no logprob.
        """
        fact = self.rows_fact(mode, sequence)
        rows = self.run.rows(fact.file, fact.shape)
        if list(rows.digests) != fact.digests:
            raise EvidenceError(f"{self.folder}: the rows of {mode} {sequence} are not those that were recorded")
        reason = row_refusal(rows.values)
        if reason is not None:
            raise UsageError(f"{self.label}: {mode} {sequence} is refused: {reason}", hint="capture the group again")
        return rows.values

    def packed(self) -> bytes:
        """Return the capture without its rows, streams and echoes as one canonical fact."""
        sums = (line.split("  ", 1) for line in (self.folder / SUMS).read_text("ascii").splitlines())
        declarations = {line.declaration for line in self.lines if isinstance(line, ServerLine)} - {None}
        return canonical({
            "format": FORMAT,
            "kind": "capture",
            "facts": {name: self.run.fact(name) for name in declarations if name is not None},
            "history": [msgspec.to_builtins(line) for line in self.lines],
            "manifest": msgspec.to_builtins(self.manifest),
            "plan": json.loads(self.run.plan_bytes()),
            "sums": {path: hexed for hexed, path in sums},
        })  # fmt: skip


def _side(head: Captured) -> Side:
    return head.side


def _mode(condition: str) -> Mode:
    return "serial" if condition == "serial" else "batch"


def open_capture(folder: Path) -> Capture:
    """Open a capture and check what it says of itself.

    Raises: UsageError where it is no sealed capture; EvidenceError where its facts contradict each other.
    """
    run = AccuracyRun.open(folder)
    if run.manifest.kind != "accuracy":
        raise UsageError(f"{folder} is a run of kind {run.manifest.kind}, not a capture of kind accuracy")
    seal = run.seal
    if seal is None:
        raise UsageError(f"{folder} is unsealed: its capture did not end", hint="remove it and capture the group again")
    lines = tuple(run.lines())
    heads = [line for line in lines if isinstance(line, Captured)]
    if len(heads) != 1 or len(run.manifest.servers) != 1:
        raise UsageError(
            f"{folder} is no capture: it is of {len(heads)} groups and {len(run.manifest.servers)} servers"
        )
    head = heads[0]
    corpus = Corpus.parse(canonical(run.fact(head.corpus)), name=f"{folder}: its corpus")
    plan = AccuracyPlan.parse(json.loads(run.plan_bytes()), name=f"{folder}/plan.json")
    if plan.corpus != head.corpus or head.model not in corpus.models or not corpus.members_of(head.model, head.group):
        raise EvidenceError(f"{folder}: plan, corpus and what was captured contradict each other")
    capture = Capture(folder, run, seal, lines, head, plan, corpus, _declaration(run, lines))
    _check_inputs(capture)
    _check_requests(capture)
    return capture


def _declaration(run: AccuracyRun, lines: tuple[Line, ...]) -> dict[str, Any]:
    """Return the operator's declaration, which must be the same from start to end."""
    said = {line.declaration for line in lines if isinstance(line, ServerLine)} | {run.manifest.servers[0].declaration}
    if len(said) != 1:
        raise EvidenceError(f"{run.folder}: the server was declared in {len(said)} ways during one capture")
    name = said.pop()
    value = run.fact(name) if name is not None else None
    if not isinstance(value, dict):
        raise EvidenceError(f"{run.folder}: nothing is declared of its server")
    return value


def _check_inputs(capture: Capture) -> None:
    """Check that what went in was the same at the end, and the model the one of the corpus."""
    seen = [line for line in capture.lines if isinstance(line, Inputs)]
    if [line.when for line in seen] != ["begin", "end"] or seen[0].files != seen[1].files:
        raise EvidenceError(f"{capture.folder}: its input files changed, or were not compared at the end")
    model = capture.corpus.models[capture.head.model]
    wanted = model.quantized if capture.head.side == "server" else model.decoded
    if f"sha256:{capture.declaration.get('model_sha256')}" != wanted:
        raise EvidenceError(f"{capture.folder}: its model file is not the {capture.head.side}'s of the corpus")


def _check_requests(capture: Capture) -> None:
    """Form every request again and compare it with the digest of what was sent."""
    sequences = {one.id: one for one in capture.members}
    plan = sending_plan(capture.plan, capture.members)
    vocabulary = capture.corpus.models[capture.head.model].vocabulary
    expected = {
        name: digest(
            request_body(
                plan,
                one.trial,
                registered=capture.manifest.registered,
                prompt=sequences[one.prompt].prefill,
                vocabulary=vocabulary,
                forced=sequences[one.prompt].teacher,
            )
        )
        for name, one in capture.planned.items()
    }
    for line in capture.lines:
        if isinstance(line, Invoke | Complete) and line.trial not in expected:
            raise EvidenceError(f"{capture.folder}: line {line.n} speaks of {line.trial}, which is not of its group")
        if isinstance(line, Invoke) and line.request != expected[line.trial]:
            raise EvidenceError(f"{capture.folder}: line {line.n} sent another request than corpus and plan dictate")
