"""What is to be captured: a plan of kind accuracy, its registration if it has one, and its corpus.

In goes the path of a registration's folder, of a plan, or nothing, out comes an `AccuracyOrder`. A plan that is no
registration's runs under its own digest and is exploratory.
"""

from dataclasses import dataclass, field
from pathlib import Path

from audit.accuracy.corpus import Corpus
from audit.accuracy.plan import AccuracyPlan
from audit.accuracy.predictions import AccuracyPrediction, load_predictions
from audit.errors import UsageError
from audit.prereg.registration import RegisteredFiles, check_resolved, registered_files
from audit.record import Registration
from audit.stream import digest

__all__ = [
    "AccuracyOrder",
    "AccuracyRegistered",
    "chosen_accuracy_order",
    "load_accuracy_registration",
]


@dataclass(frozen=True, kw_only=True)
class AccuracyOrder:
    """A plan with its registration; without one the digest of the resolved plan is the registered digest."""

    plan: AccuracyPlan
    corpus: Corpus
    registered: str
    registration: Registration | None = None
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AccuracyRegistered(RegisteredFiles):
    """One registered accuracy study: its files with its plan and predictions, read."""

    plan: AccuracyPlan
    predictions: list[AccuracyPrediction]


def load_accuracy_registration(folder: Path) -> AccuracyRegistered:
    """Read a registration of kind accuracy.

    Raises: UsageError where a file is missing; PlanError where one is not valid, or plan.json is not plan.toml's.
    """
    found = registered_files(folder)
    plan = AccuracyPlan.load(folder / "plan.toml")
    check_resolved(folder, found, plan.to_bytes())
    return AccuracyRegistered(
        name=found.name,
        files=found.files,
        commit=found.commit,
        status=found.status,
        plan=plan,
        predictions=load_predictions(found.files["predictions.json"]),
    )


def chosen_accuracy_order(path: Path | None, *, corpus: bytes, name: str) -> AccuracyOrder:
    """Return what a path orders; None is a plan of defaults for this corpus.

    Args:
        path: a registration's folder, a plan, or None.
        corpus: the bytes of the corpus.
        name: what an error calls the corpus.

    Raises: PlanError, UsageError, also where the plan is for another corpus.
    """
    index, found = Corpus.parse(corpus, name=name), digest(corpus)
    if path is None:
        plan = AccuracyPlan(name="exploratory", corpus=found)
        return AccuracyOrder(plan=plan, corpus=index, registered=digest(plan.to_bytes()))
    if not path.is_dir():
        plan = AccuracyPlan.load(path)
        order = AccuracyOrder(plan=plan, corpus=index, registered=digest(plan.to_bytes()))
    else:
        registered = load_accuracy_registration(path)
        plan = registered.plan
        order = AccuracyOrder(
            plan=plan,
            corpus=index,
            registered=registered.digest,
            registration=registered.entry(),
            files=registered.files,
        )
    if plan.corpus != found:
        raise UsageError(f"{path} is for the corpus {plan.corpus}, but {name} is {found}")
    return order
