"""Sittings, performed one after the other: each due block sent, where the run is told, stopped where one asks, sealed.

In go sittings with what each has to do, out comes the end of the history and the seal. A first run and a resumed one
differ only in what is due.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from audit.past import Past
from audit.record import End, Interrupt
from audit.server import attest
from audit.sitting import Sitting
from audit.store import RunWriter
from audit.trial import Block

__all__ = ["Due", "Progress", "perform"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run is: the unit that is about to start."""

    server: str
    condition: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Due:
    """What is due at one server: blocks in order, after what happened in earlier processes."""

    sitting: Sitting
    blocks: Sequence[Block]
    past: Past | None = None


class _StoppedError(Exception):
    """The user asked to stop after the current trial."""


async def perform(
    dues: Sequence[Due], writer: RunWriter, *, report: Callable[[Progress], None], stopped: Callable[[], bool]
) -> str | None:
    """Do what is due at each server, and seal.

    Args:
        dues: the servers, in run order, each with its due blocks.
        writer: the run folder, begun or taken up.
        report: is told before each unit where the run is.
        stopped: is asked before each unit whether the user wants to stop.

    Returns: the digest of the seal, or None where the run was stopped.
    Raises: CancelledError where it is stopped at once; that is written down.
    """
    total = sum(len(block.units) for due in dues for block in due.blocks)
    done = 0
    try:
        for due in dues:
            if due.past is not None and due.past.ended and not due.blocks:
                continue
            done = await _sit(due, done, total, report, stopped)
    except _StoppedError:
        writer.append(Interrupt(reason="stopped by the user"))
        return None
    except asyncio.CancelledError:
        writer.append(Interrupt(reason="stopped at once by the user"))
        raise
    writer.append(End(reason="finished"))
    return writer.seal()


async def _sit(due: Due, done: int, total: int, report: Callable[[Progress], None], stopped: Callable[[], bool]) -> int:
    """Do what is due at one server; return how many units are done."""
    sitting = due.sitting
    sitting.server_line("start")
    if due.past is not None:
        await sitting.settle()
    await sitting.snapshot("start")
    for block in due.blocks:
        for unit in block.units:
            if stopped():
                raise _StoppedError
            report(Progress(server=sitting.label, condition=unit.trials[0].condition, done=done, total=total))
            first = due.past.next_attempt(unit.unit) if due.past is not None else 0
            await sitting.perform(unit, block.block, attempt_first=first)
            done += 1
    await sitting.snapshot("end")
    sitting.attested = await attest(sitting.client, sitting.writer.put_fact)
    sitting.server_line("end")
    return done
