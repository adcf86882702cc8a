"""Which neighbour moved a request's numbers: one divergent trial, varied and then halved until nothing can go.

In go a co-batch and a server, out comes an `Isolated`: what each variation did, the smallest co-batch that still moves
the numbers, and how many of its runs show it. Streams are compared with that of the same request sent alone. Nothing is
written here.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from audit.client import Address, Client
from audit.compare import first_difference
from audit.errors import ServerError, UsageError
from audit.remedy.cobatch import Cobatch, Member, Variation, cut_after, halvings, variations
from audit.schedule import wave
from audit.stream import Stream, canonical
from audit.wire import error_message, read_whole

__all__ = ["WEAK_BELOW", "Bench", "Isolated", "Tried", "isolate", "summary"]

# Of ten runs fewer than this make a report that somebody else may not see confirmed.
WEAK_BELOW = 5
COMPLETION = "/completion"
_OK = 200
_MS = 1e6


class Tried(NamedTuple):
    """How many of n runs of a co-batch moved the watched request's numbers."""

    factor: str
    words: str
    k: int
    n: int


@dataclass(frozen=True, kw_only=True)
class Isolated:
    """What was found.

    `stages` are the smallest co-batch, the same with its requests as long as they were, and the whole; `first_step` is
    the first step that moved in the smallest, None where nothing did.
    """

    whole: Tried
    tried: list[Tried]
    stages: tuple[Cobatch, ...]
    shown: Tried
    first_step: int | None


@dataclass(kw_only=True)
class Bench:
    """Sends co-batches to one server and compares.

    Args:
        address: the server.
        timeout_s: what one request may take.
    """

    address: Address
    timeout_s: float
    alone: dict[bytes, tuple[Stream, float]] = field(default_factory=dict)

    async def solo(self, member: Member) -> tuple[Stream, float]:
        """Return the stream of a request that is sent alone, twice, and how long it took in milliseconds.

        Raises: ServerError where the two differ: then there is nothing to compare with.
        """
        key = canonical(member.body)
        if key not in self.alone:
            begun = time.monotonic_ns()
            one, two = [(await self.send([member]))[0] for _ in range(2)]
            if one.logprob_digest != two.logprob_digest:
                raise ServerError(
                    "the watched request does not repeat when it is sent alone, so no neighbour is guilty"
                )
            self.alone[key] = (one, (time.monotonic_ns() - begun) / 2 / _MS)
        return self.alone[key]

    async def send(self, members: Sequence[Member]) -> list[Stream]:
        """Release requests together, each after its delay on a connection of its own; return their streams.

        Raises: ServerError where one is not answered as asked.
        """
        clients = [Client(self.address, timeout_s=self.timeout_s) for _ in members]
        try:
            await asyncio.gather(*(client.get("/health") for client in clients))
            jobs = [
                lambda hold, client=client, member=member: client.post(COMPLETION, canonical(member.body), hold=hold)
                for client, member in zip(clients, members, strict=True)
            ]
            exchanges = await wave(jobs, delays_ns=[int(member.delay_ms * _MS) for member in members])
        finally:
            await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))
        streams = []
        for exchange, member in zip(exchanges, members, strict=True):
            if exchange.failure is not None or exchange.status != _OK:
                said = exchange.failure[1] if exchange.failure is not None else error_message(exchange.body)
                raise ServerError(f"{self.address.label}: a request of the co-batch failed: {said}")
            streams.append(Stream(int(member.body["n_probs"]), read_whole(exchange.body).steps))
        return streams

    async def step_moved(self, cobatch: Cobatch) -> int | None:
        """Run a co-batch once; return the first step that differs from the same request alone, None where none does."""
        reference, _ = await self.solo(cobatch.victim)
        stream, *_ = await self.send([cobatch.victim, *cobatch.neighbours])
        if stream.logprob_digest == reference.logprob_digest:
            return None
        found = first_difference(stream, reference)
        return 0 if found is None else found.step


async def isolate(
    cobatch: Cobatch, bench: Bench, *, slots: int, tries: int, runs: int, say: Callable[[str], None]
) -> Isolated:
    """Isolate what moves a request's numbers.

    Args:
        cobatch: what moved them once.
        bench: the server.
        slots: its slots.
        tries: runs of each co-batch that is tried on the way.
        runs: runs of the smallest one, which are counted.
        say: is told where the search is.

    Raises: UsageError where the whole co-batch moves nothing in any of `runs` runs; ServerError where the server fails.
    """
    search = _Search(bench, tries, say)
    _, alone_ms = await bench.solo(cobatch.victim)
    whole = await search.count(Variation("none", f"beside all {len(cobatch.neighbours)} neighbours", cobatch), runs)
    if not whole.k:
        raise UsageError(
            f"beside its {len(cobatch.neighbours)} neighbours the request moved in 0 of {runs} runs on this server",
            hint="isolate on the build, model and settings that the run was made with, or give more --runs",
        )
    tried = [await search.count(one, tries) for one in variations(cobatch, slots=slots, alone_ms=alone_ms)]
    search.needed = max(1, tries * whole.k // whole.n)
    fewest = cobatch.beside(await search.fewest(cobatch))
    say(f"{len(fewest.neighbours)} of {len(cobatch.neighbours)} neighbours suffice")
    smallest, step = await search.shortest(fewest)
    shown = await search.count(Variation("smallest", f"beside {len(smallest.neighbours)}", smallest), runs)
    return Isolated(whole=whole, tried=tried, stages=(smallest, fewest, cobatch), shown=shown, first_step=step)


@dataclass
class _Search:
    """The search for the smallest co-batch, which has to move the numbers in `needed` of `tries` runs."""

    bench: Bench
    tries: int
    say: Callable[[str], None]
    needed: int = 1

    async def count(self, variation: Variation, runs: int) -> Tried:
        """Run a co-batch some times, and count the runs in which the numbers moved."""
        steps = [await self.bench.step_moved(variation.cobatch) for _ in range(runs)]
        k = sum(step is not None for step in steps)
        self.say(f"{variation.factor}: {variation.words}: moved in {k} of {runs} runs")
        return Tried(variation.factor, variation.words, k, runs)

    async def moves(self, cobatch: Cobatch) -> bool:
        """Tell whether enough of some runs move the numbers; stop as soon as that is known."""
        moved = 0
        for left in range(self.tries, 0, -1):
            moved += await self.bench.step_moved(cobatch) is not None
            if moved >= self.needed or moved + left - 1 < self.needed:
                break
        return moved >= self.needed

    async def shortest(self, cobatch: Cobatch) -> tuple[Cobatch, int | None]:
        """Halve each neighbour's prompt and tokens, and cut the watched request's end; return the first moved step."""
        found = cobatch
        for at in range(len(found.neighbours)):
            found = await self._halve(found, at)
        steps = [await self.bench.step_moved(found) for _ in range(self.tries)]
        step = min((one for one in steps if one is not None), default=None)
        if step is not None:
            shorter = cut_after(found, step)
            found = shorter if await self.moves(shorter) else found
        return found, step

    async def fewest(self, cobatch: Cobatch) -> tuple[Member, ...]:
        """Return a set of neighbours of which none can be left out, by delta debugging.

        Source: A. Zeller, R. Hildebrandt, IEEE Transactions on Software Engineering 28 (2002) 183-200, ddmin.
        """
        kept, parts = list(cobatch.neighbours), 2
        while len(kept) > 1:
            size = -(-len(kept) // parts)
            chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
            rests = [[one for other in chunks if other is not chunk for one in other] for chunk in chunks]
            for smaller, then in [*((chunk, 2) for chunk in chunks), *((rest, max(parts - 1, 2)) for rest in rests)]:
                if 0 < len(smaller) < len(kept) and await self.moves(cobatch.beside(tuple(smaller))):
                    kept, parts = smaller, then
                    break
            else:
                if parts >= len(kept):
                    break
                parts = min(2 * parts, len(kept))
        return tuple(kept)

    async def _halve(self, cobatch: Cobatch, at: int) -> Cobatch:
        """Halve one neighbour's prompt and tokens for as long as the numbers move."""
        again = True
        while again:
            again = False
            for what, smaller in halvings(cobatch.neighbours[at]):
                others = (*cobatch.neighbours[:at], smaller, *cobatch.neighbours[at + 1 :])
                if await self.moves(cobatch.beside(others)):
                    cobatch, again = cobatch.beside(others), True
                    self.say(f"neighbour {at + 1}: {what} halved to {len(smaller.prompt)} and {smaller.steps} tokens")
                    break
        return cobatch


def summary(isolated: Isolated) -> dict[str, Any]:
    """Return what was found as plain values."""
    return {
        "whole": isolated.whole._asdict(),
        "tried": [one._asdict() for one in isolated.tried],
        "shown": isolated.shown._asdict(),
        "first_step": isolated.first_step,
    }
