"""What every build is asked: prompts, number of steps, sizes, device. Builds and models are named on the command line.

In goes a TOML file, out comes the resolved plan, whose canonical bytes are `plan.json`. The prompts' texts become token
ids in `audit.identity.assets`, once, for all builds.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.errors import PlanError, UsageError
from audit.stream import canonical

__all__ = ["PLACEHOLDER", "Device", "IdentityPlan", "PromptText"]

Device = Literal["cpu", "vulkan", "cuda", "metal"]
PLACEHOLDER = "{registered}"
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)


class PromptText(BaseModel):
    """A prompt: its text, repeated until it has the number of tokens that is asked for."""

    model_config = _STRICT
    text: str = Field(min_length=1)
    tokens: int = Field(ge=1, le=4096)

    def filled(self, registered: str) -> str:
        """Return the text with the first 16 hex digits of the registered digest in the placeholder's place."""
        return self.text.replace(PLACEHOLDER, registered.removeprefix("sha256:")[:16])


class IdentityPlan(BaseModel):
    """The resolved plan of an identity run.

    `steps` counts the decoded steps: each prompt has one row more, that of its prefill. Sizes are in tokens.
    """

    model_config = _STRICT
    format: Literal[1] = 1
    kind: Literal["identity"] = "identity"
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    device: Device = "cpu"
    steps: int = Field(ge=0, le=1024)
    threads: int = Field(ge=1, le=1024)
    ctx: int = Field(ge=64)
    batch: int = Field(ge=1)
    ubatch: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    prompts: dict[str, PromptText] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, prompt in self.prompts.items():
            if not name.isascii() or not name.isidentifier():
                raise ValueError(f"prompts: the name {name!r} may hold letters, digits and underscore only")
            if prompt.tokens + self.steps + 1 >= self.ctx:
                raise ValueError(f"prompts.{name} has {prompt.tokens} tokens and {self.steps} steps; ctx is {self.ctx}")
        if self.ubatch > self.batch:
            raise ValueError(f"ubatch is {self.ubatch}, more than batch, which is {self.batch}")
        return self

    @property
    def rows(self) -> int:
        """Number of rows of each prompt: one of the prefill, one a step."""
        return self.steps + 1

    @classmethod
    def parse(cls, values: Any, *, name: str) -> Self:  # noqa: ANN401 - any JSON value
        """Validate plain values.

        Raises: PlanError that names the field and the value.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"].removeprefix("Value error, ")
            shown = "" if isinstance(first.get("input"), dict | list) else f", got {first.get('input')!r}"
            raise PlanError(f"{name}: {place + ': ' if place else ''}{message}{shown}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a plan from TOML.

        Raises: UsageError where it cannot be read; PlanError where it is no plan.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PlanError(f"{path.name}: {error}") from error
        return cls.parse(values, name=path.name)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read plan.json.

        Raises: PlanError where it is no plan.
        """
        try:
            return cls.parse(json.loads(data), name="plan.json")
        except (ValueError, RecursionError) as error:
            raise PlanError(f"plan.json: {error}") from error

    def to_bytes(self) -> bytes:
        """Return plan.json."""
        return canonical(self.model_dump(mode="json"))
