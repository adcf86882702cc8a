"""What a run did before it was interrupted: for each server its units with their attempts, and what is still due.

In go the lines of a history, out come the blocks that are not finished and the number of each unit's next attempt, as
docs/reference/record.md says. Whether anything was identical is not asked here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from audit.record import Complete, Invoke, Line, Process, Reply, Resume, ServerLine, Skip, Snapshot
from audit.trial import Block, Trial

__all__ = ["Past", "Tried", "read_past"]

# No server that is the same can answer these another time.
_FINAL = ("slots", "not owned")


@dataclass(kw_only=True)
class Tried:
    """The last attempt at a unit: its number, its first line, the process that made it, the replies of each trial.

    `closed` says that the server was looked at again afterwards.
    """

    number: int
    since: int
    process: int
    closed: bool = False
    replies: dict[str, int] = field(default_factory=dict)

    def whole(self, trial: Trial) -> bool:
        """Tell whether every request of a trial has a reply."""
        return self.replies.get(trial.trial, 0) == (trial.steps if trial.form == "prefixes" else 1)


@dataclass(kw_only=True)
class Past:
    """What happened at one server."""

    tried: dict[str, Tried] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    process: Process | None = None
    ended: bool = False

    def next_attempt(self, unit: str) -> int:
        """Return the number of a unit's next attempt."""
        return self.tried[unit].number + 1 if unit in self.tried else 0

    def finished(self, block: Block) -> bool:
        """Tell whether a block is done: each of its units, in one process and in order, or for ever impossible."""
        left = [unit for unit in block.units if self.skips.get(unit.unit) not in _FINAL]
        tried = [self.tried.get(unit.unit) for unit in left]
        done = [
            one
            for one, unit in zip(tried, left, strict=True)
            if one is not None and one.closed and all(map(one.whole, unit.trials))
        ]
        since = [one.since for one in done]
        return len(done) == len(left) and len({one.process for one in done}) <= 1 and since == sorted(since)

    def due(self, blocks: Iterable[Block], process: Process) -> Iterator[Block]:
        """Yield the blocks that the server `process` has to answer, in the order of the plan.

        Where measured blocks are left and the server's process is another, or cannot be told from another, canary and
        baselines come again; and the last canary where anything before it comes.
        """
        planned = list(blocks)
        left = {block.block for block in planned if not self.finished(block)}
        known = process == self.process and process != Process(start=None, media_marker=None)
        renewed = not known and any(block.block in left for block in planned if not _fixed(block))
        come = False
        for block in planned:
            fixed = _fixed(block)
            again = come if block.block == "canary/last" else fixed and renewed
            if block.block in left or again:
                come = True
                yield block


def _fixed(block: Block) -> bool:
    """Tell whether a block is a canary or a shared baseline."""
    return len(block.units) == 1 and block.units[0].trials[0].role in ("canary", "baseline")


def read_past(lines: Iterable[Line], labels: Iterable[str]) -> tuple[dict[str, Past], int]:
    """Return what happened at each server, and the number of the next process."""
    pasts = {label: Past() for label in labels}
    process = -1
    for line in lines:
        process = max(process, 0) if not isinstance(line, Resume) else line.process
        past = pasts.get(getattr(line, "server", ""))
        if past is None:
            continue
        past.ended = False
        match line:
            case ServerLine():
                past.process, past.ended = line.attested.process, line.phase == "end"
            case Skip():
                past.skips[line.unit] = line.reason
            case Snapshot(unit=str(unit), when=when):
                _tried(past, unit, line.attempt, line.n, process).closed = when == "after"
            case Invoke():
                _tried(past, line.unit, line.attempt, line.n, process)
            case Complete():
                tried = _tried(past, line.unit, line.attempt, line.n, process)
                if line.reply is not None:
                    tried.replies[line.trial] = tried.replies.get(line.trial, 0) + 1
                    past.replies[line.trial] = line.reply
    return pasts, process + 1


def _tried(past: Past, unit: str, number: int, line: int, process: int) -> Tried:
    """Return the attempt that a line belongs to; a new one takes the place of the one before, and of a skip."""
    known = past.tried.get(unit)
    if known is None or (known.number, known.process) != (number, process):
        known = past.tried[unit] = Tried(number=number, since=line, process=process)
        past.skips.pop(unit, None)
    return known
