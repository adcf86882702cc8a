"""A run taken up again: the same plan, the same servers, and only what is not finished.

In go an unsealed run folder and its servers, out comes the sealed folder. It is refused where a server is no longer
the one that the run began with, naming what changed. Where only its process is another, the canary and the baselines
come again. Whether anything is identical is not this module's business.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from audit.client import Client
from audit.difference import differences
from audit.errors import ServerError, UsageError
from audit.execution import Due, Progress, perform
from audit.past import Past, read_past
from audit.record import Attested, PromptFact, ServerEntry
from audit.schedule import Pace
from audit.server import attest
from audit.sitting import Sitting, Target, declared_by
from audit.store import RunWriter
from audit.stream import canonical, digest
from audit.trial import Block
from audit.unsealed import Unsealed

__all__ = ["resume"]

_SHOWN_MAX = 8


async def resume(
    folder: Path,
    targets: list[Target],
    *,
    report: Callable[[Progress], None],
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Take up an unsealed run and seal it.

    Args:
        folder: the run folder.
        targets: its servers, by the same names.
        report: is told before each unit where the run is.
        stopped: is asked before each unit whether the user wants to stop.

    Returns: the digest of the seal, or None where the run was stopped again.
    Raises: UsageError where the folder or the servers are others; ServerError where a server changed; EvidenceError
        where the folder contradicts itself. Until then nothing is written.
    """
    async with AsyncExitStack() as stack:
        left = Unsealed(folder)
        stack.callback(left.close)
        if left.ended:
            return left.sealer().seal()
        plan, entries = left.order.plan, {entry.label: entry for entry in left.run.manifest.servers}
        by_label = _by_label(targets, entries)
        pasts, process = read_past(left.lines(), entries)
        met = []
        for label, entry in entries.items():
            client = await stack.enter_async_context(Client(by_label[label].address, timeout_s=plan.timeout_s))
            met.append((entry, client, await _same(left, entry, by_label[label], client)))
        writer = left.write_on(process=process)
        blocks = plan.unfold(left.order.registered)
        dues = [
            _due(left, entry, by_label[entry.label], client, attested, writer, blocks, pasts[entry.label])
            for entry, client, attested in met
        ]
        return await perform(dues, writer, report=report, stopped=stopped)


def _by_label(targets: list[Target], entries: dict[str, ServerEntry]) -> dict[str, Target]:
    """Return the servers by name, which must be those of the run.

    Raises: UsageError.
    """
    given = [target.address.label for target in targets]
    if sorted(given) != sorted(entries):
        raise UsageError(
            f"the run has the servers {', '.join(entries)}, given are {', '.join(given) or 'none'}",
            hint="name each of them once, as --server NAME=URL, or --local where the run started it",
        )
    found = {target.address.label: target for target in targets}
    for label, entry in entries.items():
        if entry.owned != (found[label].owned is not None):
            how = "--local" if entry.owned else "--server"
            raise UsageError(f"{label} is of {how} in this run, and now it is not", hint=f"give it with {how}")
    return found


async def _same(left: Unsealed, entry: ServerEntry, target: Target, client: Client) -> Attested:
    """Ask a server who it is, and return that where it is the one that the run began with, whatever its process.

    Raises: ServerError that names the first differences.
    """
    said: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        said[digest(data)] = data
        return digest(data)

    def fact(name: str) -> Any:  # noqa: ANN401 - any JSON value
        return msgspec.json.decode(said[name]) if name in said else left.run.fact(name)

    attested = await attest(client, keep)
    declared = declared_by(target)
    before = None if entry.declaration is None else left.run.fact(entry.declaration)
    now = None if declared is None else msgspec.json.decode(canonical(declared))
    found = differences((entry.attested, before), (attested, now), fact=fact)
    if found:
        more = f", and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise ServerError(
            f"{entry.label} is not the server that this run began with: {'; '.join(found[:_SHOWN_MAX])}{more}",
            hint="start it as it was, or begin another run; nothing was written",
        )
    return attested


def _due(
    left: Unsealed,
    entry: ServerEntry,
    target: Target,
    client: Client,
    attested: Attested,
    writer: RunWriter,
    blocks: tuple[Block, ...],
    past: Past,
) -> Due:
    """Return what is due at a server, with what its trials need of earlier ones."""
    order, run = left.order, left.run
    prompts = run.manifest.prompts[entry.label]
    baselines = {t.trial for block in blocks for unit in block.units for t in unit.trials if t.role == "baseline"}
    replies = {trial: reply for trial, reply in past.replies.items() if trial in baselines and reply.logprob}
    sitting = Sitting(
        plan=order.plan,
        registered=order.registered,
        target=target,
        writer=writer,
        client=client,
        attested=attested,
        declaration=entry.declaration,
        prompts={key: msgspec.convert(run.fact(name), PromptFact) for key, name in prompts.items()},
        pace=Pace(order.plan.pace_per_second),
        replies=replies,
        tokens={trial: run.stream(reply.logprob or "").tokens for trial, reply in replies.items()},
    )
    return Due(sitting=sitting, blocks=list(past.due(blocks, attested.process)), past=past)
