"""One server's part of a run: each unit sent as planned, and everything that happens written down.

In go a plan's units, a server and a run writer, out come history lines. What a trial needs of an earlier one (the ids
to force, the time a baseline took) is remembered here. Whether anything is identical is not this module's business.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from audit.client import Address, Client
from audit.errors import ReplyError, ServerError
from audit.plan import Plan
from audit.record import (
    Attested,
    Complete,
    Failure,
    Invoke,
    PromptFact,
    Reply,
    ServerLine,
    Skip,
    Snapshot,
    Wave,
)
from audit.replies import keep_reply
from audit.request import request_body
from audit.schedule import Hold, Pace, wave
from audit.server import attest, observe
from audit.spool import Sent, Spool
from audit.store import RunWriter
from audit.trial import Trial, Unit
from audit.wire import EventSink, Parsed, error_message

__all__ = ["Owned", "Sitting", "Target", "declared_by"]

COMPLETION = "/completion"
MEMBER_DELAY_NS = 2_000_000
POLL_S = 0.02


class Owned(Protocol):
    """A server that we started and may restart."""

    def restart(self) -> None:
        """Replace the process, on the same address with the same settings."""

    def abort(self) -> None:
        """End the process for good, also while another thread restarts it."""

    def declaration(self) -> dict[str, Any]:
        """Return what the operator knows and the server cannot attest."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One server to audit; `declaration` is what the operator says about a server that is not ours."""

    address: Address
    owned: Owned | None = None
    declaration: dict[str, Any] | None = None


def declared_by(target: Target) -> dict[str, Any] | None:
    """Return what is declared of a server: by us where it is ours, else by its operator."""
    return target.owned.declaration() if target.owned is not None else target.declaration


@dataclass(kw_only=True)
class Sitting:
    """What is known about one server while its units are sent."""

    plan: Plan
    registered: str
    target: Target
    writer: RunWriter
    client: Client
    attested: Attested
    declaration: str | None
    prompts: dict[str, PromptFact]
    pace: Pace
    replies: dict[str, Reply] = field(default_factory=dict)
    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The server's label."""
        return self.target.address.label

    def server_line(self, phase: str) -> None:
        """Write down who the server is."""
        self.writer.append(
            ServerLine(server=self.label, phase=phase, attested=self.attested, declaration=self.declaration)  # type: ignore[arg-type]
        )

    async def snapshot(self, when: str, unit: str | None = None, attempt: int = 0) -> bool:
        """Write down what the server is doing, and tell whether it still is the one that was attested."""
        known = (self.attested.props, self.attested.process)
        state = await observe(self.client, self.writer.put_fact, health=unit is None)
        if unit is not None and (state.props, state.process) != known:
            # Where another answers, all is asked that is asked at the start.
            state = await observe(self.client, self.writer.put_fact, health=True)
        self.writer.append(
            Snapshot(
                server=self.label,
                unit=unit,
                attempt=attempt,
                when=when,  # type: ignore[arg-type]
                health=state.health,
                slots=state.slots,
                metrics=state.metrics,
                props=state.props,
                process=state.process,
            )
        )
        return (state.props, state.process) == known

    async def settle(self) -> None:
        """Wait until the server has nothing to do, at most as long as one request may take.

        What a process that was killed had asked for may still be under way.
        """
        end_ns = time.monotonic_ns() + int(self.plan.timeout_s * 1e9)
        while (await observe(self.client, self.writer.put_fact)).busy and time.monotonic_ns() < end_ns:  # noqa: ASYNC110 - a server says nothing by itself
            await asyncio.sleep(POLL_S)

    async def _changed(self) -> None:
        """Write down who answers now, where that can be asked; the run goes on, and judging it is not ours."""
        with contextlib.suppress(ServerError):
            self.attested = await attest(self.client, self.writer.put_fact)
            self.server_line("change")

    async def perform(self, unit: Unit, block: str, *, attempt_first: int = 0) -> None:
        """Send a unit, again where the plan allows more attempts and a request failed."""
        skip = self._skip(unit)
        if skip is not None:
            self.writer.append(skip)
            return
        for attempt in range(attempt_first, attempt_first + self.plan.attempts):
            if unit.restart:
                await self._restart()
            send = self._wave if unit.wave else self._solo
            if await send(unit, block, attempt):
                break
        self.writer.sync()

    def _skip(self, unit: Unit) -> Skip | None:
        def skip(reason: str, needed: int | None = None, available: int | None = None) -> Skip:
            return Skip(server=self.label, unit=unit.unit, reason=reason, needed=needed, available=available)  # type: ignore[arg-type]

        if unit.slots_needed > self.attested.slots:
            return skip("slots", unit.slots_needed, self.attested.slots)
        if self.target.owned is None and (unit.restart or unit.trials[0].condition == "first_request"):
            return skip("not owned")
        forms = [t.reference for t in unit.trials if t.form != "plain"]
        times = [t.reference for t in unit.trials if unit.staggered and t.role == "measured"]
        if any(reference not in self.tokens for reference in forms) or any(one not in self.replies for one in times):
            return skip("no reference")
        return None

    async def _restart(self) -> None:
        if self.target.owned is None:
            raise AssertionError("only a server of our own is restarted")
        try:
            await asyncio.to_thread(self.target.owned.restart)
        except asyncio.CancelledError:
            # The thread goes on, and whoever ends the loop would wait until the new server is ready.
            self.target.owned.abort()
            raise
        self.attested = await attest(self.client, self.writer.put_fact)
        self.server_line("restart")

    async def _solo(self, unit: Unit, block: str, attempt: int) -> bool:
        trial = unit.trials[0]
        await self.pace.wait()
        await self.snapshot("before", unit.unit, attempt)
        parts = trial.steps if trial.form == "prefixes" else 1
        gathered: list[Parsed] = []
        for part in range(parts):
            body = self._invoke(trial, unit, block, attempt, part)
            sent = await self._send(self.client, trial, part, body)
            parsed = self._complete(sent, unit, attempt, gathered)
            if parsed is None:
                break
            gathered.append(parsed)
        if not await self.snapshot("after", unit.unit, attempt):
            await self._changed()
        return len(gathered) == parts

    async def _wave(self, unit: Unit, block: str, attempt: int) -> bool:
        """Release a wave: each member on a connection of its own, all but the last byte sent before the release."""
        delays_ns = self._delays_ns(unit)
        clients = [Client(self.target.address, timeout_s=self.plan.timeout_s) for _ in unit.trials]
        try:
            await asyncio.gather(*(client.get("/health") for client in clients))
            await self.snapshot("before", unit.unit, attempt)
            members = [trial.trial for trial in unit.trials]
            self.writer.append(
                Wave(server=self.label, unit=unit.unit, attempt=attempt, members=members, delays_ns=delays_ns)
            )
            bodies = [self._invoke(trial, unit, block, attempt, 0) for trial in unit.trials]
            jobs: list[Callable[[Hold], Any]] = [
                lambda hold, client=client, trial=trial, body=body: self._send(client, trial, 0, body, hold)  # type: ignore[misc]
                for client, trial, body in zip(clients, unit.trials, bodies, strict=True)
            ]
            # Replies are read after the wave: decoding one would delay the clock of the next.
            sent: list[Sent] = await wave(jobs, delays_ns=delays_ns)
        finally:
            await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))
        sent.sort(key=lambda item: item.exchange.last_byte_ns or 0)
        parsed = [self._complete(item, unit, attempt, []) for item in sent]
        if not await self.snapshot("after", unit.unit, attempt):
            await self._changed()
        return all(reply is not None for reply in parsed)

    def _delays_ns(self, unit: Unit) -> list[int]:
        """Return when each member starts.

        Among neighbours the member starts last, since a server that is handed the first request of a wave begins
        with it alone. Neighbours of a staggered wave start in the member's decoding, whose begin and length its
        baseline tells.
        """
        if not unit.staggered:
            among_others = len({trial.prompt for trial in unit.trials}) > 1
            return [MEMBER_DELAY_NS if among_others and m == 0 else 0 for m in range(len(unit.trials))]
        reply = self.replies[unit.trials[0].reference or ""]
        prompt_ns, predicted_ns = (1e6 * (ms or 0.0) for ms in (reply.prompt_ms, reply.predicted_ms))
        share = [m / len(unit.trials) for m in range(len(unit.trials))]
        return [0] + [int(prompt_ns + part * predicted_ns) for part in share[1:]]

    def _invoke(self, trial: Trial, unit: Unit, block: str, attempt: int, part: int) -> bytes:
        """Form a request's bytes, store them, and write down that they are about to be sent."""
        ids: list[int] = self.prompts[self.plan.prompt_key(trial, block)].ids
        if trial.half_prompt:
            ids = ids[: len(ids) // 2]
        reference = self.tokens.get(trial.reference or "", ())
        body = request_body(
            self.plan,
            trial,
            registered=self.registered,
            prompt=[*ids, *reference[:part]],
            vocabulary=self.attested.vocabulary,
            forced=reference,
        )
        request = self.writer.put_fact(body)
        self.writer.append(
            Invoke(
                server=self.label,
                trial=trial.trial,
                unit=unit.unit,
                attempt=attempt,
                part=part,
                request=request,
                slot=trial.slot,
            )
        )
        return body

    async def _send(self, client: Client, trial: Trial, part: int, body: bytes, hold: Hold | None = None) -> Sent:
        """Send a request; a streamed reply is read as it comes, or kept to be read after the wave of its `hold`."""
        if not trial.streamed:
            return Sent(trial, part, await client.post(COMPLETION, body, hold=hold))
        sink = EventSink(vocabulary=self.attested.vocabulary if trial.n_probs == "vocabulary" else None)
        if hold is not None:
            spool = Spool()
            return Sent(trial, part, await client.post(COMPLETION, body, sink=spool, hold=hold), sink, spool)
        # llama-server often closes a connection after a streamed reply although it promises to keep it.
        async with Client(self.target.address, timeout_s=self.plan.timeout_s) as own:
            return Sent(trial, part, await own.post(COMPLETION, body, sink=sink), sink)

    def _complete(self, sent: Sent, unit: Unit, attempt: int, before: Sequence[Parsed]) -> Parsed | None:
        """Read a reply and write down what became of it; None where it failed."""
        exchange, trial = sent.exchange, sent.trial
        failure, parsed, reply = exchange.failure, None, None
        if failure is None and exchange.status != 200:  # noqa: PLR2004 - HTTP's OK
            failure = ("status", error_message(exchange.body))
        if failure is None:
            try:
                parsed = sent.read()
                joined = [*before, parsed] if trial.form == "prefixes" and sent.part == trial.steps - 1 else []
                reply = keep_reply(parsed, trial, joined, plan=self.plan, writer=self.writer)
            except ReplyError as error:
                failure, parsed = ("refused" if sent.sink is None else "stream_error", error.message), None
        sent.close()
        kept = self.writer.put("bodies", exchange.body) if failure is not None and exchange.body else None
        since = self.writer.since_anchor
        self.writer.append(
            Complete(
                server=self.label,
                trial=trial.trial,
                unit=unit.unit,
                attempt=attempt,
                part=sent.part,
                sent_ns=since(exchange.sent_ns),
                first_byte_ns=None if exchange.first_byte_ns is None else since(exchange.first_byte_ns),
                last_byte_ns=None if exchange.last_byte_ns is None else since(exchange.last_byte_ns),
                status=exchange.status,
                failure=None if failure is None else Failure(kind=failure[0], message=failure[1], body=kept),  # type: ignore[arg-type]
                reply=reply,
            )
        )
        if reply is not None and parsed is not None and trial.role == "baseline":
            self.replies[trial.trial] = reply
            self.tokens[trial.trial] = parsed.tokens
        return parsed
