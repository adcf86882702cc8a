"""What is to be run: an identity plan, the registration it belongs to, and its predictions.

In goes a folder of prereg/ or a plan.toml, out comes an order. A plan that a flag changed is overridden, and its run is
exploratory.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.errors import PlanError
from audit.identity.plan import IdentityPlan
from audit.prereg.predictions import Rule
from audit.prereg.registration import check_resolved, registered_files
from audit.record import Registration
from audit.stream import digest

__all__ = ["IdentityOrder", "IdentityPrediction", "IdentityPredictions", "load_identity_predictions", "order_of"]

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class IdentityPrediction(BaseModel):
    """A statement about a run, and when it holds and when it is refuted; k of n by its measure.

    `repeats` counts the (build, cell) pairs whose two runs are equal, `identical` the cells of consecutive builds that
    are judged and identical, `argmax` the compared rows of differing cells with the same most likely token. `models`
    are SHA-256 digests of the models that it speaks of, or `*`.
    """

    model_config = _STRICT
    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    statement: str = Field(min_length=1)
    measure: Literal["repeats", "identical", "argmax"]
    models: Literal["*"] | list[str]
    builds: Literal["*"] | list[str]
    holds: Rule
    refuted: Rule
    minimum: int = Field(ge=1)


class IdentityPredictions(BaseModel):
    """The file predictions.json of an identity registration."""

    model_config = _STRICT
    format: Literal[1]
    kind: Literal["identity"]
    predictions: list[IdentityPrediction]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [prediction.id for prediction in self.predictions]
        if len(set(ids)) < len(ids):
            raise ValueError(f"predictions: an id occurs twice among {', '.join(ids)}")
        return self


def load_identity_predictions(data: bytes) -> list[IdentityPrediction]:
    """Read predictions.json.

    Raises: PlanError that names the field.
    """
    try:
        return IdentityPredictions.model_validate(json.loads(data)).predictions
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PlanError(f"predictions.json: {place}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"predictions.json: {error}") from error


@dataclass(frozen=True, kw_only=True)
class IdentityOrder:
    """A plan with its registration; without one the digest of plan.json is the registered digest."""

    plan: IdentityPlan
    registered: str
    registration: Registration | None = None
    files: dict[str, bytes] = field(default_factory=dict)


def order_of(path: Path, *, changes: dict[str, object]) -> IdentityOrder:
    """Read a plan file or a registration's folder, and apply what flags change.

    Raises: UsageError, PlanError where there is none, or it is not valid.
    """
    if not path.is_dir():
        plan = _changed(IdentityPlan.load(path), changes)
        return IdentityOrder(plan=plan, registered=digest(plan.to_bytes()))
    found = registered_files(path)
    written = IdentityPlan.load(path / "plan.toml")
    check_resolved(path, found, written.to_bytes())
    load_identity_predictions(found.files["predictions.json"])
    plan = _changed(written, changes)
    overridden = plan != written
    registered = digest(plan.to_bytes()) if overridden else found.digest
    entry = found.entry(overridden=overridden)
    return IdentityOrder(plan=plan, registered=registered, registration=entry, files=found.files)


def _changed(plan: IdentityPlan, changes: dict[str, object]) -> IdentityPlan:
    asked = {name: value for name, value in changes.items() if value is not None}
    return IdentityPlan.parse({**plan.model_dump(mode="json"), **asked}, name="plan")
