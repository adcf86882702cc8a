"""What a reply said, kept: its stream or rows go into the store, its facts into the shape of a history line.

In goes a parsed reply with its trial, out comes a `Reply`. Nothing is sent here and nothing is judged.
"""

from collections.abc import Sequence

from audit.errors import ReplyError
from audit.plan import Plan
from audit.record import Joined, Reply, RowsFact
from audit.rows import Rows
from audit.server import last_component
from audit.store import RunWriter
from audit.stream import Step, Stream, canonical, text_digest, token_digest
from audit.trial import Trial
from audit.wire import Parsed

__all__ = ["keep_reply"]

MS_PER_S = 1000.0


def keep_reply(parsed: Parsed, trial: Trial, joined: Sequence[Parsed], *, plan: Plan, writer: RunWriter) -> Reply:
    """Store what a reply said and return its facts.

    Args:
        parsed: the reply.
        trial: what was asked.
        joined: on the last request of `prefixes` the replies of all its requests, else empty.
        plan: the plan of the run.
        writer: the store.

    Raises: ReplyError where the server claims to have worked longer than any reply may take.
    """
    for spent_ms in (parsed.timings.prompt_ms, parsed.timings.predicted_ms):
        if spent_ms is not None and not 0 <= spent_ms <= plan.timeout_s * MS_PER_S:
            raise ReplyError(f"the timings say {spent_ms!r} ms, of at most {plan.timeout_s:g} s that a reply may take")
    last, timings = parsed.last, parsed.timings
    n_probs = 0 if trial.n_probs == "none" else plan.n_probs
    rows = None if parsed.rows is None else Rows(parsed.rows)
    logprob = holes = None
    if rows is None:
        stream = Stream(n_probs, parsed.steps)
        logprob, holes = writer.put("streams", stream.to_bytes()), stream.holes
    return Reply(
        logprob=logprob,
        token=token_digest(parsed.tokens),
        steps=len(parsed.tokens),
        holes=holes or 0,
        rows=None
        if rows is None
        else RowsFact(file=writer.put("rows", rows.to_bytes()), shape=rows.shape, digests=list(rows.digests)),
        joined=_joined(writer, n_probs, joined) if joined else None,
        settings=None if last.generation_settings is None else writer.put_fact(canonical(last.generation_settings)),
        prompt_echo=None if last.prompt is None else text_digest(last.prompt),
        model=None if last.model is None else last_component(last.model),
        id_slot=last.id_slot,
        tokens_evaluated=last.tokens_evaluated,
        tokens_predicted=last.tokens_predicted,
        cache_n=timings.cache_n,
        prompt_n=timings.prompt_n,
        prompt_ms=timings.prompt_ms,
        predicted_n=timings.predicted_n,
        predicted_ms=timings.predicted_ms,
        draft_n=timings.draft_n,
        truncated=last.truncated,
        stop_type=last.stop_type,
        above_zero=parsed.above_zero,
        saturated=parsed.saturated,
    )


def _joined(writer: RunWriter, n_probs: int, replies: Sequence[Parsed]) -> Joined:
    steps: tuple[Step, ...] = tuple(step for reply in replies for step in reply.steps)
    stream = Stream(n_probs, steps)
    return Joined(
        logprob=writer.put("streams", stream.to_bytes()),
        token=stream.token_digest,
        steps=len(steps),
        holes=stream.holes,
    )
