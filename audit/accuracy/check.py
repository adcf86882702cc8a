"""Everything that was captured, against bounds that were frozen before: one sealed record.

In go corpus, bounds and captures, out comes a folder of kind accuracy with every capture but its rows as a fact, the
metrics of each row, and the rows themselves as second names of the captures' files. All that can be refused is refused
before the folder is made. Nothing here can change a bound.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.accuracy.bounds import FACTOR, Bounds
from audit.accuracy.calibrate import calibrated
from audit.accuracy.corpus import CALIBRATION, GROUPS
from audit.accuracy.inputs import InputFiles
from audit.accuracy.metrics import Measures
from audit.accuracy.order import AccuracyOrder
from audit.accuracy.packed import pack
from audit.accuracy.plan import MODES, Mode
from audit.accuracy.record import Included, Measured
from audit.accuracy.study import Pair, Study, measure_pair, open_study
from audit.errors import EvidenceError, UsageError
from audit.machine import dependencies, machine, program, python
from audit.record import End, Manifest
from audit.store import STORES, RunWriter
from audit.stream import FORMAT, digest

__all__ = ["Checking", "check"]

MeasuredGroups = dict[tuple[str, str], dict[Mode, Measures]]


@dataclass(frozen=True, kw_only=True)
class Checking:
    """What is checked: captures of these models, under this order and these bounds."""

    order: AccuracyOrder
    folders: Sequence[Path]
    bounds: bytes
    models: Sequence[str]


def check(checking: Checking, folder: Path, inputs: InputFiles, *, report: Callable[[str, int, int], None]) -> str:
    """Compare and seal.

    Args:
        checking: what to check.
        folder: the folder to write, which must not exist or be empty.
        inputs: the files that went in, the corpus first and the bounds second.
        report: is told model and group, and how many of how many groups are measured.

    Returns: the digest of the seal.
    Raises: UsageError where something is missing; EvidenceError where bounds, captures or inputs contradict.
    """
    bounds = Bounds.parse(checking.bounds, name="--bounds")
    study = open_study(checking.folders, checking.order, models=checking.models, groups=GROUPS)
    _check_bounds(bounds, checking, study)
    found: MeasuredGroups = {}
    # The calibration rows first: where they do not give the bounds, nothing else is worth measuring.
    keys = sorted(study.pairs, key=lambda key: (key[1] != CALIBRATION, checking.models.index(key[0])))
    for number, key in enumerate(keys):
        report(" ".join(key), number, len(keys))
        found[key] = measure_pair(study.pairs[key])
        if key[1] == CALIBRATION:
            _check_calibration(bounds, key[0], study.pairs[key], found[key])
    return _write(checking, study, found, folder, inputs)


def _check_bounds(bounds: Bounds, checking: Checking, study: Study) -> None:
    """Check that the bounds are those of this study, and that each capture knew them where it had to."""
    order, named = checking.order, digest(checking.bounds)
    wanted = (order.plan.corpus, digest(order.plan.to_bytes()), order.registered, FACTOR)
    if (bounds.corpus, bounds.plan, bounds.registered, bounds.factor) != wanted:
        raise EvidenceError("the bounds are of another corpus, plan, registration or factor")
    for model in checking.models:
        if model not in bounds.models:
            raise UsageError(f"the bounds have none for {model}", hint="determinism accuracy calibrate")
        one = bounds.models[model]
        if one.bounds != one.maxima.times(FACTOR):
            raise EvidenceError(f"the bounds of {model} are not {FACTOR} times their maxima")
        if one.bounds.total_variation >= 1:
            raise EvidenceError(f"the bound of {model} on total variation is not under 1")
    for capture in study.captures:
        must = capture.head.side == "server" and capture.head.group != CALIBRATION
        if capture.head.bounds != (named if must else None):
            was = "before there were bounds" if capture.head.bounds is None else "under other bounds"
            raise EvidenceError(f"{capture.folder} was captured {was}")


def _check_calibration(bounds: Bounds, model: str, pair: Pair, measures: dict[Mode, Measures]) -> None:
    """Measure the calibration rows again rather than trust the file."""
    said, again = bounds.models[model], calibrated(pair, measures)
    if (said.server, said.reference) != (again.server, again.reference):
        raise EvidenceError(f"the bounds of {model} were set by other captures than {pair.server.folder} and its pair")
    if said.rows != again.rows or not said.maxima.is_near(again.maxima):
        raise EvidenceError(
            f"the bounds of {model} do not follow from the rows of {pair.server.folder}: {again.maxima}"
        )


def _write(checking: Checking, study: Study, found: MeasuredGroups, folder: Path, inputs: InputFiles) -> str:
    order, writer = checking.order, RunWriter(folder)
    try:
        manifest = Manifest(
            format=FORMAT,
            kind="accuracy",
            plan=digest(order.plan.to_bytes()),
            registered=order.registered,
            registration=order.registration,
            program=program(),
            dependencies=dependencies(),
            python=python(),
            machine=machine(),
            servers=[],
            prompts={},
        )
        writer.begin(manifest, plan=order.plan.to_bytes(), registration=order.files)
        writer.put_fact(order.corpus.to_bytes())
        writer.put_fact(checking.bounds)
        writer.append(inputs.begin())
        for pair in study.pairs.values():
            for capture in (pair.server, pair.reference):
                writer.append(Included(seal=capture.seal, capture=writer.put("captures", pack(capture.packed()))))
                for mode in MODES if capture.head.side == "server" else MODES[:1]:
                    for one in capture.members:
                        _link_rows(capture.folder, folder, capture.rows_fact(mode, one.id).file)
        for model, group in study.pairs:
            for mode in MODES:
                measures = found[model, group][mode]
                name = writer.put("metrics", measures.to_bytes())
                writer.append(Measured(model=model, group=group, mode=mode, metrics=name, rows=len(measures)))
        writer.append(inputs.end())
        writer.append(End(reason="finished"))
        return writer.seal()
    finally:
        writer.close()


def _link_rows(source: Path, target: Path, name: str) -> None:
    """Give a file of rows a second name in another folder, or bytes of its own on another file system.

    Args:
        source: the folder of the run that holds it.
        target: the folder of the run that takes it.
        name: its digest.

    Raises: UsageError where it cannot be stored.
    """
    place = Path("rows") / (name.removeprefix("sha256:") + STORES["rows"])
    if (target / place).exists():
        return
    try:
        os.link(source / place, target / place)
    except OSError:
        try:
            shutil.copyfile(source / place, target / place)
        except OSError as error:
            raise UsageError(f"{target / place}: cannot be stored: {error.strerror}") from error
