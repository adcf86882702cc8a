"""The plan of an accuracy study, and how it unfolds into requests.

In goes a TOML or JSON file that names a corpus by digest, out come the resolved plan.json, the units of one capture in
their order, and the settings of the servers. Everything here is pure.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit.accuracy.corpus import Corpus, Sequence
from audit.analyse.evidence import Planned
from audit.errors import PlanError
from audit.local.launch import LaunchSettings
from audit.plan import Plan
from audit.stream import canonical
from audit.trial import Block, Trial, Unit

__all__ = ["MODES", "AccuracyPlan", "Mode", "Side", "planned", "sending_plan", "server_settings", "units"]

Mode = Literal["serial", "batch"]
Side = Literal["server", "reference"]
MODES: tuple[Mode, ...] = ("serial", "batch")
_UBATCH = 512
# Contexts are rounded up to this, as llama.cpp pads its cache.
_CTX_STEP = 256
_SHOWN_MAX = 80


class AccuracyPlan(BaseModel):
    """What a study asks for; every default is filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    format: Literal[1] = 1
    kind: Literal["accuracy"] = "accuracy"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    corpus: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    recorded: int = Field(default=8, ge=1, le=1024)
    attempts: int = Field(default=5, ge=1, le=100)
    timeout_s: float = Field(default=600.0, gt=0)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a plan from a TOML file, or from JSON where the name ends so.

        Raises: PlanError that names the file, the field and the value.
        """
        try:
            data = path.read_bytes()
            values = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode("utf-8"))
        except OSError as error:
            raise PlanError(f"{path}: {error.strerror}", hint="give the path of a plan.toml") from error
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{path}: {error}") from error
        return cls.parse(values, name=path.name)

    @classmethod
    def parse(cls, values: Any, *, name: str = "plan") -> Self:  # noqa: ANN401 - whatever a file held
        """Validate what a file held.

        Raises: PlanError that names the field and the value.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            shown = "" if isinstance(first.get("input"), dict) else f", got {first.get('input')!r:.{_SHOWN_MAX}}"
            raise PlanError(f"{name}: {place + ': ' if place else ''}{first['msg']}{shown}") from error

    def to_bytes(self) -> bytes:
        """Return the resolved plan as canonical JSON, every default included."""
        return canonical(self.model_dump(mode="json"))


def _trial(sequence: Sequence, mode: Mode, unit: str, *, slot: int, rows: bool) -> Trial:
    return Trial(
        trial=f"{unit}/{sequence.id}" if mode == "batch" else unit,
        condition=mode,
        prompt=sequence.id,
        steps=len(sequence.teacher),
        role="measured" if rows else "support",
        reference=sequence.id,
        seed_group=sequence.id,
        slot=slot,
        streamed=True,
        n_probs="vocabulary" if rows else "none",
        form="forced",
    )


def units(plan: AccuracyPlan, members: list[Sequence], side: Side) -> tuple[Unit, ...]:
    """Return what is sent for one group: each sequence alone, then on a server whole waves.

    Every wave holds all members, of which `recorded` ask for rows; the last one fewer where they do not divide.
    """
    serial = []
    for sequence in members:
        unit = f"serial/{sequence.id}"
        slot = sequence.slot if side == "server" else 0
        serial.append(Unit(unit=unit, trials=(_trial(sequence, "serial", unit, slot=slot, rows=True),)))
    if side == "reference":
        return tuple(serial)
    waves = []
    for number, first in enumerate(range(0, len(members), plan.recorded)):
        asking = range(first, first + plan.recorded)
        unit = f"batch/w{number}"
        trials = [_trial(one, "batch", unit, slot=one.slot, rows=one.slot in asking) for one in members]
        waves.append(Unit(unit=unit, trials=tuple(trials), wave=True))
    return (*serial, *waves)


def planned(plan: AccuracyPlan, members: list[Sequence], side: Side) -> dict[str, Planned]:
    """Return every trial of one capture by its name, in the order in which they run."""
    return {
        trial.trial: Planned(trial=trial, unit=unit, block=Block(block=unit.unit, units=(unit,)), prompt=trial.prompt)
        for unit in units(plan, members, side)
        for trial in unit.trials
    }


def sending_plan(plan: AccuracyPlan, members: list[Sequence]) -> Plan:
    """Return what a sitting needs of a plan: prompts, time limit and one attempt a unit; its conditions are not run."""
    first = members[0].id
    return Plan.parse({
        "name": plan.name,
        "timeout_s": plan.timeout_s,
        "canary": {"prompt": first},
        "prompts": {one.id: {"ids": one.prefill} for one in members},
        "conditions": [{"name": "prefill_vs_decode", "prompts": [first]}],
    })  # fmt: skip


def server_settings(corpus: Corpus, model: str, side: Side, threads: int) -> LaunchSettings:
    """Return what a server of ours is started with, the same for every group of a model.

    A whole wave fits into one batch, so that all members decode together; keys and values are float16.
    """
    longest, rows = corpus.longest(model), corpus.models[model].rows
    slots = corpus.members if side == "server" else 1
    batch = max(_UBATCH, slots * longest)
    return LaunchSettings(
        slots=slots,
        ctx_per_slot=-(-(longest + rows + 1) // _CTX_STEP) * _CTX_STEP,
        batch=batch,
        ubatch=_UBATCH,
        threads=threads,
        cache_type="f16",
    )
