"""Predictions: statements with rules that were fixed before the run, and their evaluation on its cells.

In go the bytes of predictions.json, the counts of every cell and the instrument checks that held; out comes one entry a
prediction, as docs/reference/verdicts.md describes it. A prediction that neither holds nor is refuted by its own rules
is inconclusive.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from audit.conditions import catalogue_position
from audit.errors import PlanError

__all__ = ["CHECKS", "Check", "Counts", "Prediction", "Predictions", "Rule", "evaluate", "load_predictions"]

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
Check = Literal[
    "control_prompt",
    "control_seed",
    "control_temperature",
    "canary",
    "float32",
    "top_k",
    "greedy",
    "settings",
    "counts",
    "one_ulp",
    "parse_twice",
]
CHECKS: tuple[Check, ...] = get_args(Check)
Measure = Literal["logprob_identical", "token_identical", "waves_identical"]
_JUDGED = ("divergent", "token-identical", "identical")
_OPERATORS: Mapping[str, Callable[[Fraction, Fraction], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


class Counts(NamedTuple):
    """What a cell counted; `waves_identical` of `waves` are units without a usable trial that diverged."""

    server: str
    condition: str
    verdict: str
    usable: int
    logprob_identical: int
    token_identical: int
    waves: int
    waves_identical: int

    @property
    def judged(self) -> bool:
        """Whether a prediction may lean on the cell."""
        unstable_allowed = self.verdict == "unstable" and self.condition.startswith("repeat_")
        return self.verdict in _JUDGED or unstable_allowed

    def share(self, measure: Measure) -> tuple[int, int]:
        """Return k and n of a measure."""
        if measure == "waves_identical":
            return self.waves_identical, self.waves
        return (self.logprob_identical if measure == "logprob_identical" else self.token_identical), self.usable


class Rule(BaseModel):
    """A comparison of k/n with a decimal fraction, made exactly."""

    model_config = _STRICT
    op: Literal["<", "<=", "==", ">=", ">"]
    value: float | int = Field(ge=0, le=1)

    def met(self, k: int, n: int) -> bool:
        """Tell whether k of n, n > 0, meet the rule."""
        return _OPERATORS[self.op](Fraction(k, n), Fraction(str(self.value)))


class Prediction(BaseModel):
    """One statement, the cells it speaks of, and when it holds and when it is refuted."""

    model_config = _STRICT
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    statement: str = Field(min_length=1)
    conditions: list[str] = Field(min_length=1)
    servers: Literal["*"] | list[str]
    unit: Literal["cell", "pooled"]
    measure: Measure
    holds: Rule
    refuted: Rule
    minimum: int = Field(ge=1)
    requires: list[Check]

    @field_validator("conditions")
    @classmethod
    def _known(cls, conditions: list[str]) -> list[str]:
        for condition in conditions:
            try:
                catalogue_position(condition)
            except ValueError:
                raise ValueError(f"there is no condition {condition!r}") from None
        return conditions

    def speaks_of(self, cell: Counts) -> bool:
        """Tell whether a cell is one of those that the prediction names."""
        return cell.condition in self.conditions and (self.servers == "*" or cell.server in self.servers)


class Predictions(BaseModel):
    """The file predictions.json."""

    model_config = _STRICT
    format: Literal[1]
    predictions: list[Prediction]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [prediction.id for prediction in self.predictions]
        if len(set(ids)) < len(ids):
            raise ValueError(f"predictions: an id occurs twice among {', '.join(ids)}")
        return self


def load_predictions(data: bytes, *, name: str = "predictions.json") -> Predictions:
    """Read predictions.json.

    Raises: PlanError that names the field and the value.
    """
    try:
        return Predictions.model_validate(json.loads(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        shown = "" if isinstance(first.get("input"), dict | list) else f", got {first.get('input')!r}"
        message = first["msg"].removeprefix("Value error, ")
        raise PlanError(f"{name}: {place + ': ' if place else ''}{message}{shown}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{name}: {error}") from error


def evaluate(
    predictions: Sequence[Prediction], *, cells: Sequence[Counts], held: Mapping[str, set[str]]
) -> list[dict[str, Any]]:
    """Evaluate predictions.

    Args:
        predictions: the predictions.
        cells: the counts of every cell of the run.
        held: for each server label the instrument checks that held.

    Returns: one entry a prediction, in their order.
    """
    return [_entry(prediction, [c for c in cells if prediction.speaks_of(c)], held) for prediction in predictions]


def _entry(prediction: Prediction, cells: Sequence[Counts], held: Mapping[str, set[str]]) -> dict[str, Any]:
    shares = [cell.share(prediction.measure) for cell in cells]
    judged = [share for cell, share in zip(cells, shares, strict=True) if cell.judged]
    return {
        "id": prediction.id,
        "statement": prediction.statement,
        "status": _status(prediction, cells, judged, held),
        "k": sum(k for k, _ in judged),
        "n": sum(n for _, n in judged),
        "cells": [
            {"server": cell.server, "condition": cell.condition, "k": k, "n": n, "verdict": cell.verdict}
            for cell, (k, n) in zip(cells, shares, strict=True)
        ],
    }


def _status(
    prediction: Prediction, cells: Sequence[Counts], judged: Sequence[tuple[int, int]], held: Mapping[str, set[str]]
) -> str:
    if not cells:
        return "not applicable"
    servers = {cell.server for cell in cells}
    if any(not set(prediction.requires) <= held.get(server, set()) for server in servers):
        return "inconclusive"
    pooled = prediction.unit == "pooled"
    units = [(sum(k for k, _ in judged), sum(n for _, n in judged))] if pooled else list(judged)
    enough = [(k, n) for k, n in units if n >= prediction.minimum]
    if not enough:
        return "inconclusive"
    rules = [(prediction.holds.met(k, n), prediction.refuted.met(k, n)) for k, n in enough]
    if any(refuted and not holds for holds, refuted in rules):
        return "refuted"
    complete = len(enough) == len(units) and (pooled or len(judged) == len(cells))
    return "holds" if complete and all(holds and not refuted for holds, refuted in rules) else "inconclusive"
