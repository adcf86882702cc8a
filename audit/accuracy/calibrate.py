"""Bounds from the calibration members, and nothing else.

In go the captures of the original group of each model, out comes the bounds file. `calibrated` is what check uses to
measure the same rows again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from audit.accuracy.bounds import FACTOR, Bounds, ModelBounds, Triple
from audit.accuracy.corpus import CALIBRATION
from audit.accuracy.metrics import Measures
from audit.accuracy.order import AccuracyOrder
from audit.accuracy.plan import Mode
from audit.accuracy.study import Pair, measure_pair, open_study
from audit.errors import UsageError
from audit.stream import FORMAT, digest

__all__ = ["calibrate", "calibrated"]


def calibrated(pair: Pair, measures: Mapping[Mode, Measures]) -> ModelBounds:
    """Return the bounds that the rows of a model's original group set, over both modes."""
    values = list(measures.values())
    maxima = Triple(
        max_abs=max(float(one.max_abs.max()) for one in values),
        relative_l2=max(float(one.relative_l2.max()) for one in values),
        total_variation=max(float(one.total_variation.max()) for one in values),
    )
    return ModelBounds(
        bounds=maxima.times(FACTOR),
        maxima=maxima,
        rows=sum(map(len, values)),
        server=pair.server.seal,
        reference=pair.reference.seal,
    )


def calibrate(folders: Sequence[Path], order: AccuracyOrder, *, models: Sequence[str]) -> Bounds:
    """Return the bounds of some models.

    Args:
        folders: captures of their original groups, the server's and the reference's.
        order: plan and corpus.
        models: which models.

    Raises: UsageError where a capture is missing or of another group, or a probability bound is not under 1;
        EvidenceError where captures contradict each other.
    """
    study = open_study(folders, order, models=models, groups=[CALIBRATION])
    found = {model: calibrated(pair, measure_pair(pair)) for (model, _), pair in study.pairs.items()}
    for model, one in found.items():
        if one.bounds.total_variation >= 1:
            raise UsageError(
                f"{model}: the bound on total variation would be {one.bounds.total_variation!r}, which bounds nothing",
                hint="it must be under 1: server and reference are too far apart to be compared",
            )
    return Bounds(
        format=FORMAT,
        kind="bounds",
        corpus=order.plan.corpus,
        factor=FACTOR,
        models=found,
        plan=digest(order.plan.to_bytes()),
        registered=order.registered,
    )
