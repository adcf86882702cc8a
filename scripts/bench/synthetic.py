"""Make a sealed run of so many attempts that no server ever answered: the input of the benches that only read.

    python -m scripts.bench.synthetic FOLDER [--attempts 1000]

In: how many attempts. Out: a run folder, written by the store of the audit line by line, that both programs judge like
any other; nine tenths of its trials stand in waves of 32. It is no evidence and says so: program, build and model are
called synthetic. Half of the members of each wave carry a stream that one float32 sets apart from the baseline's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np

from audit.machine import dependencies, machine, python
from audit.plan import Plan, seed
from audit.record import (
    Attested,
    Complete,
    End,
    Invoke,
    Manifest,
    Process,
    PromptFact,
    Reply,
    RowsFact,
    ServerEntry,
    ServerLine,
    Snapshot,
    Wave,
    to_bytes,
)
from audit.request import NEUTRAL, request_body
from audit.rows import Rows
from audit.store import RunWriter
from audit.stream import FORMAT, Step, Stream, canonical, digest, text_digest, token_digest
from audit.trial import Trial, Unit

__all__ = ["LEVEL", "plan_of", "synthesize"]

LEVEL = 32
STEPS, N_PROBS, VOCABULARY = 8, 10, 64
LABEL = "synthetic"
PROMPTS = {"a": PromptFact(ids=[1, 2, 3], text="Once upon a time"), "b": PromptFact(ids=[4, 5], text="Twice")}
# What a reply needs at least, so that its processing window lies between first and last byte.
WORK_NS = 4_000


def plan_of(attempts: int) -> Plan:
    """Return a plan of about so many attempts: baselines, canaries and controls come on top."""
    waves = attempts * 9 // (10 * LEVEL)
    return Plan.parse({
        "name": LABEL,
        "steps": STEPS,
        "n_probs": N_PROBS,
        "canary": {"prompt": "a"},
        "prompts": {name: {"text": fact.text} for name, fact in PROMPTS.items()},
        "conditions": [
            {"name": "repeat_greedy", "prompts": ["a"], "count": max(1, attempts - waves * LEVEL)},
            *([{"name": "concurrent_greedy", "prompts": ["a"], "levels": [LEVEL], "count": waves}] if waves else []),
            {"name": "control_prompt", "prompts": ["a", "b"]},
            {"name": "control_seed", "prompts": ["a"], "count": 3},
            {"name": "control_temperature", "prompts": ["a"]},
        ],
    })  # fmt: skip


def stream_of(variant: int, first: int) -> Stream:
    """Return a stream of float32 logprobs whose tokens begin at `first`; a variant above 0 differs by one float32."""
    steps = []
    for index in range(STEPS):
        falling = [np.float32(-0.5 - 0.25 * rank - 0.01 * index) for rank in range(N_PROBS)]
        if variant and index == variant % STEPS:
            falling[-1] = np.nextafter(falling[-1], np.float32(-9 if variant < STEPS else 0), dtype=np.float32)
        top = tuple(((first + index + rank) % VOCABULARY, float(value)) for rank, value in enumerate(falling))
        steps.append(Step(top[0][0], top[0][1], top))
    return Stream(N_PROBS, tuple(steps))


@dataclass
class _Synthesis:
    """Writes the lines of one server that does not exist, and counts what it would have counted."""

    plan: Plan
    writer: RunWriter
    requests: dict[tuple[object, ...], str] = field(default_factory=dict)
    settings: dict[tuple[str, int], str] = field(default_factory=dict)
    streams: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    prompt_tokens: int = 0
    predicted_tokens: int = 0
    decodes: int = 0
    busy: int = 0

    @cached_property
    def registered(self) -> str:
        """The registered digest: that of the plan."""
        return digest(self.plan.to_bytes())

    @cached_property
    def attested(self) -> Attested:
        """Who the server would be."""
        return Attested(
            build_info=LABEL,
            model=f"{LABEL}.gguf",
            models=self.writer.put_fact(canonical({"data": []})),
            n_ctx=4096,
            process=Process(start=None, media_marker=LABEL),
            props=self.writer.put_fact(canonical({"build_info": LABEL, "total_slots": LEVEL})),
            server_header=None,
            slots=LEVEL,
            vocabulary=VOCABULARY,
        )

    def manifest(self) -> Manifest:
        """Return the manifest, which says what this is."""
        return Manifest(
            format=FORMAT,
            kind="audit",
            plan=self.registered,
            registered=self.registered,
            registration=None,
            program={"name": "scripts.bench.synthetic", "version": LABEL, "commit": None, "dirty": None},
            dependencies=dependencies(),
            python=python(),
            machine=machine(),
            servers=[ServerEntry(label=LABEL, owned=False, attested=self.attested, declaration=None)],
            prompts={LABEL: {name: self.writer.put_fact(to_bytes(fact)) for name, fact in PROMPTS.items()}},
        )

    def server(self, phase: str) -> None:
        """Say who the server is."""
        self.writer.append(ServerLine(server=LABEL, phase=phase, attested=self.attested, declaration=None))  # type: ignore[arg-type]

    def snapshot(self, when: str, unit: str | None) -> None:
        """Say what the server is doing, which is nothing."""
        counted = {
            "n_busy_slots_per_decode": self.busy / self.decodes if self.decodes else 0.0,
            "n_decode_total": self.decodes,
            "prompt_tokens_cached_total": 0,
            "prompt_tokens_total": self.prompt_tokens,
            "requests_deferred": 0,
            "requests_processing": 0,
            "tokens_predicted_total": self.predicted_tokens,
        }
        self.writer.append(
            Snapshot(
                server=LABEL,
                unit=unit,
                attempt=0,
                when=when,  # type: ignore[arg-type]
                health=200 if unit is None else None,
                slots=[(slot, False, 3) for slot in range(LEVEL)],
                metrics={name: f"{value:.6g}" for name, value in counted.items()},
                props=self.attested.props,
                process=self.attested.process,
            )
        )

    def perform(self, unit: Unit) -> None:
        """Write a unit as the audit would have."""
        self.snapshot("before", unit.unit)
        if unit.wave:
            members = [trial.trial for trial in unit.trials]
            delays_ns = [0] * len(members)
            self.writer.append(Wave(server=LABEL, unit=unit.unit, attempt=0, members=members, delays_ns=delays_ns))
        for trial in unit.trials:
            self.writer.append(
                Invoke(
                    server=LABEL,
                    trial=trial.trial,
                    unit=unit.unit,
                    attempt=0,
                    part=0,
                    request=self.request(trial),
                    slot=trial.slot,
                )
            )
        sent_ns = time.monotonic_ns()
        while time.monotonic_ns() < sent_ns + WORK_NS:
            pass
        since = self.writer.since_anchor(sent_ns)
        for member, trial in enumerate(unit.trials):
            reply = self.reply(trial, member)
            self.prompt_tokens += reply.prompt_n or 0
            self.predicted_tokens += reply.steps
            self.writer.append(
                Complete(
                    server=LABEL,
                    trial=trial.trial,
                    unit=unit.unit,
                    attempt=0,
                    part=0,
                    sent_ns=since,
                    first_byte_ns=since + WORK_NS // 2,
                    last_byte_ns=since + WORK_NS,
                    status=200,
                    failure=None,
                    reply=reply,
                )
            )
        self.decodes += STEPS
        self.busy += STEPS * len(unit.trials)
        self.snapshot("after", unit.unit)

    def request(self, trial: Trial) -> str:
        """Return the digest of a trial's request, which is stored once."""
        key = (trial.prompt, trial.slot, trial.seed_group, trial.sampling, trial.n_probs)
        if key not in self.requests:
            ids = PROMPTS[trial.prompt].ids
            body = request_body(
                self.plan, trial, registered=self.registered, prompt=ids, vocabulary=VOCABULARY, forced=()
            )
            self.requests[key] = self.writer.put_fact(body)
        return self.requests[key]

    def echo(self, trial: Trial) -> str:
        """Return the digest of the settings that a server would echo."""
        key = (trial.sampling, seed(self.registered, trial.seed_group))
        if key not in self.settings:
            temperature = {"greedy": 0.0, "sampled": 1.0, "control": self.plan.control_temperature}[trial.sampling]
            echoed = {**NEUTRAL, "seed": key[1], "temperature": temperature, "max_tokens": trial.steps}
            self.settings[key] = self.writer.put_fact(canonical(echoed))
        return self.settings[key]

    def said(self, trial: Trial, member: int) -> tuple[str, str]:
        """Return the digests of a trial's stream and of its tokens."""
        first = {"greedy": 0, "sampled": 20, "control": 30}[trial.sampling] + 10 * (trial.prompt == "b")
        if trial.condition == "control_seed":
            first += 20 + int(trial.trial.rpartition("/")[2])
        key = (member if member >= LEVEL // 2 else 0, first)
        if key not in self.streams:
            stream = stream_of(*key)
            self.streams[key] = (self.writer.put("streams", stream.to_bytes()), stream.token_digest)
        return self.streams[key]

    def reply(self, trial: Trial, member: int) -> Reply:
        """Return what a reply would have said."""
        rows = logprob = None
        if trial.role == "canary":
            values = np.linspace(-9, -1, trial.steps * VOCABULARY, dtype=np.float32).reshape(trial.steps, VOCABULARY)
            stored = Rows(values)
            file = self.writer.put("rows", stored.to_bytes())
            rows = RowsFact(file=file, shape=stored.shape, digests=list(stored.digests))
            token = token_digest(range(trial.steps))
        else:
            logprob, token = self.said(trial, member)
        prompt = PROMPTS[trial.prompt]
        return Reply(
            logprob=logprob,
            token=token,
            steps=trial.steps,
            holes=0,
            rows=rows,
            joined=None,
            settings=self.echo(trial),
            prompt_echo=text_digest(prompt.text),
            model=f"{LABEL}.gguf",
            id_slot=trial.slot,
            tokens_evaluated=len(prompt.ids),
            tokens_predicted=trial.steps,
            cache_n=0,
            prompt_n=len(prompt.ids),
            prompt_ms=WORK_NS / 4e6,
            predicted_n=trial.steps,
            predicted_ms=WORK_NS / 4e6,
            draft_n=None,
            truncated=False,
            stop_type="limit",
            above_zero=0,
            saturated=0,
        )


def _units(plan: Plan, registered: str) -> Iterator[Unit]:
    for block in plan.unfold(registered):
        yield from block.units


def synthesize(folder: Path, attempts: int) -> Path:
    """Write and seal a run of about so many attempts, and return its folder."""
    plan = plan_of(attempts)
    with patch("os.fsync"):  # nothing made here has to outlive a power cut
        writer = RunWriter(folder)
        one = _Synthesis(plan, writer)
        writer.begin(one.manifest(), plan=plan.to_bytes(), registration={})
        one.server("start")
        one.snapshot("start", None)
        for unit in _units(plan, one.registered):
            one.perform(unit)
        one.snapshot("end", None)
        one.server("end")
        writer.append(End(reason="finished"))
        writer.seal()
    return folder


def main(words: Sequence[str] | None = None) -> int:
    """Make one folder."""
    parser = argparse.ArgumentParser(description="Make a run of so many attempts that no server ever answered.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attempts", type=int, default=1000)
    options = parser.parse_args(words)
    print(synthesize(options.folder, options.attempts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
