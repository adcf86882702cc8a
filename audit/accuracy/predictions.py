"""Predictions of an accuracy study: statements with rules fixed before the run, evaluated on its cells.

In go the bytes of predictions.json and the cells of the findings, out comes one entry a prediction. A count is summed
over the cells that a prediction speaks of, a metric is their largest. One that neither holds nor is refuted by its own
rules is inconclusive.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.accuracy.corpus import Group
from audit.accuracy.plan import Mode
from audit.errors import PlanError

__all__ = ["AccuracyPrediction", "evaluate", "load_predictions"]

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
_COUNTS = ("failed", "clear", "winners_lost", "bests_differ")
_OPERATORS: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


class Limit(BaseModel):
    """A comparison of a count or a metric with a decimal number, made exactly."""

    model_config = _STRICT
    op: Literal["<", "<=", "==", ">=", ">"]
    value: float | int = Field(ge=0)

    def met(self, found: float) -> bool:
        """Tell whether a number meets the rule."""
        return _OPERATORS[self.op](Fraction(found), Fraction(str(self.value)))


class AccuracyPrediction(BaseModel):
    """One statement, the cells it speaks of, and when it holds and when it is refuted."""

    model_config = _STRICT
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    statement: str = Field(min_length=1)
    models: Literal["*"] | list[str]
    groups: list[Group] = Field(min_length=1)
    modes: list[Mode] = Field(min_length=1)
    measure: Literal["failed", "clear", "winners_lost", "bests_differ", "max_abs", "relative_l2", "total_variation"]
    holds: Limit
    refuted: Limit
    minimum: int = Field(ge=1)

    def speaks_of(self, cell: Mapping[str, Any]) -> bool:
        """Tell whether a cell is one of those that the prediction names."""
        model = self.models == "*" or cell["model"] in self.models
        return model and cell["group"] in self.groups and cell["mode"] in self.modes


class _File(BaseModel):
    """The file predictions.json."""

    model_config = _STRICT
    format: Literal[1]
    kind: Literal["accuracy"]
    predictions: list[AccuracyPrediction]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [prediction.id for prediction in self.predictions]
        if len(set(ids)) < len(ids):
            raise ValueError(f"predictions: an id occurs twice among {', '.join(ids)}")
        return self


def load_predictions(data: bytes, *, name: str = "predictions.json") -> list[AccuracyPrediction]:
    """Read predictions.json.

    Raises: PlanError that names the field and the value.
    """
    try:
        return _File.model_validate(json.loads(data)).predictions
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise PlanError(f"{name}: {place + ': ' if place else ''}{message}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{name}: {error}") from error


def evaluate(predictions: Sequence[AccuracyPrediction], cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a prediction, in their order."""
    return [_entry(one, [cell for cell in cells if one.speaks_of(cell)]) for one in predictions]


def _entry(prediction: AccuracyPrediction, cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = [cell[prediction.measure] for cell in cells]
    found = sum(values) if prediction.measure in _COUNTS else max(values, default=0.0)
    rows = sum(cell["rows"] for cell in cells)
    return {
        "id": prediction.id,
        "statement": prediction.statement,
        "status": _status(prediction, found, rows, known=bool(cells)),
        "found": found,
        "rows": rows,
    }


def _status(prediction: AccuracyPrediction, found: float, rows: int, *, known: bool) -> str:
    if not known:
        return "not applicable"
    holds, refuted = prediction.holds.met(found), prediction.refuted.met(found)
    if rows < prediction.minimum or holds == refuted:
        return "inconclusive"
    return "holds" if holds else "refuted"
