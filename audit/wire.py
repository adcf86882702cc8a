"""llama-server's replies as typed structs: the one place that knows the wire's dialects.

In go raw bodies (whole, or the chunks of an event stream), out comes a `Parsed` reply: steps or rows, and the facts
beside them. A reply that cannot be read as what was asked is a ReplyError; missing data is marked and never made up.
This module opens no connection and judges nothing.
"""

import math
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from audit.errors import EvidenceError, ReplyError, RowsError
from audit.events import Data, EventReader
from audit.rows import row_of
from audit.stream import Step

__all__ = [
    "ABOVE_ZERO_NATS_MAX",
    "SENTINEL",
    "Completion",
    "Entry",
    "EventSink",
    "Parsed",
    "decode",
    "error_message",
    "read_events",
    "read_whole",
]

# What the server writes for a probability of 0: the lowest float32.
SENTINEL = -3.4028234663852886e38
# The softmax sum runs in float32, so that a logprob may come out just above 0; up to here it is kept and counted.
ABOVE_ZERO_NATS_MAX = 1e-3
# What a record holds: whole numbers of 64 bits, and no deeper nesting than any server has use for.
INT_MAX = 2**63 - 1
DEPTH_MAX = 64

_ID, _LOGPROB = attrgetter("id"), attrgetter("logprob")
_Int = Annotated[int, msgspec.Meta(ge=-INT_MAX, le=INT_MAX)]


class Top(msgspec.Struct, frozen=True, gc=False):
    """One entry of a top-k."""

    id: _Int
    logprob: float | None = None


class Entry(msgspec.Struct, frozen=True):
    """One entry of `completion_probabilities`; `prob` is there only in the post-sampling dialect."""

    id: _Int
    logprob: float | None = None
    top_logprobs: list[Top] = []
    prob: float | None = None


class Timings(msgspec.Struct, frozen=True):
    """The server's own counts and times, in milliseconds."""

    cache_n: _Int | None = None
    prompt_n: _Int | None = None
    prompt_ms: float | None = None
    predicted_n: _Int | None = None
    predicted_ms: float | None = None
    draft_n: _Int | None = None


class Completion(msgspec.Struct, frozen=True):
    """A whole reply, or one event of a streamed one."""

    tokens: list[_Int] | None = None
    stop: bool | None = None
    id_slot: _Int | None = None
    model: str | None = None
    tokens_predicted: _Int | None = None
    tokens_evaluated: _Int | None = None
    generation_settings: dict[str, Any] | None = None
    prompt: str | None = None
    truncated: bool | None = None
    stop_type: str | None = None
    timings: Timings | None = None
    completion_probabilities: list[Entry] | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True)
class Parsed:
    """One reply, read.

    `steps` is empty where rows were asked for; `tokens` are the sampled ids; `rows` holds logprobs in nats, shape
    (steps, vocabulary), float32.
    """

    last: Completion
    tokens: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    rows: NDArray[np.float32] | None = None
    above_zero: int = 0
    saturated: int = 0

    @property
    def timings(self) -> Timings:
        """The timings, all None where the server sent none."""
        return self.last.timings or Timings()


_COMPLETION = msgspec.json.Decoder(Completion)


def decode(body: bytes, *, what: str) -> Any:  # noqa: ANN401 - any JSON value
    """Decode a JSON body strictly.

    Raises: ReplyError that shows how the body begins.
    """
    try:
        value = msgspec.json.decode(body)
        _check_bounds(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReplyError(f"{what} is not the JSON of a llama-server: {error}: it begins {body[:60]!r}") from error
    return value


def _check_bounds(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Refuse what no record could hold with a ReplyError, without recursion."""
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, int) and abs(one) > INT_MAX:
            raise ReplyError("a whole number needs more than 64 bits")
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if inner and depth == DEPTH_MAX:
            raise ReplyError(f"lists and objects are nested deeper than {DEPTH_MAX}")
        waiting += [(item, depth + 1) for item in inner]


def _completion(body: Data) -> Completion:
    try:
        reply = _COMPLETION.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReplyError(f"a completion cannot be read: {error}: it begins {bytes(body[:60])!r}") from error
    _check_bounds([reply.generation_settings, reply.error])
    if reply.error is not None:
        raise ReplyError(f"the server reports an error: {reply.error.get('message', reply.error)!r:.300}")
    return reply


def error_message(body: bytes) -> str:
    """Return what an error body says, or how it begins, in one line."""
    try:
        value = msgspec.json.decode(body)
        return " ".join(str(value["error"]["message"]).split())[:300]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError):
        return repr(body[:120])


@dataclass
class _Counts:
    above_zero: int = 0
    saturated: int = 0

    def logprob(self, value: float | None) -> float | None:
        """Count an unusual logprob; a number that is no logprob at all refuses the reply."""
        if value is None or not math.isfinite(value):
            return None
        if value > ABOVE_ZERO_NATS_MAX:
            raise ReplyError(f"a logprob of {value!r} is above zero")
        self.above_zero += value > 0
        self.saturated += value in (0.0, SENTINEL)
        return value


def _step(entry: Entry, counts: _Counts) -> Step:
    if entry.prob is not None:
        raise ReplyError("the reply holds post-sampling probabilities (`prob`), which are no logprobs")
    top = tuple((item.id, counts.logprob(item.logprob)) for item in entry.top_logprobs)
    return Step(entry.id, counts.logprob(entry.logprob), top)


def _aligned(tokens: list[int], entries: list[Entry], counts: _Counts) -> tuple[Step, ...]:
    """Give each token its entry.

    A token at which the text ends inside a UTF-8 character has no entry in llama-server's reply. Entries are taken in
    order by id, and a token without one is a hole.
    """
    steps = []
    waiting = list(reversed(entries))
    for token in tokens:
        if waiting and waiting[-1].id == token:
            steps.append(_step(waiting.pop(), counts))
        else:
            steps.append(Step(token, None, ()))
    if waiting:
        raise ReplyError(f"{len(waiting)} of {len(entries)} logprob entries belong to no generated token")
    return tuple(steps)


def _check_count(reply: Completion, tokens: list[int], hint: str = "") -> None:
    predicted = reply.tokens_predicted
    if predicted is not None and predicted != len(tokens):
        raise ReplyError(f"the reply names {len(tokens)} of {predicted} generated tokens{hint}")


def read_whole(body: bytes) -> Parsed:
    """Read a whole reply.

    Raises: ReplyError where it is no completion, or names other ids than it generated.
    """
    reply = _completion(body)
    if reply.tokens is None or reply.stop is not True:
        raise ReplyError(f"the reply has no tokens (return_tokens was sent): it begins {body[:60]!r}")
    _check_count(reply, reply.tokens)
    counts = _Counts()
    steps = _aligned(reply.tokens, reply.completion_probabilities or [], counts)
    return Parsed(reply, tuple(reply.tokens), steps, None, counts.above_zero, counts.saturated)


@dataclass
class _Gathered:
    """What the events of one reply add up to."""

    vocabulary: int | None
    counts: _Counts = field(default_factory=_Counts)
    tokens: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    rows: list[NDArray[np.float32]] = field(default_factory=list)
    last: Completion | None = None

    def take(self, data: Data) -> None:
        """Take one event."""
        event = _completion(data)
        if event.stop is True:
            self.last = event
        self.tokens += event.tokens or []
        entries = event.completion_probabilities or []
        if self.vocabulary is None:
            self.entries += entries
            return
        for entry in entries:
            if entry.prob is not None:
                raise ReplyError("the reply holds post-sampling probabilities (`prob`), which are no logprobs")
            try:
                top = entry.top_logprobs
                row = row_of(map(_ID, top), map(_LOGPROB, top), self.vocabulary)
            except EvidenceError as error:
                raise ReplyError(error.message) from error
            self.counts.above_zero += int((row > 0).sum())
            self.counts.saturated += int(((row == 0.0) | (row == np.float32(SENTINEL))).sum())
            if row.max() > ABOVE_ZERO_NATS_MAX:
                raise ReplyError(f"a logprob of {float(row.max())!r} is above zero")
            self.rows.append(row)


class EventSink:
    """Takes the chunks of a streamed reply and gives the `Parsed` reply at the end.

    With `vocabulary` each step's whole row is kept as float32 and the text of an event is dropped at once.
    """

    def __init__(self, *, vocabulary: int | None = None) -> None:
        """Begin with nothing read."""
        self._gathered = _Gathered(vocabulary)
        self._events = EventReader(self._gathered.take)

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk.

        Raises: ReplyError.
        """
        self._events.feed(chunk)

    def finish(self) -> Parsed:
        """Return the reply.

        Raises: ReplyError where the last event never came, or ids are missing.
        """
        self._events.finish()
        gathered = self._gathered
        if gathered.last is None:
            raise ReplyError(f"the event stream ended without its last event, after {len(gathered.tokens)} tokens")
        _check_count(
            gathered.last, gathered.tokens, " (a token that ends inside a character loses its id when streamed)"
        )
        tokens = tuple(gathered.tokens)
        if gathered.vocabulary is not None:
            if len(gathered.rows) != len(tokens):
                raise RowsError(f"{len(gathered.rows)} rows came for {len(tokens)} tokens")
            rows = np.stack(gathered.rows) if gathered.rows else np.empty((0, gathered.vocabulary), np.float32)
            return Parsed(gathered.last, tokens, (), rows, gathered.counts.above_zero, gathered.counts.saturated)
        steps = _aligned(gathered.tokens, gathered.entries, gathered.counts)
        return Parsed(gathered.last, tokens, steps, None, gathered.counts.above_zero, gathered.counts.saturated)


def read_events(body: bytes) -> Parsed:
    """Read a streamed reply that is at hand as a whole.

    Raises: ReplyError.
    """
    sink = EventSink()
    sink.feed(body)
    return sink.finish()
