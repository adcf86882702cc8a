"""Faults: every point at which a switch of `Faults` acts on a running server.

In: what a clean server is about to do. Out: what this one does instead. One method is one point, and the rest of the
package knows nothing about single faults: a new fault is a field of `Faults` and a line in the group that it belongs
to (`numbers`, `lies`, `failures`), or one more point here. What has to be remembered between points lives here, and
dies with the process that it stands for; only `Proxy` stands in front of all of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from audit.fake import failures, lies, numbers
from audit.fake.model import Row
from audit.fake.refusal import RefusalError
from audit.fake.request import Request
from audit.fake.sampler import Sampling
from audit.fake.settings import FakeSettings
from audit.fake.slot import Generation, Slot, Step
from audit.fake.switches import Faults
from audit.fake.transport import Connection

__all__ = ["FaultPoints", "Proxy"]


@dataclass
class Proxy:
    """What stands between clients and a server, and stays when the process is another: old replies, piece by piece."""

    replies: dict[bytes, list[bytes]] = field(default_factory=dict)


class FaultPoints:
    """The faults of one process.

    Args:
        faults: which switches are on.
        started: monotonic seconds at which the process started.
        restarts: how many processes there were before.
        proxy: what stands in front.
    """

    def __init__(self, faults: Faults, *, started: float, restarts: int = 0, proxy: Proxy | None = None) -> None:
        self._faults = faults
        self._started = started
        self._restarts = restarts
        self._proxy = proxy or Proxy()
        self._arrived = 0
        self._asked: Counter[str] = Counter()
        self._batches: dict[tuple[str, int], int] = {}
        self._ended: tuple[Generation, int] | None = None
        self._answers = lies.Answers()

    # The server as a whole.

    def loading(self, now: float) -> bool:
        """Say whether the model still loads; `now` in monotonic seconds."""
        return now - self._started < self._faults.loading_s

    def refusing(self) -> bool:
        """Say whether every connection is reset."""
        return _reached(self._faults.refuses_after, self._arrived)

    def replaced(self) -> bool:
        """Say whether it is time for a new process on the same connections."""
        return not self._restarts and _reached(self._faults.restart_after, self._arrived)

    def offers(self, endpoint: str, settings: FakeSettings) -> bool:
        """Say whether `/metrics` or `/slots` answers."""
        if endpoint == "metrics":
            lost = self._faults.metrics_missing or _reached(self._faults.metrics_lost_after, self._arrived)
            return settings.metrics and not lost
        return settings.slots_endpoint and not self._faults.slots_missing

    def build_info(self, said: str) -> str:
        """Return the build that `/props` names."""
        return f"{said}-other" if _reached(self._faults.build_after, self._arrived) else said

    # A request on its way in.

    def arrive(self) -> int:
        """Count one more completion request, and return its index."""
        self._arrived += 1
        return self._arrived - 1

    def instead(self, ordinal: int) -> failures.Instead | None:
        """Return what a request is answered with in place of a reply."""
        return failures.answered_instead(ordinal, self._faults)

    def repeated(self, body: bytes) -> list[bytes] | None:
        """Return the old reply to an equal body, piece by piece, which then is all that happens."""
        return self._proxy.replies.get(body) if self._faults.replies_repeated else None

    def lead(self, connection: Connection, ordinal: int, body: bytes) -> None:
        """Choose the way that a reply takes."""
        copy = self._proxy.replies.setdefault(body, []) if self._faults.replies_repeated else None
        connection.take_way(failures.way_of(ordinal, self._faults), copy=copy)

    def understood(self, request: Request) -> Request:
        """Return a request as this server takes it."""
        return lies.understood(request, self._faults)

    # The engine.

    def slots_at_once(self, slots: int) -> int:
        """Return how many slots may be processed together."""
        return 1 if self._faults.serialized else slots

    def sampling(self, asked: Sampling) -> Sampling:
        """Return how a request is sampled, whatever its echo says."""
        return lies.sampled_as(asked, self._faults)

    def begin(self, generation: Generation, slot: Slot, *, alone: bool) -> None:
        """Decide which noise moves a generation as a whole, before it takes its slot."""
        generation.repeats = self._repeats(generation)
        start = numbers.Start(generation, slot, restarts=self._restarts, ended=self._ended, alone=alone)
        generation.salt = numbers.start_salts(start, self._faults)

    def _repeats(self, generation: Generation) -> int:
        """Count the equal requests that came before, where a switch wants to know."""
        on = self._faults.jitter_repeated or self._faults.jitter_resampled or self._faults.one_ulp_each is not None
        if not on:
            return 0
        key = _key(generation)
        self._asked[key] += 1
        return self._asked[key] - 1

    def overflows(self, held: int) -> RefusalError | None:
        """Return how every running request ends where together they hold too many tokens."""
        most = self._faults.wave_overflows
        return None if most is None or held < most else RefusalError(500, "Context size has been exceeded.")

    def breaks(self, generation: Generation) -> RefusalError | None:
        """Return how a stream breaks off at its next step."""
        hit = generation.task.ordinal == self._faults.stream_error and generation.request.stream
        middle = len(generation.steps) == numbers.middle_of(generation)
        return RefusalError(500, "Context size has been exceeded.") if hit and middle else None

    def model_seed(self, generation: Generation, seed: int) -> int:
        """Return which model computes the next row."""
        return seed + 1 if _reached(self._faults.swap_after, generation.task.ordinal) else seed

    def context(self, generation: Generation) -> bytes | bytearray:
        """Return the context that the next row depends on."""
        return generation.context[4 * len(generation.prompt) :] if self._faults.prompt_ignored else generation.context

    def salt(self, generation: Generation, batch: list[Generation]) -> int:
        """Return which rounding noise moves the next row of a generation, 0 for none.

        Args:
            generation: the one whose row is computed.
            batch: all that take part in the same decode, itself included.
        """
        moment = numbers.Moment(generation, batch)
        if self._faults.jitter_wave_again and moment.middle and moment.in_wave:
            ordinal = generation.task.ordinal
            seen = self._batches.setdefault((_key(generation), len(batch)), ordinal) != ordinal
            moment = replace(moment, seen=seen)
        return generation.salt + numbers.row_salt(moment, self._faults)

    def row(self, row: Row, generation: Generation) -> Row:
        """Return a row as this server has it."""
        return numbers.reported(row, generation, self._faults)

    def end(self, generation: Generation, slot: Slot) -> None:
        """Remember that a generation is over."""
        self._ended = generation, slot.index

    # A reply on its way out.

    def sent(self, generation: Generation, step: Step) -> Step:
        """Return a step as the event of a stream shows it."""
        return self._moved(generation, len(generation.steps) - 1, step)

    def completed(self, generation: Generation) -> list[Step]:
        """Return the steps of a generation as the whole reply shows them."""
        if generation.request.stream:
            return list(generation.steps)
        return [self._moved(generation, index, step) for index, step in enumerate(generation.steps)]

    def _moved(self, generation: Generation, index: int, step: Step) -> Step:
        """Return the step with one reported logprob one ULP lower, if this is the step to be hit."""
        n_probs = min(generation.request.n_probs, len(step.row.order))
        if n_probs < 1:
            return step
        hits = []
        if self._faults.one_ulp == generation.task.ordinal:
            hits.append((numbers.middle_of(generation), n_probs - 1))
        if self._faults.one_ulp_each is not None and generation.repeats:
            hits.append(
                numbers.planted(
                    self._faults.one_ulp_each,
                    generation.task.ordinal,
                    steps=generation.step_count_max,
                    n_probs=n_probs,
                )
            )
        for at, rank in hits:
            if at == index:
                step = replace(step, row=numbers.with_one_ulp(step.row, rank))
        return step

    def whole(self, body: dict[str, Any], generation: Generation) -> bytes:
        """Encode a whole reply, or the last event of a stream, as this server words it."""
        ordinal = generation.task.ordinal
        body = lies.told(body, generation, None, self._faults)
        crossed = {self._faults.cross_talk, self._faults.cross_talk_hidden} - {None}
        if ordinal in crossed:
            body = self._answers.exchanged(body, generation, echo=ordinal == self._faults.cross_talk)
        elif crossed:
            self._answers.keep(body, generation)
        return failures.spoilt(body, ordinal, None, self._faults)

    def event(self, body: dict[str, Any], generation: Generation, index: int) -> bytes:
        """Encode the event of one step as this server words it."""
        body = lies.told(body, generation, index, self._faults)
        middle = index == numbers.middle_of(generation)
        return failures.spoilt(body, generation.task.ordinal, middle, self._faults)


def joined(bodies: Sequence[bytes]) -> bytes:
    """Return the replies to several prompts as one body."""
    return bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"


def _reached(after: int | None, count: int) -> bool:
    return after is not None and count >= after


def _key(generation: Generation) -> str:
    """Return what makes two requests equal: prompt, settings, slot and cache."""
    request = generation.request
    return repr((request.prompt, request.slot, request.cache_prompt, sorted(request.settings.items(), key=str)))
