"""Builds and models become a sealed record: who was asked what in which order, and every row that came.

The order is the same for every cell: all builds from the newest to the oldest, each in a process of its own, then all
of them again; the second time each is also forced to the tokens that the oldest that answers chose the first time, so
that every step compares. Whether anything is identical is not this module's business.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from audit.errors import UsageError
from audit.identity.assets import Asset
from audit.identity.order import IdentityOrder
from audit.identity.record import CaptureFailure, CaptureLine, CellEntry, IdentityManifest, NotRun, ProcessLine
from audit.identity.running import Answer, Build, Job, Outcome
from audit.identity.scrub import environment_facts
from audit.machine import dependencies, machine, program, python
from audit.record import End, Interrupt, PromptFact, RowsFact, to_bytes
from audit.rows import Rows
from audit.store import RunWriter
from audit.stream import FORMAT, canonical, digest

__all__ = ["ROUNDS", "capture_identity"]

ROUNDS = 2


@dataclass
class _Sitting:
    """One cell while its processes run; `reference` are the tokens to force by prompt.

    Cells run side by side, but a history has one writer at a time.
    """

    order: IdentityOrder
    asset: Asset
    writer: RunWriter
    lock: threading.Lock
    reference: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def run(self, build: Build, number: int) -> None:
        """Run one process of a build and write down what it did."""
        with self.lock:
            self.writer.append(ProcessLine(build=build.entry.label, cell=self.asset.cell, round=number, phase="start"))
        outcome = build.runner.run(self.asset, self.order.plan, self._jobs(number))
        with self.lock:
            self._write_down(build.entry.label, number, outcome)

    def _write_down(self, label: str, number: int, outcome: Outcome) -> None:
        lines = [self._line(label, number, answer) for answer in outcome.answers]
        for line in lines:
            self.writer.append(line)
        if number == 0 and lines and all(line.failure is None for line in lines):
            # The first round ends with the oldest build, so what stays are the tokens of the oldest that answers.
            self.reference.update({line.prompt: tuple(line.tokens) for line in lines})
        if number:
            self._missing(label, number)
        self._end(label, number, outcome)
        self.writer.sync()

    def _jobs(self, number: int) -> list[Job]:
        prompts = {name: ids for name, (ids, _) in self.asset.prompts.items()}
        jobs = [Job(form="free", prompt=name, ids=ids) for name, ids in prompts.items()]
        if number:
            jobs += [
                Job(form="forced", prompt=name, ids=ids, forced=self.reference[name])
                for name, ids in prompts.items()
                if name in self.reference
            ]
        return jobs

    def _missing(self, label: str, number: int) -> None:
        """Say of each prompt without a reference that nothing could be forced."""
        for name in self.asset.prompts:
            if name not in self.reference:
                failure = CaptureFailure(kind="no reference", message="no build has answered freely")
                job = Job(form="forced", prompt=name, ids=())
                self.writer.append(self._line(label, number, Answer(job=job, failure=failure)))

    def _line(self, label: str, number: int, answer: Answer) -> CaptureLine:
        failure, rows = answer.failure, None
        if failure is None and answer.rows is not None and not np.isfinite(answer.rows).all():
            failure = CaptureFailure(kind="dump", message="a value is not finite")
        if failure is None and answer.rows is not None:
            kept = Rows(answer.rows)
            rows = RowsFact(file=self.writer.put("rows", kept.to_bytes()), shape=kept.shape, digests=list(kept.digests))
        return CaptureLine(
            build=label,
            cell=self.asset.cell,
            round=number,
            form=answer.job.form,
            prompt=answer.job.prompt,
            tokens=list(answer.tokens) if rows is not None else [],
            rows=rows,
            failure=failure,
        )

    def _end(self, label: str, number: int, outcome: Outcome) -> None:
        self.writer.append(
            ProcessLine(
                build=label,
                cell=self.asset.cell,
                round=number,
                phase="end",
                executable=outcome.executable,
                libraries=outcome.libraries,
                path=None if outcome.path is None else self.writer.put_fact(canonical(outcome.path)),
                failure=outcome.failure,
            )
        )


def capture_identity(
    order: IdentityOrder,
    builds: Sequence[Build],
    assets: Sequence[Asset],
    folder: Path,
    *,
    not_run: dict[str, str],
    report: Callable[[str], None],
    side_by_side: int = 1,
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run builds on models, and seal the record.

    Args:
        order: plan and registration.
        builds: at least two, the oldest first; all give the same kind of rows.
        assets: the models.
        folder: the run folder, which must not exist or be empty.
        not_run: families that were not asked, with reasons.
        report: is told before each process where the run is.
        side_by_side: number of cells that run at the same time; each has one process at a time.
        stopped: is asked before each process whether the user wants to stop.

    Returns: the digest of the seal, or None where the run was stopped (it stays unsealed).
    Raises: UsageError where builds or folder do not fit.
    """
    labels = [build.entry.label for build in builds]
    if len(set(labels)) < len(labels) or len(builds) < ROUNDS:
        raise UsageError(f"two or more builds of different names are compared, not {', '.join(labels)}")
    if len({build.rows for build in builds}) > 1:
        logits = ", ".join(build.entry.name for build in builds if build.rows == "logits")
        raise UsageError(
            f"{logits} gives logits and the other side reported logprobs, which cannot be compared",
            hint="build its llama-server and name it binary:PATH, or name two git revisions",
        )
    writer = RunWriter(folder)
    try:
        writer.begin(
            _manifest(order, builds, assets, not_run, writer),
            plan=order.plan.to_bytes(),
            registration=order.files,
        )
        if not _run_cells(order, builds, assets, writer, side_by_side=side_by_side, report=report, stopped=stopped):
            writer.append(Interrupt(reason="stopped by the user"))
            return None
        writer.append(End(reason="finished"))
        return writer.seal()
    finally:
        writer.close()


def _run_cells(
    order: IdentityOrder,
    builds: Sequence[Build],
    assets: Sequence[Asset],
    writer: RunWriter,
    *,
    side_by_side: int,
    report: Callable[[str], None],
    stopped: Callable[[], bool],
) -> bool:
    """Run every cell, some of them at the same time, and tell whether all was done."""
    turns = [(number, build) for number in range(ROUNDS) for build in reversed(builds)]
    lock, halt = threading.Lock(), threading.Event()

    def run_cell(asset: Asset) -> None:
        sitting = _Sitting(order, asset, writer, lock)
        for number, build in turns:
            if halt.is_set() or stopped():
                halt.set()
                return
            report(f"{asset.cell}  {build.entry.label}  run {number + 1} of {ROUNDS}")
            sitting.run(build, number)

    with ThreadPoolExecutor(max_workers=side_by_side) as pool:
        try:
            for future in as_completed([pool.submit(run_cell, asset) for asset in assets]):
                future.result()
        except BaseException:
            # What runs is waited for, what waits does not begin.
            halt.set()
            raise
    return not halt.is_set()


def _manifest(
    order: IdentityOrder,
    builds: Sequence[Build],
    assets: Sequence[Asset],
    not_run: dict[str, str],
    writer: RunWriter,
) -> IdentityManifest:
    return IdentityManifest(
        format=FORMAT,
        kind="identity",
        plan=digest(order.plan.to_bytes()),
        registered=order.registered,
        registration=order.registration,
        program=program(),
        dependencies=dependencies(),
        python=python(),
        machine=machine(),
        rows=builds[0].rows,
        builds=[build.entry for build in builds],
        cells=[
            CellEntry(
                cell=asset.cell,
                family=asset.family,
                quantization=asset.quantization,
                model_sha256=f"sha256:{asset.model.sha256}",
                vocabulary=asset.vocabulary,
                prompts={
                    name: writer.put_fact(to_bytes(PromptFact(ids=ids, text=text)))
                    for name, (ids, text) in asset.prompts.items()
                },
            )
            for asset in assets
        ],
        not_run=[NotRun(family=family, reason=reason) for family, reason in sorted(not_run.items())],
        environment=environment_facts(),
    )
