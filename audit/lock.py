"""A registration of any kind, fixed and looked at: plan.json from plan.toml, predictions read as their kind asks.

In goes a folder, out comes plan.json in it, or what git and its files say. predictions.json names the kind; one that
names none is an audit's. A registration that is committed is never written to.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from audit.accuracy.plan import AccuracyPlan
from audit.accuracy.predictions import load_predictions as load_accuracy_predictions
from audit.errors import UsageError
from audit.identity.order import load_identity_predictions
from audit.identity.plan import IdentityPlan
from audit.plan import Plan
from audit.prereg.predictions import load_predictions
from audit.prereg.registration import RegisteredFiles, check_resolved, committed, registered_files

__all__ = ["load_any", "write_resolved"]


class _AnyPlan(Protocol):
    def to_bytes(self) -> bytes: ...


class _AnyPrediction(Protocol):
    @property
    def id(self) -> str: ...


class _Kind(NamedTuple):
    """How the files of one kind of study are read."""

    plan: Callable[[Path], _AnyPlan]
    predictions: Callable[[bytes], Sequence[_AnyPrediction]]


_KINDS: Mapping[str, _Kind] = {
    "audit": _Kind(Plan.load, lambda data: load_predictions(data).predictions),
    "identity": _Kind(IdentityPlan.load, load_identity_predictions),
    "accuracy": _Kind(AccuracyPlan.load, load_accuracy_predictions),
}


def _kind_of(folder: Path) -> _Kind:
    """Return how a study is read; what cannot be read is for its reader to say.

    Raises: UsageError for a kind that there is not.
    """
    try:
        predictions = json.loads((folder / "predictions.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        predictions = None
    kind = predictions.get("kind", "audit") if isinstance(predictions, dict) else "audit"
    if kind not in _KINDS:
        hint = f"there are {', '.join(_KINDS)}"
        raise UsageError(f"{folder}/predictions.json is of kind {kind!r}, which cannot be registered", hint=hint)
    return _KINDS[kind]


def load_any(folder: Path) -> tuple[RegisteredFiles, list[str]]:
    """Read a registration, and return its files with the ids of its predictions.

    Raises: UsageError where a file is missing; PlanError where one is not valid, or plan.json is not plan.toml's.
    """
    found, kind = registered_files(folder), _kind_of(folder)
    check_resolved(folder, found, kind.plan(folder / "plan.toml").to_bytes())
    return found, [prediction.id for prediction in kind.predictions(found.files["predictions.json"])]


def write_resolved(folder: Path) -> None:
    """Write plan.json from plan.toml.

    Raises: UsageError where the registration is committed already and this would change it, or cannot be written;
        PlanError.
    """
    data = _kind_of(folder).plan(folder / "plan.toml").to_bytes()
    path = folder / "plan.json"
    if path.is_file() and path.read_bytes() == data:
        return
    if committed(folder):
        raise UsageError(f"{folder} is committed, and plan.json would change", hint="a new study gets a new folder")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
