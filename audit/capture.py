"""Plan x servers -> history: the run, from the first question to the seal.

In go a plan, its registration and the servers, out comes a sealed run folder. Everything that can be refused is
refused before the first request is sent. A run must not know what it hopes for, so this module reaches neither compare,
proofs nor analyse.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from audit.client import Client
from audit.errors import DeterminismError, PlanError, ServerError, UsageError
from audit.execution import Due, Progress, perform
from audit.machine import dependencies, machine, program, python
from audit.order import Order
from audit.plan import Plan
from audit.record import Manifest, PromptFact, ServerEntry, to_bytes
from audit.schedule import Pace
from audit.server import attest, freeze
from audit.sitting import Sitting, Target, declared_by
from audit.store import RunWriter
from audit.stream import FORMAT, canonical, digest
from audit.trial import Block

__all__ = ["Progress", "capture"]


def _needed_prompts(plan: Plan, blocks: tuple[Block, ...]) -> dict[str, tuple[str, str]]:
    """Return (prompt name, block) for every prompt key that the blocks need."""
    keys = {}
    for block in blocks:
        for unit in block.units:
            for trial in unit.trials:
                keys[plan.prompt_key(trial, block.block)] = (trial.prompt, block.block)
    return dict(sorted(keys.items()))


def _check_lengths(sitting: Sitting, blocks: tuple[Block, ...]) -> None:
    """Refuse a plan that a slot of this server cannot hold, before anything is sent."""
    n_ctx, vocabulary = sitting.attested.n_ctx, sitting.attested.vocabulary
    if vocabulary is None:
        raise ServerError(
            f"{sitting.label}: /v1/models does not say how large the vocabulary is, which the canary needs"
        )
    for block in blocks:
        for trial in (trial for unit in block.units for trial in unit.trials):
            ids = sitting.prompts[sitting.plan.prompt_key(trial, block.block)].ids
            place = f"{sitting.label}: prompts.{trial.prompt}"
            if n_ctx is not None and len(ids) + trial.steps >= n_ctx:
                needed = sitting.attested.slots * (len(ids) + trial.steps + 1)
                raise PlanError(
                    f"{place} is {len(ids)} tokens and asks for {trial.steps} more, "
                    f"but a slot of this server holds {n_ctx}",
                    hint=f"shorten it, or start llama-server with -c {needed}",
                )
            if max(ids) >= vocabulary or min(ids) < 0:
                raise PlanError(f"{place} holds the token id {max(ids)}, but the vocabulary has {vocabulary} tokens")


def _warn_of_slots(sitting: Sitting, blocks: tuple[Block, ...], warn: Callable[[str], None]) -> None:
    """Say which conditions need more slots than the server has; they are not sent, and vacuous."""
    slots = sitting.attested.slots
    units = [unit for block in blocks for unit in block.units if unit.slots_needed > slots]
    conditions = dict.fromkeys(trial.condition for unit in units for trial in unit.trials)
    if conditions:
        needed = max(unit.slots_needed for unit in units)
        warn(
            f"{sitting.label} has {slots} slots, so these cells will be vacuous: {', '.join(conditions)}; "
            f"start llama-server with -np {needed} for all of them"
        )


async def _sit_down(
    order: Order, blocks: tuple[Block, ...], target: Target, writer: RunWriter, client: Client
) -> Sitting:
    """Ask a server who it is and freeze the prompts; nothing is generated."""
    attested = await attest(client, writer.put_fact)
    declared = declared_by(target)
    prompts: dict[str, PromptFact] = {}
    for key, (name, block) in _needed_prompts(order.plan, blocks).items():
        prompts[key] = await freeze(client, order.plan.prompts[name].filled(order.registered, block), name=name)
    return Sitting(
        plan=order.plan,
        registered=order.registered,
        target=target,
        writer=writer,
        client=client,
        attested=attested,
        declaration=None if declared is None else writer.put_fact(canonical(declared)),
        prompts=prompts,
        pace=Pace(order.plan.pace_per_second),
    )


def _manifest(order: Order, sittings: list[Sitting]) -> Manifest:
    return Manifest(
        format=FORMAT,
        kind="audit",
        plan=digest(order.plan.to_bytes()),
        registered=order.registered,
        registration=order.registration,
        program=program(),
        dependencies=dependencies(),
        python=python(),
        machine=machine(),
        servers=[
            ServerEntry(
                label=sitting.label,
                owned=sitting.target.owned is not None,
                attested=sitting.attested,
                declaration=sitting.declaration,
            )
            for sitting in sittings
        ],
        prompts={
            sitting.label: {key: sitting.writer.put_fact(to_bytes(fact)) for key, fact in sitting.prompts.items()}
            for sitting in sittings
        },
    )


async def capture(
    order: Order,
    targets: list[Target],
    folder: Path,
    *,
    report: Callable[[Progress], None],
    warn: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a plan against servers, one after the other, and seal the record.

    Args:
        order: plan and registration.
        targets: the servers, in run order.
        folder: the run folder, which must not exist or be empty.
        report: is told before each unit where the run is.
        warn: is told, before anything is sent, which cells this server is too small for.
        stopped: is asked before each unit whether the user wants to stop.

    Returns: the digest of the seal, or None where the run was stopped (it stays unsealed).
    Raises: UsageError, PlanError, ServerError before anything was generated; CancelledError where the run is stopped
        at once, after it is written down.
    """
    labels = [target.address.label for target in targets]
    if len(set(labels)) < len(labels):
        raise UsageError(f"two servers have the same name: {', '.join(labels)}")
    blocks = order.plan.unfold(order.registered)
    writer = RunWriter(folder)
    async with AsyncExitStack() as stack:
        stack.callback(writer.close)
        sittings = []
        try:
            for target in targets:
                client = await stack.enter_async_context(Client(target.address, timeout_s=order.plan.timeout_s))
                sittings.append(await _sit_down(order, blocks, target, writer, client))
                _check_lengths(sittings[-1], blocks)
                _warn_of_slots(sittings[-1], blocks, warn)
        except (DeterminismError, asyncio.CancelledError):
            writer.discard()
            raise
        writer.begin(_manifest(order, sittings), plan=order.plan.to_bytes(), registration=order.files)
        due = [Due(sitting=sitting, blocks=blocks) for sitting in sittings]
        return await perform(due, writer, report=report, stopped=stopped)
