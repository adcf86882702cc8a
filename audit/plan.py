"""The plan: load, validate, resolve, and unfold into blocks in their registered order.

In goes a TOML or JSON file, out come the canonical `plan.json` and, for a registered digest, the ordered blocks
with their seeds and request bodies, exactly as docs/reference/record.md says. Everything here is pure: no server is
asked, no clock is read, and nothing is random.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.conditions import FAMILIES, Request
from audit.errors import PlanError
from audit.stream import canonical, digest
from audit.trial import Block, Entry, Trial, Unit

__all__ = ["Canary", "Message", "Plan", "Prompt", "Sampling", "derived_hex", "registered_digest", "seed"]

_REGISTERED_NAMES = ("PREREG.md", "plan.json", "plan.toml", "predictions.json")
# TOML writes inf and nan, which no canonical JSON holds.
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
# A prompt's name is part of trial ids and of prompt keys, whose separators are / and @.
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_SHOWN_MAX = 80


class Message(BaseModel):
    """One message of a chat prompt."""

    model_config = _STRICT
    role: str
    content: str


class Prompt(BaseModel):
    """One prompt: text, chat messages or token ids; `tokens` keeps the first ids only, `steps` overrides the plan's."""

    model_config = _STRICT
    text: str | None = None
    chat: list[Message] | None = None
    ids: list[int] | None = None
    tokens: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.text, self.chat, self.ids)) != 1:
            raise ValueError("a prompt needs exactly one of text, chat and ids")
        return self

    def holds(self, placeholder: str) -> bool:
        """Tell whether the text or a message holds `placeholder`."""
        contents = [self.text or "", *(message.content for message in self.chat or [])]
        return any(placeholder in content for content in contents)

    def filled(self, registered: str, block: str) -> "Prompt":
        """Return the prompt with its placeholders replaced."""
        words = {
            "{registered}": registered.removeprefix("sha256:")[:16],
            "{block}": derived_hex(registered, "block", block)[:16],
        }

        def fill(content: str) -> str:
            for placeholder, value in words.items():
                content = content.replace(placeholder, value)
            return content

        chat = self.chat and [Message(role=message.role, content=fill(message.content)) for message in self.chat]
        return self.model_copy(update={"text": None if self.text is None else fill(self.text), "chat": chat})


class Sampling(BaseModel):
    """How sampled trials are drawn."""

    model_config = _STRICT
    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=40, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)


class Canary(BaseModel):
    """The full-vocabulary request that is sent first and last."""

    model_config = _STRICT
    prompt: str
    steps: int = Field(default=2, ge=1, le=64)


@dataclass(frozen=True)
class _Ranked:
    """A block with what its place in the middle depends on."""

    key: tuple[int, str]
    block: Block


class Plan(BaseModel):
    """The list of trials to be run, as one writes it down; every default is filled in."""

    model_config = _STRICT
    format: Literal[1] = 1
    kind: Literal["audit"] = "audit"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    steps: int = Field(default=32, ge=1, le=100_000)
    n_probs: int = Field(default=10, ge=1, le=1_000)
    pace_per_second: float = Field(default=50.0, gt=0)
    timeout_s: float = Field(default=120.0, gt=0)
    attempts: int = Field(default=1, ge=1, le=10)
    sampling: Sampling = Sampling()
    control_temperature: float = Field(default=1.5, gt=0)
    canary: Canary
    prompts: dict[Annotated[str, Field(pattern=_NAME)], Prompt] = Field(min_length=1)
    conditions: list[Entry] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        _check_prompt(self, "canary.prompt", self.canary.prompt, own_block=False)
        if sum(entry.name == "first_request" for entry in self.conditions) > 1:
            raise ValueError("conditions: only one entry can hold the first request")
        for number, entry in enumerate(self.conditions):
            _check_entry(self, f"conditions[{number}]", entry)
        trials = [trial.trial for block in self._blocks() for unit in block.units for trial in unit.trials]
        doubled = (
            next((trial for trial in trials if trials.count(trial) > 1), None)
            if len(set(trials)) < len(trials)
            else None
        )
        if doubled is not None:
            raise ValueError(f"conditions: two entries form the trial {doubled}")
        return self

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a plan from a TOML file, or from JSON where the name ends so.

        Raises: PlanError that names the file, the field and the value.
        """
        try:
            text = path.read_bytes()
            values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text.decode("utf-8"))
        except OSError as error:
            raise PlanError(f"{path}: {error.strerror}", hint="give the path of a plan.toml") from error
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{path}: {error}") from error
        return cls.parse(values, name=path.name)

    @classmethod
    def parse(cls, values: Any, *, name: str = "plan") -> Self:  # noqa: ANN401 - whatever a file held
        """Validate what a file held.

        Raises: PlanError that names the field path and the value.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])[1:]
            shown = "" if isinstance(first.get("input"), dict) else f", got {first.get('input')!r:.{_SHOWN_MAX}}"
            message = first["msg"].removeprefix("Value error, ")
            raise PlanError(f"{name}: {place + ': ' if place else ''}{message}{shown}") from error

    def to_bytes(self) -> bytes:
        """Return the resolved plan as canonical JSON, every default included."""
        return canonical(self.model_dump(mode="json"))

    def steps_of(self, prompt: str) -> int:
        """Return how many steps a prompt runs."""
        return self.prompts[prompt].steps or self.steps

    def prompt_key(self, trial: Trial, block: str) -> str:
        """Return the key of a trial's frozen prompt: its name, with the block where the text depends on it."""
        return f"{trial.prompt}@{block}" if self.prompts[trial.prompt].holds("{block}") else trial.prompt

    def _blocks(self) -> Iterator[Block]:
        """Yield the blocks of all entries, in plan order, without canaries and shared baselines."""
        for entry in self.conditions:
            for prompt in entry.prompts:
                for index in range(entry.count):
                    request = Request(entry=entry, family=entry.name, prompt=prompt, index=index, steps=self.steps_of)
                    yield from FAMILIES[entry.name].form(request)

    def _canary(self, name: str) -> Block:
        trial = Trial(
            trial=name,
            condition="canary",
            prompt=self.canary.prompt,
            steps=self.canary.steps,
            role="canary",
            seed_group=name,
            streamed=True,
            n_probs="vocabulary",
        )
        return Block(block=name, units=(Unit(unit=name, trials=(trial,)),))

    def _baseline(self, name: str) -> Block:
        _, kind, prompt = name.split("/", 2)
        trial = Trial(
            trial=name,
            condition="baseline",
            prompt=prompt,
            steps=self.steps_of(prompt),
            role="baseline",
            seed_group=name,
            sampling="sampled" if kind == "seeded" else "greedy",
        )
        return Block(block=name, units=(Unit(unit=name, trials=(trial,)),))

    def unfold(self, registered: str) -> tuple[Block, ...]:
        """Return all blocks in the order that the registered digest dictates."""
        blocks = list(self._blocks())
        references = [t.reference for b in blocks for u in b.units for t in u.trials if t.reference is not None]
        baselines = dict.fromkeys(name for name in references if name.startswith("baseline/"))

        def ranked(place: str) -> list[Block]:
            keyed = [
                _Ranked((b.index, derived_hex(registered, "order", b.block)), b) for b in blocks if b.place == place
            ]
            by_hash_alone = place == "middle"
            keyed.sort(key=lambda item: item.key[1:] if by_hash_alone else item.key)
            return [item.block for item in keyed]

        return (
            *(block for block in blocks if block.place == "first"),
            self._canary("canary/first"),
            *(self._baseline(name) for name in baselines),
            *_interleaved(ranked("middle"), ranked("repeat")),
            self._canary("canary/last"),
            *(block for block in blocks if block.place == "last"),
        )


def _check_prompt(plan: Plan, place: str, name: str, *, own_block: bool) -> None:
    if name not in plan.prompts:
        raise ValueError(f"{place}: there is no prompt {name!r}; prompts are {', '.join(sorted(plan.prompts))}")
    if not own_block and plan.prompts[name].holds("{block}"):
        raise ValueError(f"{place}: prompt {name!r} holds {{block}}, which only the cache families can fill")


def _check_entry(plan: Plan, place: str, entry: Entry) -> None:
    """Refuse an entry that cannot be formed; the error names the field."""
    if entry.name not in FAMILIES:
        raise ValueError(f"{place}.name: there is no condition {entry.name!r}; there are {', '.join(FAMILIES)}")
    family = FAMILIES[entry.name]
    for needed in family.needs:
        if not getattr(entry, needed):
            raise ValueError(f"{place}.{needed}: {entry.name} needs it")
    for name in entry.prompts:
        _check_prompt(plan, f"{place}.prompts", name, own_block=family.own_block)
        if "neighbours" in family.needs and set(entry.neighbours) <= {name}:
            raise ValueError(f"{place}.neighbours: {name!r} has no neighbour but itself")
    for name in entry.neighbours:
        _check_prompt(plan, f"{place}.neighbours", name, own_block=False)
    if entry.opener is not None:
        _check_prompt(plan, f"{place}.opener", entry.opener, own_block=False)
    if entry.name == "control_prompt" and len(set(entry.prompts)) < 2:  # noqa: PLR2004 - a prompt and another
        raise ValueError(f"{place}.prompts: control_prompt needs two prompts, got {entry.prompts}")
    if any(level < 2 for level in entry.levels):  # noqa: PLR2004 - one request is no wave
        raise ValueError(f"{place}.levels: a level is at least 2, got {entry.levels}")


def _interleaved(others: Sequence[Block], repeats: Sequence[Block]) -> Iterator[Block]:
    """Spread the repeats at equal distances among the other blocks."""
    places = [(2 * j + 1) * len(others) // (2 * len(repeats)) for j in range(len(repeats))]
    waiting = list(zip(places, repeats, strict=True))
    for index, other in enumerate(others):
        while waiting and waiting[0][0] <= index:
            yield waiting.pop(0)[1]
        yield other
    yield from (repeat for _, repeat in waiting)


def derived_hex(registered: str, purpose: str, name: str) -> str:
    """Return the hex digest of the registered digest, a purpose and a name: the source of every order and seed."""
    return hashlib.sha256(f"{registered}{purpose}{name}".encode()).hexdigest()


def registered_digest(files: dict[str, bytes]) -> str:
    """Return the registered digest of a registration's files.

    Raises: PlanError where one of the four files is missing.
    """
    missing = [name for name in _REGISTERED_NAMES if name not in files]
    if missing:
        raise PlanError(f"the registration lacks {', '.join(missing)}")
    lines = [f"{digest(files[name]).removeprefix('sha256:')}  {name}\n" for name in _REGISTERED_NAMES]
    return digest("".join(lines).encode())


def seed(registered: str, group: str) -> int:
    """Return the sampling seed of a group, in [0, 2^32 - 2]."""
    return int(derived_hex(registered, "seed", group)[:8], 16) % (2**32 - 1)
