"""What a plan unfolds into: entries, trials, units and blocks, shapes without behaviour.

conditions.py forms them and plan.py orders them; docs/reference/record.md says what each is. No request is formed here.
"""

from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Block", "Entry", "Place", "Trial", "Unit"]

Place = Literal["first", "middle", "repeat", "last"]


class Entry(BaseModel):
    """One entry of a plan's list of conditions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    prompts: list[str] = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=100_000)
    levels: list[int] = []
    again: int = Field(default=0, ge=0)
    neighbours: list[str] = []
    opener: str | None = None
    minimum: int | None = Field(default=None, ge=1)


class Trial(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One measured, supporting or fixed request.

    `reference` is the trial that it is compared with; `seed_group` names what its sampling seed is derived from.
    `slot` is -1 where the request is not pinned. `n_probs` is the plan's, none, or the whole vocabulary.
    """

    trial: str
    condition: str
    prompt: str
    steps: int
    role: Literal["measured", "support", "baseline", "canary"] = "measured"
    reference: str | None = None
    seed_group: str = ""
    slot: int = 0
    sampling: Literal["greedy", "sampled", "control"] = "greedy"
    cache: bool = False
    streamed: bool = False
    n_probs: Literal["plan", "none", "vocabulary"] = "plan"
    form: Literal["plain", "forced", "prefixes"] = "plain"
    half_prompt: bool = False


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What runs between two snapshots: one solo trial, or one wave."""

    unit: str
    trials: tuple[Trial, ...]
    wave: bool = False
    staggered: bool = False
    restart: bool = False

    @property
    def slots_needed(self) -> int:
        """How many slots the server must have for its pinned trials."""
        return max(trial.slot for trial in self.trials) + 1


class Block(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Units that are never separated; `place` says where the order may put them."""

    block: str
    units: tuple[Unit, ...]
    index: int = 0
    place: Place = "middle"
