"""One group of one model on one server -> a sealed folder of facts.

In go an order, a server and a folder that exists and is empty, out comes a record of kind accuracy: first each sequence
alone, then whole waves, until every sequence has its rows in both modes. A unit whose requests failed, or whose
evidence does not prove that it was done, is sent again as the plan allows, each attempt recorded. No row is compared
with anything here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from audit.accuracy.bounds import Bounds
from audit.accuracy.corpus import CALIBRATION, GROUPS
from audit.accuracy.inputs import InputFiles
from audit.accuracy.order import AccuracyOrder
from audit.accuracy.packed import pack
from audit.accuracy.plan import Side, planned, sending_plan, units
from audit.accuracy.record import Captured
from audit.accuracy.refusal import unit_refusals
from audit.analyse.evidence import gather
from audit.client import Client
from audit.errors import DeterminismError, EvidenceError, ServerError, UsageError
from audit.execution import Progress
from audit.machine import dependencies, machine, program, python
from audit.record import End, Interrupt, Line, Manifest, PromptFact, ServerEntry, ServerLine, Snapshot
from audit.schedule import Pace
from audit.server import attest
from audit.sitting import Sitting, Target, declared_by
from audit.store import RunWriter
from audit.stream import FORMAT, canonical, digest
from audit.trial import Unit

__all__ = ["Done", "Job", "capture", "check_job"]

# A pace is for servers of others; here each sequence is one request after another anyway.
_PER_SECOND = 1000.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is captured: one group of one model on one side.

    `bounds` are the bytes of a fact, `reproduces` those of a packed capture; or None.
    """

    order: AccuracyOrder
    model: str
    group: str
    side: Side
    bounds: bytes | None = None
    reproduces: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a capture: its seal, None where it was stopped, and each refused trial with its reason."""

    seal: str | None
    refused: dict[str, str]


class _Keeper(RunWriter):
    """A writer that remembers the lines of the unit at hand, the snapshot before them, and who the server is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.servers: list[Line] = []
        self.unit: list[Line] = []

    def append(self, line: Line) -> Line:
        linked = super().append(line)
        (self.servers if isinstance(line, ServerLine) else self.unit).append(linked)
        return linked

    def begin_unit(self) -> None:
        """Forget what was, but for the last snapshot."""
        shots: list[Line] = [line for line in self.unit if isinstance(line, Snapshot)]
        self.unit = shots[-1:]


def check_job(job: Job) -> None:
    """Refuse a job that cannot be, before a server is started.

    Raises: UsageError, EvidenceError.
    """
    corpus = job.order.corpus
    if job.model not in corpus.models:
        raise UsageError(f"the corpus has no model {job.model!r}", hint=f"it has {', '.join(sorted(corpus.models))}")
    if job.group not in GROUPS:
        raise UsageError(f"there is no group {job.group!r}", hint=f"there are {', '.join(GROUPS)}")
    if job.side == "reference" or job.group == CALIBRATION:
        if job.bounds is not None:
            raise UsageError("bounds come after this capture, so it can name none", hint="leave --bounds out")
        return
    if job.bounds is None:
        hint = "determinism accuracy calibrate, then --bounds FILE"
        raise UsageError(
            f"a capture of {job.group} needs the frozen bounds, so that it cannot have made them", hint=hint
        )
    bounds = Bounds.parse(job.bounds, name="--bounds")
    if job.model not in bounds.models:
        raise UsageError(f"the bounds have none for {job.model}", hint=f"they have {', '.join(sorted(bounds.models))}")
    wanted = (job.order.plan.corpus, digest(job.order.plan.to_bytes()), job.order.registered)
    if (bounds.corpus, bounds.plan, bounds.registered) != wanted:
        raise EvidenceError("the bounds are of another corpus, plan or registration")


async def capture(
    job: Job,
    target: Target,
    folder: Path,
    inputs: InputFiles,
    *,
    report: Callable[[Progress], None],
    stopped: Callable[[], bool] = lambda: False,
) -> Done:
    """Capture a group and seal the record.

    Args:
        job: what to capture.
        target: the server.
        folder: an empty folder.
        inputs: the files that went in; they are compared again before the seal.
        report: is told before each unit where the capture is.
        stopped: is asked before each unit whether the user wants to stop.

    Raises: UsageError, ServerError before anything was generated; EvidenceError where an input changed meanwhile.
    """
    check_job(job)
    writer = _writer(folder)
    try:
        async with Client(target.address, timeout_s=job.order.plan.timeout_s) as client:
            try:
                sitting = await _sit_down(job, target, writer, client)
            except DeterminismError:
                writer.discard()
                raise
            return await _run(job, sitting, writer, inputs, report=report, stopped=stopped)
    finally:
        writer.close()


def _writer(folder: Path) -> _Keeper:
    if not folder.is_dir():
        raise UsageError(f"{folder} must exist and be empty", hint=f"mkdir {folder}")
    return _Keeper(folder)


async def _sit_down(job: Job, target: Target, writer: _Keeper, client: Client) -> Sitting:
    """Ask the server who it is and refuse one that is not what the corpus asks for."""
    attested = await attest(client, writer.put_fact)
    declared = declared_by(target)
    corpus, members = job.order.corpus, job.order.corpus.members_of(job.model, job.group)
    model, label = corpus.models[job.model], target.address.label
    slots, longest = corpus.members if job.side == "server" else 1, corpus.longest(job.model)
    wanted = model.quantized if job.side == "server" else model.decoded
    if declared is None or f"sha256:{declared.get('model_sha256')}" != wanted:
        hint = "declare the file that it serves with --declare" if target.owned is None else "name the right file"
        raise UsageError(f"{label} must serve the file {wanted} of the corpus", hint=hint)
    batch = declared.get("settings", {}).get("batch") if isinstance(declared.get("settings"), dict) else None
    if not isinstance(batch, int) or batch < slots * longest:
        hint = f"start it with -b {slots * longest}, and declare settings.batch"
        raise UsageError(f"{label} must take {slots} prefills of {longest} tokens in one batch, not {batch}", hint=hint)
    if attested.vocabulary != model.vocabulary:
        raise ServerError(f"{label} has a vocabulary of {attested.vocabulary} tokens, the corpus {model.vocabulary}")
    if attested.slots < slots or (attested.n_ctx or 0) <= longest + model.rows:
        hint = f"start it with -np {slots} -c {slots * (longest + model.rows + 1)}"
        raise ServerError(f"{label} has {attested.slots} slots of {attested.n_ctx} tokens, too few", hint=hint)
    return Sitting(
        plan=sending_plan(job.order.plan, members),
        registered=job.order.registered,
        target=target,
        writer=writer,
        client=client,
        attested=attested,
        declaration=writer.put_fact(canonical(declared)),
        prompts={one.id: PromptFact(ids=one.prefill, text="") for one in members},
        pace=Pace(_PER_SECOND),
        tokens={one.id: tuple(one.teacher) for one in members},
    )


def _manifest(job: Job, sitting: Sitting) -> Manifest:
    owned = sitting.target.owned is not None
    entry = ServerEntry(label=sitting.label, owned=owned, attested=sitting.attested, declaration=sitting.declaration)
    return Manifest(
        format=FORMAT,
        kind="accuracy",
        plan=digest(job.order.plan.to_bytes()),
        registered=job.order.registered,
        registration=job.order.registration,
        program=program(),
        dependencies=dependencies(),
        python=python(),
        machine=machine(),
        servers=[entry],
        prompts={sitting.label: {}},
    )


async def _run(
    job: Job,
    sitting: Sitting,
    writer: _Keeper,
    inputs: InputFiles,
    *,
    report: Callable[[Progress], None],
    stopped: Callable[[], bool],
) -> Done:
    manifest = _manifest(job, sitting)
    writer.begin(manifest, plan=job.order.plan.to_bytes(), registration=job.order.files)
    corpus = writer.put_fact(job.order.corpus.to_bytes())
    bounds = None if job.bounds is None else writer.put_fact(job.bounds)
    reproduces = None if job.reproduces is None else writer.put("captures", pack(job.reproduces))
    writer.append(
        Captured(
            model=job.model,
            group=job.group,
            side=job.side,
            source="logprobs",
            corpus=corpus,
            bounds=bounds,
            reproduces=reproduces,
        )
    )
    writer.append(inputs.begin())
    sitting.server_line("start")
    await sitting.snapshot("start")
    refused: dict[str, str] = {}
    todo = units(job.order.plan, job.order.corpus.members_of(job.model, job.group), job.side)
    # A wave costs about as much as the rows that it asks for, each sequence's alone.
    costs = [sum(trial.n_probs == "vocabulary" for trial in unit.trials) for unit in todo]
    for number, unit in enumerate(todo):
        if stopped():
            writer.append(Interrupt(reason="stopped by the user"))
            return Done(seal=None, refused=refused)
        condition = f"{job.model} {job.group} {unit.trials[0].condition}"
        progress = Progress(server=sitting.label, condition=condition, done=sum(costs[:number]), total=sum(costs))
        report(progress)
        refused |= await _perform(job, sitting, writer, manifest, unit)
    await sitting.snapshot("end")
    sitting.attested = await attest(sitting.client, writer.put_fact)
    sitting.declaration = writer.put_fact(canonical(declared_by(sitting.target)))
    sitting.server_line("end")
    writer.append(inputs.end())
    writer.append(End(reason="finished"))
    return Done(seal=writer.seal(), refused=refused)


async def _perform(job: Job, sitting: Sitting, writer: _Keeper, manifest: Manifest, unit: Unit) -> dict[str, str]:
    """Send a unit until its evidence is whole, at most as often as the plan allows; return what is refused still."""
    members = job.order.corpus.members_of(job.model, job.group)
    trials = planned(job.order.plan, members, job.side)
    refused: dict[str, str] = {}
    for attempt in range(job.order.plan.attempts):
        writer.begin_unit()
        await sitting.perform(unit, unit.unit, attempt_first=attempt)
        evidence = gather([*writer.servers, *writer.unit], manifest, trials)[sitting.label]
        refused = unit_refusals(
            evidence,
            unit,
            teachers={one.id: one.teacher for one in members},
            vocabulary=job.order.corpus.models[job.model].vocabulary,
        )
        if not refused:
            break
    return refused
