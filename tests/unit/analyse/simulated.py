"""A record without a server: every unit of a plan, with facts as a well-behaved server would have left them.

`Subject.write` walks a plan and writes its history with the real writer; a test then changes a reply, a counter or a
stream, and looks at what the findings say. Solo requests take 20 ms of prefill and 80 ms of decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from audit.plan import Plan
from audit.record import (
    Attested,
    Complete,
    End,
    Failure,
    Invoke,
    Joined,
    Manifest,
    Process,
    PromptFact,
    Registration,
    Reply,
    RowsFact,
    ServerEntry,
    ServerLine,
    Skip,
    Snapshot,
    Wave,
    to_bytes,
)
from audit.request import request_body
from audit.rows import Rows
from audit.store import Run, RunWriter
from audit.stream import Step, Stream, canonical, digest, text_digest, token_digest
from audit.trial import Block, Trial, Unit

MS = 1_000_000
VOCABULARY = 16
PREFILL_MS, DECODE_MS = 20.0, 80.0
Edit = Callable[[dict[str, Any]], None]


def moved(stream: Stream, step: int, *, token: int | None = None) -> Stream:
    """Move the own logprob of a step, the first of its top-k, by one float32, or give the step another token."""
    old = stream.steps[step]
    assert old.logprob is not None
    value = float(np.nextafter(np.float32(old.logprob), np.float32(0), dtype=np.float32))
    new = old._replace(logprob=value, top=((old.token, value), *old.top[1:]))
    if token is not None:
        others = tuple((old.token if name == token else name, logprob) for name, logprob in old.top[1:])
        new = old._replace(token=token, top=((token, old.logprob), *others))
    return stream._replace(steps=(*stream.steps[:step], new, *stream.steps[step + 1 :]))


def with_hole(stream: Stream, step: int) -> Stream:
    """Take the entry of a step away."""
    hole = stream.steps[step]._replace(logprob=None, top=())
    return stream._replace(steps=(*stream.steps[:step], hole, *stream.steps[step + 1 :]))


@dataclass(kw_only=True)
class Subject:
    """One made-up server, and what is to go wrong with it.

    `streams` replaces the stream of a trial, `replies` edits the facts of a trial's reply, `failing` are trials whose
    request fails, `snapshots` edits the snapshots of a unit, `twice` are units that are tried twice.
    """

    plan: Plan
    label: str = "a"
    slots: int = 4
    owned: bool = True
    streams: dict[str, Callable[[Stream], Stream]] = field(default_factory=dict)
    replies: dict[str, Edit] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    snapshots: dict[tuple[str, str], Edit] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    canary_moves: bool = False
    metrics: bool = True
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("prompt", "made", "decodes", "busy"), 0))
    process: int = 1
    now_ns: int = 0
    held: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def prompt(self, key: str) -> PromptFact:
        """Return 70 token ids that no other prompt has, and their text."""
        return PromptFact(ids=[sum(key.encode()) % 7, *range(1, 70)], text=f"the text of {key}")

    def stream(self, trial: Trial, block: str) -> Stream:
        """Return what the server says: it depends on the prompt and on how it is sampled, and on nothing else."""
        key = self.plan.prompt_key(trial, block)
        kind = {"greedy": "", "sampled": trial.seed_group, "control": trial.trial}[trial.sampling]
        seed = int.from_bytes(digest(f"{key} {kind}".encode()).encode()[7:15], "big")
        random = np.random.default_rng(seed)
        values = random.uniform(-3, -1, size=(trial.steps, 3)).astype(np.float32)
        tokens = random.integers(VOCABULARY, size=trial.steps).tolist()
        steps = []
        for token, row in zip(tokens, values, strict=True):
            ranked = sorted((float(value) for value in row), reverse=True)
            top = tuple(((token + rank) % VOCABULARY, value) for rank, value in enumerate(ranked))
            steps.append(Step(token, ranked[0], top))
        stream = Stream(3, tuple(steps))
        if trial.n_probs == "none":
            stream = Stream(0, tuple(Step(step.token, None, ()) for step in steps))
        return self.streams[trial.trial](stream) if trial.trial in self.streams else stream

    def attested(self) -> Attested:
        """Return what the server says about itself."""
        return Attested(
            build_info="b1",
            model="m.gguf",
            models=digest(b"models"),
            n_ctx=1024,
            process=self.who(),
            props=digest(b"props"),
            server_header="llama.cpp",
            slots=self.slots,
            vocabulary=VOCABULARY,
        )

    def who(self) -> Process:
        """Return the present process."""
        return Process(start=str(self.process), media_marker=f"marker {self.process}")


class Recorder:
    """Writes the history of one run."""

    def __init__(self, folder: Path, subjects: list[Subject], registration: dict[str, bytes] | None = None) -> None:
        plan = subjects[0].plan
        self.writer = RunWriter(folder)
        self.registered = digest(plan.to_bytes())
        self.blocks = plan.unfold(self.registered)
        self.subjects = subjects
        self.requests_sent: dict[str, bytes] = {}
        keys = {
            plan.prompt_key(trial, block.block): None
            for block in self.blocks
            for unit in block.units
            for trial in unit.trials
        }
        prompts = {
            subject.label: {key: self.writer.put_fact(to_bytes(subject.prompt(key))) for key in keys}
            for subject in subjects
        }
        manifest = Manifest(
            format=1,
            kind="audit",
            plan=digest(plan.to_bytes()),
            registered=self.registered,
            registration=None
            if registration is None
            else Registration(name="study", digest=self.registered, files={}, commit=None, status="registered"),
            program={"name": "determinism", "version": "0", "commit": None, "dirty": None},
            dependencies={},
            python="3",
            machine={},
            servers=[
                ServerEntry(label=s.label, owned=s.owned, attested=s.attested(), declaration=None) for s in subjects
            ],
            prompts=prompts,
        )
        self.writer.begin(manifest, plan=plan.to_bytes(), registration=registration or {})

    def write(self) -> Run:
        """Write everything and seal it."""
        for subject in self.subjects:
            self.server_line(subject, "start")
            for block in self.blocks:
                for unit in block.units:
                    self.unit(subject, unit, block)
            self.server_line(subject, "end")
        self.writer.append(End(reason="finished"))
        self.writer.seal()
        return Run.open(self.writer.folder)

    def server_line(self, subject: Subject, phase: Literal["start", "restart", "end"]) -> None:
        """Write who the server is."""
        line = ServerLine(server=subject.label, phase=phase, attested=subject.attested(), declaration=None)
        self.writer.append(line)

    def unit(self, subject: Subject, unit: Unit, block: Block) -> None:
        """Write one unit, or why it is not sent."""
        reason: Literal["slots", "not owned"] | None = None
        if unit.slots_needed > subject.slots:
            reason = "slots"
        elif not subject.owned and (unit.restart or unit.trials[0].condition == "first_request"):
            reason = "not owned"
        if reason is not None:
            line = Skip(server=subject.label, unit=unit.unit, reason=reason, needed=None, available=None)
            self.writer.append(line)
            return
        for attempt in range(2 if unit.unit in subject.twice else 1):
            if unit.restart:
                subject.process += 1
                subject.counters = dict.fromkeys(subject.counters, 0)
                self.server_line(subject, "restart")
            self.snapshot(subject, unit, attempt, "before")
            if unit.wave:
                names = [trial.trial for trial in unit.trials]
                delays = [0] * len(names)
                self.writer.append(
                    Wave(server=subject.label, unit=unit.unit, attempt=attempt, members=names, delays_ns=delays)
                )
            last = attempt == int(unit.unit in subject.twice)
            self.requests(subject, unit, block, attempt, failing=subject.failing if last else set(names_of(unit)))
            self.snapshot(subject, unit, attempt, "after")

    def snapshot(self, subject: Subject, unit: Unit, attempt: int, when: Literal["before", "after"]) -> None:
        """Write what the server is doing."""
        counted = subject.counters
        values: dict[str, Any] = {
            "server": subject.label,
            "unit": unit.unit,
            "attempt": attempt,
            "when": when,
            "health": None,
            "slots": [(slot, False, subject.held.get(slot, 0)) for slot in range(subject.slots)],
            "metrics": {
                "n_busy_slots_per_decode": f"{counted['busy'] / max(1, counted['decodes']):.6g}",
                "n_decode_total": f"{counted['decodes']:.6g}",
                "prompt_tokens_cached_total": None,
                "prompt_tokens_total": f"{counted['prompt']:.6g}",
                "requests_deferred": "0",
                "requests_processing": "0",
                "tokens_predicted_total": f"{counted['made']:.6g}",
            },
            "props": digest(b"props"),
            "process": subject.who(),
        }
        if not subject.metrics:
            values["metrics"] = None
        if (unit.unit, when) in subject.snapshots:
            subject.snapshots[unit.unit, when](values)
        self.writer.append(Snapshot(**values))

    def requests(self, subject: Subject, unit: Unit, block: Block, attempt: int, *, failing: set[str]) -> None:
        """Write the requests of a unit and their replies."""
        if not unit.wave:
            trial = unit.trials[0]
            for part in range(trial.steps if trial.form == "prefixes" else 1):
                where = (unit, block, attempt, part)
                self.invoke(subject, trial, where)
                subject.now_ns += 100 * MS
                self.complete(subject, trial, where, slot=trial.slot, end_ns=subject.now_ns, failing=failing)
            return
        begin_ns = subject.now_ns
        for trial in unit.trials:
            self.invoke(subject, trial, (unit, block, attempt, 0))
        for member, trial in enumerate(unit.trials):
            turn, slot = divmod(member, subject.slots)
            delay_ms = 40 if unit.staggered and member else 100 * turn
            end_ns = begin_ns + (100 + delay_ms) * MS + (member + 3 * turn) * MS // 10
            subject.now_ns = max(subject.now_ns, end_ns)
            self.complete(
                subject,
                trial,
                (unit, block, attempt, 0),
                slot=slot,
                end_ns=end_ns,
                failing=failing,
                busy=len(unit.trials),
            )

    def invoke(self, subject: Subject, trial: Trial, where: tuple[Unit, Block, int, int]) -> None:
        """Write that a request is about to be sent."""
        unit, block, attempt, part = where
        reference = subject.tokens.get(trial.reference or "", ())
        ids = subject.prompt(subject.plan.prompt_key(trial, block.block)).ids
        body = request_body(
            subject.plan,
            trial,
            registered=self.registered,
            prompt=ids[: len(ids) // 2] if trial.half_prompt else [*ids, *reference[:part]],
            vocabulary=VOCABULARY,
            forced=reference,
        )
        self.requests_sent[trial.trial] = body
        self.writer.append(
            Invoke(
                server=subject.label,
                trial=trial.trial,
                unit=unit.unit,
                attempt=attempt,
                part=part,
                request=self.writer.put_fact(body),
                slot=trial.slot,
            )
        )

    def complete(
        self,
        subject: Subject,
        trial: Trial,
        where: tuple[Unit, Block, int, int],
        *,
        slot: int,
        end_ns: int,
        failing: set[str],
        busy: int = 1,
    ) -> None:
        """Write what became of a request."""
        unit, block, attempt, part = where
        failure, reply = None, None
        if trial.trial in failing:
            failure = Failure(kind="timeout", message="no answer", body=None)
        else:
            reply = self.reply(subject, trial, block, part, slot)
            subject.counters["prompt"] += reply.prompt_n or 0
            subject.counters["made"] += reply.predicted_n or 0
            # Each member of a wave brings its share of the decodes, during which as many slots are busy as fit.
            share = min(busy, subject.slots)
            subject.counters["decodes"] += trial.steps / share
            subject.counters["busy"] += trial.steps
        self.writer.append(
            Complete(
                server=subject.label,
                trial=trial.trial,
                unit=unit.unit,
                attempt=attempt,
                part=part,
                sent_ns=end_ns - 101 * MS,
                first_byte_ns=end_ns,
                last_byte_ns=end_ns,
                status=None if failure else 200,
                failure=failure,
                reply=reply,
            )
        )

    def reply(self, subject: Subject, trial: Trial, block: Block, part: int, slot: int) -> Reply:
        """Return the facts of a reply."""
        key = subject.plan.prompt_key(trial, block.block)
        whole = subject.stream(trial, block.block)
        if trial.form == "forced":
            whole = subject.stream(msgspec.structs.replace(trial, form="plain"), block.block)
        stream = whole._replace(steps=whole.steps[part : part + 1]) if trial.form == "prefixes" else whole
        joined = trial.form == "prefixes" and part == trial.steps - 1
        length = 70 + part if not trial.half_prompt else 35
        cached = self.cached(trial, length)
        subject.held[slot] = length + trial.steps
        if trial.role == "baseline":
            subject.tokens[trial.trial] = whole.tokens
        values: dict[str, Any] = {
            "logprob": None if trial.role == "canary" else self.writer.put("streams", stream.to_bytes()),
            "token": stream.token_digest,
            "steps": len(stream.steps),
            "holes": stream.holes,
            "rows": self.rows(subject, trial) if trial.role == "canary" else None,
            "joined": Joined(
                logprob=self.writer.put("streams", whole.to_bytes()),
                token=token_digest(whole.tokens),
                steps=len(whole.steps),
                holes=whole.holes,
            )
            if joined
            else None,
            "settings": self.writer.put_fact(canonical(self.echo(trial))),
            "prompt_echo": text_digest(subject.prompt(key).text),
            "model": "m.gguf",
            "id_slot": slot,
            "tokens_evaluated": length,
            "tokens_predicted": len(stream.steps),
            "cache_n": cached,
            "prompt_n": length - cached,
            "prompt_ms": PREFILL_MS,
            "predicted_n": len(stream.steps),
            "predicted_ms": DECODE_MS,
            "draft_n": None,
            "truncated": False,
            "stop_type": "limit",
            "above_zero": 0,
            "saturated": 0,
        }
        if trial.trial in subject.replies:
            subject.replies[trial.trial](values)
        return Reply(**values)

    def cached(self, trial: Trial, length: int) -> int:
        """Return how many tokens the cache gives."""
        by_condition = {"cache_cold": 1, "cache_warm1": length - 1, "cache_warm2": length - 1, "cache_prefix": 35}
        return by_condition.get(trial.condition, 0) if trial.role == "measured" else 0

    def rows(self, subject: Subject, trial: Trial) -> RowsFact:
        """Store rows; those of the last canary differ where they shall."""
        values = np.linspace(-4, -1, trial.steps * VOCABULARY, dtype=np.float32).reshape(trial.steps, VOCABULARY)
        if subject.canary_moves and trial.trial == "canary/last":
            values = values.copy()
            values[0, 0] -= 1
        rows = Rows(values)
        return RowsFact(file=self.writer.put("rows", rows.to_bytes()), shape=rows.shape, digests=list(rows.digests))

    def echo(self, trial: Trial) -> dict[str, Any]:
        """Return the settings as a server repeats them: floats as float32, its own logit biases, no prompt."""
        sent = msgspec.json.decode(self.requests_sent[trial.trial])
        kept = {key: value for key, value in sent.items() if key not in {"prompt", "id_slot", "cache_prompt"}}
        rounded = {key: float(np.float32(value)) if isinstance(value, float) else value for key, value in kept.items()}
        extra = {"logit_bias": [{"bias": None, "token": 0}], "speculative.types": "none", "lora": []}
        return {**rounded, **extra, "max_tokens": sent["n_predict"]}


def names_of(unit: Unit) -> list[str]:
    """Return the names of a unit's trials."""
    return [trial.trial for trial in unit.trials]


def write(folder: Path, *subjects: Subject, registration: dict[str, bytes] | None = None) -> Run:
    """Write a sealed run of these servers."""
    return Recorder(folder, list(subjects), registration).write()


PROMPTS: dict[str, Any] = {
    "p": {"text": "p"},
    "q": {"text": "q"},
    "o": {"text": "o"},
    "cached": {"text": "{block} cached"},
}


def plan_of(*conditions: dict[str, Any], **changes: object) -> Plan:
    """Make a plan of 8 steps."""
    values = {
        "name": "simulated",
        "steps": 8,
        "n_probs": 3,
        "canary": {"prompt": "p"},
        "prompts": PROMPTS,
        "conditions": [{"prompts": ["p"], **condition} for condition in conditions],
        **changes,
    }
    return Plan.parse(values)


CONTROLS: tuple[dict[str, Any], ...] = (
    {"name": "control_prompt", "prompts": ["p", "q"]},
    {"name": "control_seed", "count": 3},
    {"name": "control_temperature"},
)
EVERYTHING: tuple[dict[str, Any], ...] = (
    {"name": "first_request", "count": 2},
    {"name": "repeat_greedy", "prompts": ["p", "q"], "count": 3},
    {"name": "repeat_seeded", "count": 2},
    {"name": "other_slot", "levels": [4]},
    {"name": "concurrent_greedy", "prompts": ["p", "q"], "count": 2, "levels": [2, 4], "again": 1},
    {"name": "concurrent_seeded", "count": 2, "levels": [2], "again": 1},
    {"name": "oversubscribed", "levels": [6]},
    {"name": "cross_batch_together", "neighbours": ["p", "q", "o"]},
    {"name": "cross_batch_staggered", "neighbours": ["q", "o"]},
    {"name": "cache", "prompts": ["cached"], "count": 2, "opener": "o"},
    {"name": "cache_prefix", "prompts": ["cached"], "opener": "o"},
    {"name": "idle_neighbour", "neighbours": ["q"]},
    {"name": "prefill_vs_decode"},
    {"name": "stream_vs_whole"},
    {"name": "without_logprobs"},
    {"name": "restart", "count": 2},
    *CONTROLS,
)
