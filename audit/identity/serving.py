"""Runs a build that speaks HTTP: one that we start, or one that runs already.

In go a model and jobs, out come the logprobs of the whole vocabulary as the server reports them, streamed, one row a
step. They are logprobs and not logits: docs/reference/identity.md says what they cannot show. Forced tokens are a
grammar of token ids, under which the reported logprobs stay the model's own.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.client import Address, Client
from audit.errors import DeterminismError, ReplyError, RowsError
from audit.identity.assets import Asset
from audit.identity.plan import IdentityPlan
from audit.identity.record import CaptureFailure, Library
from audit.identity.running import Answer, Job, Outcome, code_path
from audit.local.launch import LaunchSettings
from audit.local.owned import OwnedServer, start_binary, start_embedded
from audit.local.process import file_sha256, mapped_libraries
from audit.request import NEUTRAL, token_grammar
from audit.stream import canonical
from audit.wire import EventSink, Parsed, error_message

__all__ = ["OwnedRunner", "RunningServer"]

# At this level every known build says where it put weights and computation.
_VERBOSITY = 4
_OK = 200
# Wheels of spring 2026 do not end on SIGTERM; everything that was asked has arrived by then.
_GRACE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class OwnedRunner:
    """Starts a build for each model: a binary, or with None the xllamacpp that `environment` leads to."""

    binary: Path | None
    environment: Mapping[str, str]
    logs: Path

    def run(self, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job]) -> Outcome:
        """Start the server, ask, and stop it."""
        deadline = time.monotonic() + plan.timeout_s
        try:
            server = self._start(asset, plan)
        except DeterminismError as error:
            return Outcome(failure=CaptureFailure(kind="start", message=error.message))
        server.grace_s = _GRACE_S
        with server:
            executable = file_sha256(self.binary or Path(sys.executable))
            libraries = _libraries(server)
            answers = asyncio.run(_ask_all(server.url, asset, plan, jobs, deadline))
        path = code_path(server.log_path.read_text(encoding="utf-8", errors="replace"))
        return Outcome(answers=answers, executable=f"sha256:{executable}", libraries=libraries, path=path)

    def _start(self, asset: Asset, plan: IdentityPlan) -> OwnedServer:
        settings = LaunchSettings(
            slots=1,
            ctx_per_slot=plan.ctx,
            batch=plan.batch,
            ubatch=plan.ubatch,
            threads=plan.threads,
            gpu=plan.device != "cpu",
            verbosity=_VERBOSITY,
        )
        if self.binary is None:
            return start_embedded(
                asset.model, settings, deadline_s=plan.timeout_s, log_dir=self.logs, environment=self.environment
            )
        return start_binary(
            self.binary,
            asset.model,
            settings,
            deadline_s=plan.timeout_s,
            log_dir=self.logs,
            environment=self.environment,
        )


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """Asks a server that runs already; it is neither started nor stopped, and says nothing of its code path."""

    url: str

    def run(self, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job]) -> Outcome:
        """Ask the server."""
        deadline = time.monotonic() + plan.timeout_s
        return Outcome(answers=asyncio.run(_ask_all(self.url, asset, plan, jobs, deadline)))


def _libraries(server: OwnedServer) -> list[Library]:
    """Name the mapped libraries; none where the process is gone already."""
    try:
        paths = mapped_libraries(server.pid) or []
        return [Library(name=path.name, sha256=f"sha256:{file_sha256(path)}") for path in paths]
    except (OSError, DeterminismError):
        return []


async def _ask_all(url: str, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job], deadline: float) -> list[Answer]:
    answers = []
    for job in jobs:
        # A server ends a connection that rested while rows were read: docs/decisions/0005-one-client-a-stream.md.
        async with Client(Address(label="build", url=url), timeout_s=plan.timeout_s) as client:
            answers.append(await _ask(client, asset, plan, job, deadline))
    return answers


async def _ask(client: Client, asset: Asset, plan: IdentityPlan, job: Job, deadline: float) -> Answer:
    if time.monotonic() > deadline:
        message = f"not asked: the process had its {plan.timeout_s:g} s"
        return Answer(job=job, failure=CaptureFailure(kind="timeout", message=message))
    sink = EventSink(vocabulary=asset.vocabulary)
    body = canonical({
        **NEUTRAL,
        "cache_prompt": False,
        "grammar": token_grammar(job.forced) if job.forced else "",
        "id_slot": 0,
        "min_p": 0.0,
        "n_predict": plan.rows,
        "n_probs": asset.vocabulary,
        "prompt": list(job.ids),
        "seed": 0,
        "stream": True,
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
    })  # fmt: skip
    exchange = await client.post("/completion", body, sink=sink)
    if exchange.failure is not None:
        kind, message = exchange.failure
        known = {"timeout": "timeout", "stream_error": "reply"}.get(kind, "crash")
        return Answer(job=job, failure=CaptureFailure(kind=known, message=message))  # type: ignore[arg-type]
    if exchange.status != _OK:
        message = f"HTTP {exchange.status}: {error_message(exchange.body)}"
        return Answer(job=job, failure=CaptureFailure(kind="reply", message=message))
    try:
        parsed = sink.finish()
    except RowsError as error:
        return Answer(job=job, failure=CaptureFailure(kind="rows", message=error.message))
    except ReplyError as error:
        return Answer(job=job, failure=CaptureFailure(kind="reply", message=error.message))
    return _checked(job, plan, parsed)


def _checked(job: Job, plan: IdentityPlan, parsed: Parsed) -> Answer:
    """Refuse a reply to another request than the one that was sent."""
    evaluated, reused = parsed.last.tokens_evaluated, parsed.timings.cache_n
    problem = None
    if evaluated != len(job.ids) or reused not in (0, None) or parsed.last.truncated:
        problem = f"{evaluated} of {len(job.ids)} tokens evaluated, {reused} from the cache"
    elif len(parsed.tokens) != plan.rows:
        problem = f"{len(parsed.tokens)} of {plan.rows} tokens"
    elif job.forced and parsed.tokens != job.forced:
        return Answer(job=job, failure=CaptureFailure(kind="forced", message="other tokens than the forced ones"))
    if problem is not None:
        return Answer(job=job, failure=CaptureFailure(kind="reply", message=problem))
    return Answer(job=job, tokens=parsed.tokens, rows=parsed.rows)
