"""The history, read once and indexed: for each server its units with their last attempt, and who it was when.

In goes a run, out comes one `Evidence` a server and the plan's trials by name. Facts are put where a proof finds them;
nothing is judged here. The cost is one pass over the history.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import msgspec

from audit.analyse.exchange import Exchange, Shared
from audit.errors import EvidenceError
from audit.plan import Plan
from audit.proofs import Flight, Identity, Moment, Origin, UnitFacts
from audit.record import (
    Attested,
    Complete,
    Invoke,
    Line,
    Manifest,
    Process,
    Reply,
    Resume,
    ServerEntry,
    ServerLine,
    Skip,
    Snapshot,
)
from audit.store import Run
from audit.trial import Block, Trial, Unit

__all__ = ["Attempt", "Evidence", "Outcome", "Planned", "gather", "planned_trials", "read_evidence"]


class Planned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One trial of the plan with the unit and block that it belongs to, and the key of its prompt."""

    trial: Trial
    unit: Unit
    block: Block
    prompt: str


@dataclass(kw_only=True, slots=True)
class Attempt:
    """One try at a unit; its exchanges by trial, part after part.

    `earlier` is the server's snapshot before `before`.
    """

    number: int
    earlier: Snapshot | None = None
    before: Snapshot | None = None
    after: Snapshot | None = None
    requests: dict[str, list[Exchange]] = field(default_factory=dict)


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a complete trial said as a whole: of `prefixes` the joined stream. `file` is the digest of stored rows."""

    logprob: str | None
    token: str
    steps: int
    holes: int
    file: str | None


@dataclass(kw_only=True)
class Evidence:
    """Everything that the history says about one server; `finished` are the exchanges that ended, of all attempts."""

    entry: ServerEntry
    planned: Mapping[str, Planned]
    prompts: Mapping[str, str]
    identities: list[tuple[ServerLine, Identity]] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    skips: dict[str, Skip] = field(default_factory=dict)
    finished: list[Exchange] = field(default_factory=list)
    invoke_lines: "array[int]" = field(default_factory=partial(array, "q"))
    latest: Snapshot | None = None
    shared: Shared = field(default_factory=Shared)

    @property
    def label(self) -> str:
        """The server's label."""
        return self.entry.label

    @cached_property
    def slots(self) -> int:
        """How many slots the server has."""
        return self.entry.attested.slots

    @cached_property
    def canaries(self) -> frozenset[str]:
        """The distinct rows of all complete canaries: a resumed run may have taken one several times."""
        replies = (one.said for one in self.finished if self.planned[one.trial].trial.role == "canary")
        return frozenset(reply.rows.file for reply in replies if reply is not None and reply.rows is not None)

    @property
    def answered(self) -> Iterator[tuple[Invoke, Complete]]:
        """Yield every request that ended with what became of it, of all attempts, in the order in which they ended."""
        for one in self.finished:
            invoke, complete = one.lines
            if complete is not None:
                yield invoke, complete

    def exchanges(self, trial: str) -> Sequence[Exchange]:
        """Return the exchanges of a trial's last attempt, by part."""
        attempt = self.attempts.get(self.planned[trial].unit.unit)
        return attempt.requests.get(trial, ()) if attempt is not None else ()

    def answers(self, trial: str) -> tuple[tuple[Invoke, Complete | None], ...]:
        """Return the requests of a trial's last attempt with their answers, by part."""
        return tuple(one.lines for one in self.exchanges(trial))

    def replies(self, trial: str) -> tuple[Reply, ...]:
        """Return the replies of a trial's last attempt, by part."""
        return tuple(reply for one in self.exchanges(trial) if (reply := one.reply) is not None)

    def said(self, trial: str) -> tuple[Reply, ...]:
        """Return the same as far as it is not about time, which takes less: durations may be missing."""
        return tuple(reply for one in self.exchanges(trial) if (reply := one.said) is not None)

    def outcome(self, trial: str) -> Outcome | None:
        """Return what a trial said, or None where it is not complete."""
        planned, replies = self.planned[trial].trial, self.said(trial)
        if len(replies) != (planned.steps if planned.form == "prefixes" else 1):
            return None
        last = replies[-1]
        said = last if planned.form != "prefixes" else last.joined
        if said is None:
            raise EvidenceError(f"{self.label}: {trial} is complete, but its replies are not joined into one stream")
        file = last.rows.file if last.rows is not None else None
        return Outcome(logprob=said.logprob, token=said.token, steps=said.steps, holes=said.holes, file=file)

    def flights(self, trial: str) -> tuple[Flight | None, ...]:
        """Return a trial's requests as a proof sees them, None for one without reply."""
        cache = self.planned[trial].trial.cache
        return tuple(one.flight(cache=cache) for one in self.exchanges(trial))

    def facts(
        self,
        unit: Unit,
        *,
        invoked_only: bool = False,
        flights_of: Callable[[str], Sequence[Flight | None]] | None = None,
    ) -> UnitFacts:
        """Return a unit's last attempt.

        Args:
            unit: the unit.
            invoked_only: a member that was never sent is left out; else it is None.
            flights_of: does what `flights` does, of someone who keeps some of them.
        """
        flights_of = flights_of or self.flights
        attempt = self.attempts.get(unit.unit) or Attempt(number=-1)
        flights: list[Flight | None] = []
        for trial in unit.trials:
            found = flights_of(trial.trial)
            flights += found or ([] if invoked_only else [None])
        return UnitFacts(
            slots=self.slots,
            earlier=_moment(attempt.earlier),
            before=_moment(attempt.before),
            after=_moment(attempt.after),
            flights=tuple(flights),
        )

    def identities_before(self, snapshot: Snapshot | None) -> Sequence[Identity]:
        """Return the server lines up to a snapshot, oldest first."""
        if snapshot is None:
            return ()
        return [identity for line, identity in self.identities if line.n < snapshot.n]

    def origin(self, trial: str, phases: Sequence[str]) -> Origin | None:
        """Return what stands between a trial's request and the latest server line of one of `phases`."""
        answers, attempt = self.answers(trial), self.attempts.get(self.planned[trial].unit.unit)
        if not answers or attempt is None:
            return None
        at = answers[0][0].n
        fitting = [line for line, _ in self.identities if line.n < at and line.phase in phases]
        if not fitting:
            return None
        latest = fitting[-1]
        between = bisect_left(self.invoke_lines, at) - bisect_left(self.invoke_lines, latest.n)
        return Origin(
            process=_process(latest.attested.process),
            earlier=tuple(_process(line.attested.process) for line, _ in self.identities if line.n < latest.n),
            invokes_between=between,
            adjacent=attempt.before is not None and attempt.before.n == latest.n + 1,
            restarted=latest.phase == "restart",
        )


def planned_trials(plan: Plan, registered: str) -> dict[str, Planned]:
    """Return every trial of the plan by its name, in the order in which they run."""
    return {
        trial.trial: Planned(trial=trial, unit=unit, block=block, prompt=plan.prompt_key(trial, block.block))
        for block in plan.unfold(registered)
        for unit in block.units
        for trial in unit.trials
    }


def read_evidence(run: Run) -> dict[str, Evidence]:
    """Read the history of a run, by server label in run order.

    Raises: EvidenceError where a line names a server, a trial or a request that there is not.
    """
    return gather(run.lines(), run.manifest, planned_trials(run.plan, run.manifest.registered))


def gather(lines: Iterable[Line], manifest: Manifest, planned: Mapping[str, Planned]) -> dict[str, Evidence]:
    """Index history lines, by server label in run order; `planned` holds the trials that they may name.

    Raises: EvidenceError where a line names a server, a trial or a request that there is not.
    """
    found = {
        entry.label: Evidence(entry=entry, planned=planned, prompts=manifest.prompts.get(entry.label, {}))
        for entry in manifest.servers
    }
    resumed = dict.fromkeys(found, False)
    for line in lines:
        if isinstance(line, Resume):
            resumed = dict.fromkeys(found, True)
            continue
        label = getattr(line, "server", None)
        if label is None:
            continue
        if label not in found:
            raise EvidenceError(f"history.jsonl: line {line.n} names the server {label!r}, which the manifest does not")
        _add(found[label], line, resumed=resumed[label])
        resumed[label] = resumed[label] and not isinstance(line, ServerLine)
    return found


def _kept(evidence: Evidence, line: Snapshot) -> Snapshot:
    """Return a snapshot as it is kept: the chain was walked, and most of it is what other snapshots say as well."""
    shared, latest = evidence.shared, evidence.latest
    metrics, before = line.metrics, (latest.metrics if latest is not None else None) or {}
    if metrics == before:
        metrics = before
    elif metrics is not None:
        metrics = {name: old if (old := before.get(name)) == value else value for name, value in metrics.items()}
    return msgspec.structs.replace(
        line,
        prev="",
        metrics=metrics,
        props=shared.one(line.props),
        slots=None if line.slots is None else shared.one(line.slots, key=tuple(line.slots)),
        process=shared.one(line.process),
    )


def _add(evidence: Evidence, line: Any, *, resumed: bool) -> None:  # noqa: ANN401 - any line of the history
    """Put one line where it belongs; `resumed` says that no server line has come since a resume."""
    match line:
        case ServerLine():
            evidence.identities.append((line, _identity(line, resumed=resumed)))
        case Snapshot(unit=unit, when=when):
            line = _kept(evidence, line)
            if unit is not None:
                attempt = _attempt(evidence, unit, line)
                setattr(attempt, when, line)
                attempt.earlier = evidence.latest if when == "before" else attempt.earlier
            evidence.latest = line
        case Skip():
            evidence.skips[line.unit] = line
        case Invoke():
            _begin(evidence, line)
        case Complete():
            _end(evidence, line)


def _begin(evidence: Evidence, line: Invoke) -> None:
    """Put a request to its trial; most have one, so that a list is made as short as it can be."""
    planned = evidence.planned.get(line.trial)
    if planned is None or planned.unit.unit != line.unit:
        raise EvidenceError(f"history.jsonl: line {line.n}: the unit {line.unit} has no trial {line.trial}")
    unit, trial = planned.unit.unit, planned.trial.trial
    evidence.invoke_lines.append(line.n)
    requests = _attempt(evidence, unit, line).requests
    if line.part != len(requests.get(trial, ())):
        raise EvidenceError(f"history.jsonl: line {line.n}: part {line.part} of {line.trial} is not due")
    begun = Exchange.begin(line, trial=trial, unit=unit)
    if line.part:
        requests[trial].append(begun)
    else:
        requests[trial] = [begun]


def _end(evidence: Evidence, line: Complete) -> None:
    """Put what became of a request to it."""
    requests = _attempt(evidence, line.unit, line).requests.get(line.trial, [])
    waiting = requests[line.part] if 0 <= line.part < len(requests) else None
    if waiting is None or waiting.answer is not None:
        raise EvidenceError(
            f"history.jsonl: line {line.n} answers a request of {line.trial} that does not wait for one"
        )
    requests[line.part] = ended = waiting.end(line, evidence.shared)
    evidence.finished.append(ended)


def _attempt(evidence: Evidence, unit: str, line: Snapshot | Invoke | Complete) -> Attempt:
    """Return the attempt that a line belongs to, which replaces an earlier one of its unit."""
    known = evidence.attempts.get(unit)
    if known is None or known.number < line.attempt:
        known = evidence.attempts[unit] = Attempt(number=line.attempt)
        evidence.skips.pop(unit, None)
    if line.attempt < known.number:
        raise EvidenceError(
            f"history.jsonl: line {line.n} is of attempt {line.attempt} of {unit}, after attempt {known.number}"
        )
    return known


def _identity(line: ServerLine, *, resumed: bool) -> Identity:
    said: Attested = line.attested
    return Identity(
        props=said.props,
        process=_process(said.process),
        lasting=(said.build_info, said.model, said.models, said.slots, said.n_ctx, said.vocabulary),
        explained=resumed or line.phase == "restart",
    )


def _process(process: Process) -> tuple[str | None, str | None]:
    return process.start, process.media_marker


def _moment(snapshot: Snapshot | None) -> Moment | None:
    if snapshot is None:
        return None
    return Moment(
        slots=None if snapshot.slots is None else tuple(snapshot.slots),
        metrics=snapshot.metrics,
        props=snapshot.props,
        process=_process(snapshot.process),
    )
