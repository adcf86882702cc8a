"""Slot: one sequence of the fake server, and the generation that runs in it.

In: a request and tokens, one a decode. Out: what has been generated so far, in the shape that replies need, and the
moment at which it ends. It follows `process_token` of llama-server: a stop text, the context's end, the asked length
and the end of the sequence stop a generation. It computes no numbers and talks to nobody.
"""

from asyncio import Queue
from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator

from audit.fake.model import Row
from audit.fake.refusal import RefusalError
from audit.fake.request import Request
from audit.fake.sampler import Choice, Sampling
from audit.fake.vocabulary import EOS, Vocabulary

__all__ = ["Cancelled", "Event", "Finished", "Generation", "Slot", "Step", "Stepped", "Task"]


@dataclass(frozen=True, slots=True)
class Step:
    """One generated position: the token, the text it adds, its row, and what it was sampled from."""

    token: int
    text: str
    row: Row
    choice: Choice


@dataclass(frozen=True, slots=True)
class Stepped:
    """Event: one more step of a stream, and the count of steps so far."""

    generation: "Generation"
    step: Step
    count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Event: a generation is over, and these are the steps to report."""

    generation: "Generation"
    slot_id: int
    tokens_cached: int
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Event: the client went away."""


Event = Stepped | Finished | Cancelled | RefusalError


@dataclass(slots=True)
class Task:
    """A request on its way through the engine.

    Attributes:
        id: counts up from 0 within a process.
        request: what was asked.
        gone: says whether the client has gone away.
        ordinal: the index of the HTTP request that it came with, counted from 0 within a process.
        waited: whether it had to wait for a slot.
        events: what the reply is made of, in order.
    """

    id: int
    request: Request
    gone: Callable[[], bool]
    ordinal: int = 0
    waited: bool = False
    events: "Queue[Event]" = field(default_factory=Queue)


class Generation:
    """One task in one slot, from its first decode to its end.

    Args:
        task: the task.
        sampling: how tokens are really chosen.
        random: the numbers that sampling draws from.
        cache_n: count of prompt tokens that the slot already holds.
        step_count_max: the most steps that fit the request and the slot.
    """

    def __init__(self, task: Task, *, sampling: Sampling, random: Generator, cache_n: int, step_count_max: int) -> None:
        self.task = task
        self.request = task.request
        self.prompt = task.request.prompt
        self.sampling = sampling
        self.random = random
        self.cache_n = cache_n
        self.step_count_max = step_count_max
        self.prompt_done = cache_n
        self.steps: list[Step] = []
        self.text = ""
        self.sent = 0
        self.stop_type = "none"
        self.stopping_word = ""
        self.truncated = False
        # Which rounding noise moves all its rows, 0 for none, and how many equal requests came before: for faults only.
        self.salt = 0
        self.repeats = 0
        # The whole context as little-endian int32, which is what the model hashes.
        self.context = bytearray(b"".join([token.to_bytes(4, "little") for token in self.prompt]))
        self.prompt_started_s = 0.0
        self.prompt_ms = 0.0
        self.predicted_started_s = 0.0
        self.predicted_ms = 0.0

    @property
    def prompt_n(self) -> int:
        """Count of prompt tokens processed here rather than taken from the cache."""
        return self.prompt_done - self.cache_n

    @property
    def forced(self) -> int | None:
        """The id that the grammar admits next; past its end only the end of the sequence, None without a grammar."""
        ids = self.request.forced
        if ids is None:
            return None
        return ids[len(self.steps)] if len(self.steps) < len(ids) else EOS

    def take(self, choice: Choice, row: Row, vocabulary: Vocabulary, *, ctx: int) -> Step:
        """Append one token and decide whether it was the last; `stop_type` then says why.

        Args:
            choice: the sampled token.
            row: the numbers of its position.
            vocabulary: the pieces.
            ctx: tokens that the slot holds.
        """
        piece = vocabulary.shown[choice.token]
        self.text += piece
        step = Step(token=choice.token, text=self._text_to_send(piece, choice.token), row=row, choice=choice)
        self.steps.append(step)
        self.context += choice.token.to_bytes(4, "little")
        if self.stop_type != "word":
            self.truncated = len(self.context) // 4 >= ctx
            if self.truncated or 0 <= self.request.n_predict <= len(self.steps):
                self.stop_type = "limit"
            if choice.token == EOS:
                self.stop_type = "eos"
        return step

    def _text_to_send(self, piece: str, token: int) -> str:
        """Return the text that this step releases: nothing while it may yet become a stop text."""
        for word in self.request.stop:
            position = self.text.find(word, max(self.sent, len(self.text) - len(piece) - len(word)))
            if position >= 0:
                self.text = self.text[:position]
                self.stop_type, self.stopping_word = "word", word
                break
        else:
            unsent = self.text[self.sent :]
            if token != EOS and any(_ends_within(unsent, word) for word in self.request.stop):
                return ""
        released = self.text[self.sent :]
        self.sent = len(self.text)
        return released


def _ends_within(text: str, word: str) -> bool:
    """Say whether a text ends with a beginning of the word."""
    return any(text.endswith(word[:length]) for length in range(1, len(word)))


class Slot:
    """One sequence: what it holds, and who uses it.

    Args:
        index: its number.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.content: tuple[int, ...] = ()
        self.running: Generation | None = None
        self.last: Generation | None = None
        self.used_s = 0.0

    def prefix(self, prompt: tuple[int, ...]) -> int:
        """Count the tokens of a prompt that this slot holds from its beginning on."""
        for position, (held, asked) in enumerate(zip(self.content, prompt, strict=False)):
            if held != asked:
                return position
        return min(len(self.content), len(prompt))

    @property
    def fill(self) -> int:
        """Count of tokens that the slot holds; the newest token is not among them before the next decode."""
        if self.running is None:
            return len(self.content)
        return self.running.prompt_done + max(0, len(self.running.steps) - 1)

    def erase(self) -> int:
        """Forget what the slot holds, unless it is used, and return how many tokens that were."""
        count = len(self.content) if self.running is None else 0
        if self.running is None:
            self.content = ()
        return count

    def release(self, now: float) -> None:
        """Keep the tokens of the generation that ran here, and be free; `now` in monotonic seconds."""
        if self.running is not None:
            tokens = (*self.running.prompt, *(step.token for step in self.running.steps))
            self.content = tokens[: self.fill]
            self.last, self.running = self.running, None
            self.used_s = now
