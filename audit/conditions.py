"""The ordered catalogue of conditions and controls: for each family, how its trials are formed.

In goes one entry of a plan with a prompt and an index, out come blocks of units of trials, exactly as the table in
docs/reference/record.md says. Adding a condition is one small function here and one proof in proofs.py. Nothing here
knows a server, a seed or a token.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import intern
from typing import Any, NamedTuple

from msgspec.structs import replace

from audit.trial import Block, Entry, Place, Trial, Unit

__all__ = ["CATALOGUE", "FAMILIES", "Family", "Request", "catalogue_position"]

NEIGHBOUR_STEPS_EXTRA = 16  # a neighbour asks for more steps than the member, so that it does not end before it


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a family's function is asked for: one prompt at one index of one entry."""

    entry: Entry
    family: str
    prompt: str
    index: int
    steps: Callable[[str], int] = field(repr=False)

    @property
    def block(self) -> str:
        """The id of the block of a family without levels."""
        return f"{self.family}/{self.prompt}/{self.index}"

    @property
    def baseline(self) -> str:
        """The greedy baseline of the prompt: one string, since nearly every trial names it."""
        return intern(f"baseline/greedy/{self.prompt}")

    @property
    def baseline_seeded(self) -> str:
        """The sampled baseline of the prompt."""
        return f"baseline/seeded/{self.prompt}"


def _trial(request: Request, name: str, **changes: object) -> Trial:
    """Form the baseline request again under `name`; `changes` are what the condition does to it."""
    values: dict[str, object] = {
        "trial": name,
        "condition": request.family,
        "prompt": request.prompt,
        "steps": request.steps(request.prompt),
        "reference": request.baseline,
        **changes,
    }
    if values.get("role") == "support":
        values["reference"] = None
    values.setdefault("seed_group", values["reference"] or name)
    return Trial(**values)  # type: ignore[arg-type]


def _solo(request: Request, place: Place = "middle", *, restart: bool = False, **changes: object) -> Block:
    """Form a block of one solo trial that carries the block's name."""
    unit = Unit(unit=request.block, trials=(_trial(request, request.block, **changes),), restart=restart)
    return Block(block=request.block, units=(unit,), index=request.index, place=place)


def _sampled(request: Request) -> dict[str, Any]:
    return {"sampling": "sampled", "reference": request.baseline_seeded}


def _first_request(request: Request) -> Iterator[Block]:
    first = request.index == 0 and request.prompt == request.entry.prompts[0]
    yield _solo(request, "first", restart=not first)


def _repeat_greedy(request: Request) -> Iterator[Block]:
    yield _solo(request, "repeat")


def _repeat_seeded(request: Request) -> Iterator[Block]:
    yield _solo(request, "repeat", **_sampled(request))


def _other_slot(request: Request) -> Iterator[Block]:
    for slot in range(1, request.entry.levels[0]):
        name = f"{request.family}/{request.prompt}/{slot}/{request.index}"
        trial = _trial(request, name, slot=slot)
        yield Block(block=name, units=(Unit(unit=name, trials=(trial,)),), index=request.index)


def _concurrent(request: Request, **changes: object) -> Iterator[Block]:
    for level in request.entry.levels:
        condition = f"{request.family}_c{level}"
        block = f"{condition}/{request.prompt}/{request.index}"
        first = Unit(
            unit=f"{block}/w0",
            trials=tuple(
                _trial(request, f"{block}/w0/{m}", condition=condition, slot=m, **changes) for m in range(level)
            ),
            wave=True,
        )
        units = [first]
        if request.index < request.entry.again:
            again = tuple(
                replace(trial, trial=f"{block}/w1/{m}", condition="wave_repeat", reference=trial.trial)
                for m, trial in enumerate(first.trials)
            )
            units.append(Unit(unit=f"{block}/w1", trials=again, wave=True))
        yield Block(block=block, units=tuple(units), index=request.index)


def _concurrent_seeded(request: Request) -> Iterator[Block]:
    yield from _concurrent(request, **_sampled(request))


def _oversubscribed(request: Request) -> Iterator[Block]:
    for level in request.entry.levels:
        condition = f"{request.family}_c{level}"
        block = f"{condition}/{request.prompt}/{request.index}"
        trials = tuple(_trial(request, f"{block}/w0/{m}", condition=condition, slot=-1) for m in range(level))
        yield Block(block=block, units=(Unit(unit=f"{block}/w0", trials=trials, wave=True),), index=request.index)


def _cross_batch(request: Request) -> Iterator[Block]:
    unit = f"{request.block}/w0"
    member = _trial(request, f"{unit}/0")
    steps = member.steps + NEIGHBOUR_STEPS_EXTRA
    others = [name for name in request.entry.neighbours if name != request.prompt]
    neighbours = tuple(
        _trial(request, f"{unit}/{m}", prompt=name, slot=m, role="support", steps=steps)
        for m, name in enumerate(others, start=1)
    )
    staggered = request.family == "cross_batch_staggered"
    wave = Unit(unit=unit, trials=(member, *neighbours), wave=True, staggered=staggered)
    yield Block(block=request.block, units=(wave,), index=request.index)


def _solo_units(trials: list[Trial]) -> tuple[Unit, ...]:
    return tuple(Unit(unit=trial.trial, trials=(trial,)) for trial in trials)


def _around_own_baseline(request: Request, before: list[Trial]) -> Block:
    """Form a cache block: what is measured, then its own baseline and that one's repeat, cache off."""
    own = f"{request.block}/baseline"
    baseline = _trial(request, own, condition="baseline", role="baseline", reference=None)
    repeat = _trial(request, f"{request.block}/repeat", condition="repeat_greedy", reference=own)
    return Block(block=request.block, units=_solo_units([*before, baseline, repeat]), index=request.index)


def _opener(request: Request) -> Trial:
    return _trial(request, f"{request.block}/opener", prompt=request.entry.opener, role="support", steps=1)


def _cache(request: Request) -> Iterator[Block]:
    own = f"{request.block}/baseline"
    measured = [
        _trial(request, f"{request.block}/{name}", condition=f"cache_{name}", cache=True, reference=own)
        for name in ("cold", "warm1", "warm2")
    ]
    yield _around_own_baseline(request, [_opener(request), *measured])


def _cache_prefix(request: Request) -> Iterator[Block]:
    block = request.block
    primer = _trial(request, f"{block}/primer", role="support", steps=1, cache=True, half_prompt=True)
    prefix = _trial(request, f"{block}/prefix", cache=True, reference=f"{block}/baseline")
    yield _around_own_baseline(request, [_opener(request), primer, prefix])


def _idle_neighbour(request: Request) -> Iterator[Block]:
    other = next(name for name in request.entry.neighbours if name != request.prompt)
    neighbour = _trial(
        request,
        f"{request.block}/neighbour",
        prompt=other,
        role="support",
        slot=1,
        cache=True,
        steps=request.steps(other),
    )
    member = _trial(request, f"{request.block}/member")
    yield Block(block=request.block, units=_solo_units([neighbour, member]), index=request.index)


def _prefill_vs_decode(request: Request) -> Iterator[Block]:
    forced = _trial(request, f"{request.block}/forced", form="forced")
    prefixes = _trial(request, f"{request.block}/prefixes", form="prefixes")
    yield Block(block=request.block, units=_solo_units([forced, prefixes]), index=request.index)


def _stream_vs_whole(request: Request) -> Iterator[Block]:
    yield _solo(request, streamed=True)


def _without_logprobs(request: Request) -> Iterator[Block]:
    yield _solo(request, n_probs="none")


def _restart(request: Request) -> Iterator[Block]:
    yield _solo(request, "last", restart=True)


def _control_prompt(request: Request) -> Iterator[Block]:
    prompts = request.entry.prompts
    other = prompts[(prompts.index(request.prompt) + 1) % len(prompts)]
    yield _solo(request, prompt=other)


def _control_seed(request: Request) -> Iterator[Block]:
    yield _solo(request, **_sampled(request), seed_group=request.block)


def _control_temperature(request: Request) -> Iterator[Block]:
    yield _solo(request, sampling="control", reference=request.baseline_seeded)


class Family(NamedTuple):
    """One family of the catalogue.

    `conditions` are the cells that it makes, in order, `{level}` standing for each level; `needs` the fields of an
    entry that it cannot do without; `own_block` says that its prompts may hold `{block}`, since they are used in
    one block only.
    """

    form: Callable[[Request], Iterator[Block]]
    conditions: tuple[str, ...]
    needs: tuple[str, ...] = ()
    own_block: bool = False


FAMILIES: dict[str, Family] = {
    "repeat_greedy": Family(_repeat_greedy, ("repeat_greedy",)),
    "repeat_seeded": Family(_repeat_seeded, ("repeat_seeded",)),
    "first_request": Family(_first_request, ("first_request",)),
    "other_slot": Family(_other_slot, ("other_slot",), ("levels",)),
    "concurrent_greedy": Family(_concurrent, ("concurrent_greedy_c{level}",), ("levels",)),
    "concurrent_seeded": Family(_concurrent_seeded, ("concurrent_seeded_c{level}",), ("levels",)),
    "oversubscribed": Family(_oversubscribed, ("oversubscribed_c{level}",), ("levels",)),
    "cross_batch_together": Family(_cross_batch, ("cross_batch_together",), ("neighbours",)),
    "cross_batch_staggered": Family(_cross_batch, ("cross_batch_staggered",), ("neighbours",)),
    "cache": Family(_cache, ("cache_cold", "cache_warm1", "cache_warm2"), ("opener",), own_block=True),
    "cache_prefix": Family(_cache_prefix, ("cache_prefix",), ("opener",), own_block=True),
    "idle_neighbour": Family(_idle_neighbour, ("idle_neighbour",), ("neighbours",)),
    "prefill_vs_decode": Family(_prefill_vs_decode, ("prefill_vs_decode",)),
    "stream_vs_whole": Family(_stream_vs_whole, ("stream_vs_whole",)),
    "without_logprobs": Family(_without_logprobs, ("without_logprobs",)),
    "restart": Family(_restart, ("restart",)),
    "control_prompt": Family(_control_prompt, ("control_prompt",)),
    "control_seed": Family(_control_seed, ("control_seed",)),
    "control_temperature": Family(_control_temperature, ("control_temperature",)),
}
_WAVE_FAMILIES = ("concurrent_greedy", "concurrent_seeded", "oversubscribed")

# The order in which cells are listed; wave_repeat, which no entry asks for by name, follows the waves it repeats.
CATALOGUE: tuple[str, ...] = (
    "repeat_greedy",
    "repeat_seeded",
    "first_request",
    "other_slot",
    "concurrent_greedy",
    "concurrent_seeded",
    "oversubscribed",
    "wave_repeat",
    "cross_batch_together",
    "cross_batch_staggered",
    "cache_cold",
    "cache_warm1",
    "cache_warm2",
    "cache_prefix",
    "idle_neighbour",
    "prefill_vs_decode",
    "stream_vs_whole",
    "without_logprobs",
    "restart",
    "control_prompt",
    "control_seed",
    "control_temperature",
)


def catalogue_position(condition: str) -> tuple[int, int]:
    """Return where a condition stands in the catalogue: its family's position, then its level (0 without one)."""
    family, separator, level = condition.rpartition("_c")
    if separator and family in _WAVE_FAMILIES and level.isdigit():
        return CATALOGUE.index(family), int(level)
    return CATALOGUE.index(condition), 0
