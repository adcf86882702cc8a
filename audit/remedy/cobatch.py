"""A co-batch: one request whose numbers are watched, and the requests beside it; and every way to vary them.

In goes a divergent trial of a stored audit, out comes a `Cobatch`, and from that variations of one factor at a time and
smaller co-batches. Pure but for reading the run; nothing is sent here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from audit.analyse import judge_run
from audit.errors import UsageError
from audit.record import Invoke, Wave
from audit.store import Run

__all__ = ["Cobatch", "Found", "Member", "Variation", "cut_after", "find_cobatch", "halvings", "variations"]

JSON = dict[str, Any]
_MS = 1e6
_STEPS_MIN = 8


@dataclass(frozen=True)
class Member:
    """One request: its body, and how long after the release it is sent."""

    body: JSON
    delay_ms: float = 0.0

    def having(self, **changes: object) -> "Member":
        """Return it with another body."""
        return replace(self, body={**self.body, **changes})

    @property
    def prompt(self) -> list[int]:
        """The token ids of its prompt."""
        return list(self.body["prompt"])

    @property
    def steps(self) -> int:
        """How many tokens it asks for."""
        return int(self.body["n_predict"])


@dataclass(frozen=True)
class Cobatch:
    """The request that is watched, and its neighbours."""

    victim: Member
    neighbours: tuple[Member, ...]

    def beside(self, neighbours: tuple[Member, ...]) -> "Cobatch":
        """Return the victim beside others."""
        return replace(self, neighbours=neighbours)


class Found(NamedTuple):
    """A divergent trial of a run: where it stands, what was declared of its server, and its co-batch."""

    server: str
    condition: str
    trial: str
    slots: int
    declared: JSON
    cobatch: Cobatch


class Variation(NamedTuple):
    """A co-batch in which one factor is another."""

    factor: str
    words: str
    cobatch: Cobatch


def find_cobatch(run: Run, cell: str) -> Found:
    """Find the first divergent trial of a cell, `CONDITION` or `SERVER:CONDITION`, with the wave that it was in.

    Raises: UsageError where the run has no such cell, nothing of it diverged, it is no wave, or bodies are left out.
    """
    server, _, condition = cell.rpartition(":")
    table = judge_run(run).trials
    rows = table[(table["condition"] == condition) & ((table["server"] == server) | (server == ""))]
    if rows.empty:
        known = ", ".join(dict.fromkeys(table["condition"]))
        raise UsageError(f"{run.folder} has no cell {cell!r}", hint=f"CONDITION or SERVER:CONDITION; it has {known}")
    moved = rows[rows["diverged"]]
    if moved.empty:
        raise UsageError(f"no usable trial of {cell} diverged, so that there is nothing to isolate")
    first = moved.iloc[0]
    bodies, delays = _wave(run, str(first["server"]), str(first["unit"]))
    if len(bodies) == 1:
        raise UsageError(
            f"{condition} is no wave: its trials are sent alone, and no neighbour can have moved them",
            hint="name a cell of concurrent_*, oversubscribed_*, cross_batch_* or wave_repeat",
        )
    members = {name: Member(body, delays[name]) for name, body in bodies.items()}
    victim = members.pop(str(first["trial"]))
    entry = next(one for one in run.manifest.servers if one.label == first["server"])
    known_fact = entry.declaration is not None and run.has("facts", entry.declaration)
    return Found(
        server=entry.label,
        condition=condition,
        trial=str(first["trial"]),
        slots=entry.attested.slots,
        declared=dict(run.fact(entry.declaration)) if known_fact and entry.declaration else {},
        cobatch=Cobatch(victim, tuple(members.values())),
    )


def _wave(run: Run, server: str, unit: str) -> tuple[dict[str, JSON], dict[str, float]]:
    """Return bodies and delays of the members of a unit's last attempt, by trial."""
    bodies: dict[str, JSON] = {}
    delays: dict[str, float] = {}
    for line in run.lines():
        if isinstance(line, Wave | Invoke) and (line.server, line.unit) == (server, unit):
            if isinstance(line, Wave):
                bodies.clear()
                delays = {name: ns / _MS for name, ns in zip(line.members, line.delays_ns, strict=True)}
            elif run.has("facts", line.request):
                bodies[line.trial] = run.fact(line.request)
            else:
                raise UsageError(
                    f"{run.folder} leaves request bodies out", hint="isolate in the run that it was made from"
                )
    return bodies, {name: delays.get(name, 0.0) for name in bodies}


def variations(cobatch: Cobatch, *, slots: int, alone_ms: float) -> Iterator[Variation]:
    """Yield the co-batch with one factor changed at a time: number, length, content, order, slot, start offset.

    Args:
        cobatch: what is varied.
        slots: slots of the server.
        alone_ms: how long the victim takes when it is alone, in milliseconds.
    """
    victim, others = cobatch.victim, cobatch.neighbours
    for count in sorted({0, 1, len(others) // 2} - {len(others)}):
        yield Variation("number", f"{count} of {len(others)} neighbours", cobatch.beside(others[:count]))
    halved = tuple(one.having(prompt=_half(one.prompt)) for one in others)
    yield Variation("length", "neighbours' prompts cut to half", cobatch.beside(halved))
    brief = tuple(one.having(n_predict=max(1, one.steps // 2)) for one in others)
    yield Variation("length", "neighbours ask for half as many tokens", cobatch.beside(brief))
    turned = tuple(one.having(prompt=[*one.prompt[:1], *reversed(one.prompt[1:])]) for one in others)
    yield Variation("content", "neighbours' prompts with their tokens in reverse", cobatch.beside(turned))
    same = tuple(one.having(prompt=victim.prompt) for one in others)
    yield Variation("content", "neighbours ask the watched prompt", cobatch.beside(same))
    yield Variation("order", "neighbours in reverse order", cobatch.beside(others[::-1]))
    if victim.body["id_slot"] >= 0 and slots > 1:
        moved = [one.having(id_slot=(one.body["id_slot"] + 1) % slots) for one in (victim, *others)]
        yield Variation("slot", "every request one slot further", Cobatch(moved[0], tuple(moved[1:])))
    later = round(alone_ms / 2, 1)
    yield Variation(
        "start offset", f"the watched request {later:g} ms later",
        replace(cobatch, victim=replace(victim, delay_ms=victim.delay_ms + later)),
    )  # fmt: skip
    late = tuple(replace(one, delay_ms=one.delay_ms + later) for one in others)
    yield Variation("start offset", f"neighbours {later:g} ms later", cobatch.beside(late))


def _half(prompt: list[int]) -> list[int]:
    return prompt[: max(1, len(prompt) // 2)]


def halvings(member: Member) -> Iterator[tuple[str, Member]]:
    """Yield a member with half of its prompt and with half of its tokens, where there is a half."""
    if len(member.prompt) > 1:
        yield "prompt", member.having(prompt=_half(member.prompt))
    if member.steps > 1:
        yield "n_predict", member.having(n_predict=member.steps // 2)


def cut_after(cobatch: Cobatch, step: int) -> Cobatch:
    """Return the co-batch whose victim ends after a step, but runs no fewer than 8."""
    steps = max(_STEPS_MIN, step + 1)
    return replace(cobatch, victim=cobatch.victim.having(n_predict=min(steps, cobatch.victim.steps)))
