"""A request with its answer, kept small: numbers are packed, and the rest is shared by all exchanges that have it.

In go an invoke line and the complete line that answers it, out come the same two lines, formed again whenever someone
looks at them. Only the digest of the line before is not kept. A line is mostly what very many others say as well, and
as structs of their own the lines of a million requests would take a gigabyte.
"""

import struct
from typing import Any

import msgspec

from audit.errors import EvidenceError
from audit.proofs import Flight
from audit.record import Complete, Invoke, Reply

__all__ = ["Exchange", "Shared"]

# What differs from one exchange to the next: number and time of both lines, sent, first and last byte; two durations.
_NUMBERS = struct.Struct("<7q2d")
_TEXTS = ("logprob", "model", "prompt_echo", "settings", "stop_type", "token")


class Shared:
    """Keeps one of all values that are equal."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[Any, Any] = {}

    def one(self, value: Any, *, key: Any = None) -> Any:  # noqa: ANN401 - any value
        """Return the value that is kept for all that are equal to this one; `key` stands for one without a hash."""
        return self._known.setdefault(value if key is None else key, value)

    def answer(self, complete: Complete) -> Complete:
        """Return the same for a line with a reply; the texts of a reply that is like no other are shared too."""
        known, reply = self._known.get(complete), complete.reply
        if known is None and reply is not None:
            texts = {name: self.one(getattr(reply, name)) for name in _TEXTS}
            known = self.one(msgspec.structs.replace(complete, reply=msgspec.structs.replace(reply, **texts)))
        return known or complete


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One request of a trial and what became of it.

    `asked` and `answer` are the lines without their `numbers`, or as they were where nothing is packed: while no answer
    has come, and where one lacks a number or holds rows.
    """

    trial: str
    unit: str
    asked: Invoke
    answer: Complete | None = None
    numbers: bytes | None = None

    @classmethod
    def begin(cls, line: Invoke, *, trial: str, unit: str) -> "Exchange":
        """Keep a request that waits for its answer; `trial` and `unit` are the names that others have as well."""
        return cls(trial, unit, msgspec.structs.replace(line, prev="", trial=trial, unit=unit))

    def end(self, line: Complete, shared: Shared) -> "Exchange":
        """Return the exchange with its answer."""
        asked, reply = self.asked, line.reply
        line = msgspec.structs.replace(line, prev="", server=asked.server, trial=self.trial, unit=self.unit)
        if reply is None or reply.rows is not None:
            return Exchange(self.trial, self.unit, asked, line)
        try:
            numbers = _NUMBERS.pack(
                asked.n,
                asked.at_ns,
                line.n,
                line.at_ns,
                line.sent_ns,
                line.first_byte_ns,
                line.last_byte_ns,
                reply.prompt_ms,
                reply.predicted_ms,
            )
        except struct.error:  # one is missing, or beyond 64 bits
            return Exchange(self.trial, self.unit, asked, line)
        asked = shared.one(msgspec.structs.replace(asked, n=0, at_ns=0, trial="", unit=""))
        reply = msgspec.structs.replace(reply, prompt_ms=None, predicted_ms=None)
        line = msgspec.structs.replace(
            line, n=0, at_ns=0, trial="", unit="", sent_ns=0, first_byte_ns=None, last_byte_ns=None, reply=reply
        )
        return Exchange(self.trial, self.unit, asked, shared.answer(line), numbers)

    @property
    def said(self) -> Reply | None:
        """The reply, which lacks its two durations where they are packed."""
        return self.answer.reply if self.answer is not None else None

    @property
    def reply(self) -> Reply | None:
        """The reply as it was recorded."""
        if self.said is None or self.numbers is None:
            return self.said
        *_, prompt_ms, predicted_ms = _NUMBERS.unpack(self.numbers)
        return msgspec.structs.replace(self.said, prompt_ms=prompt_ms, predicted_ms=predicted_ms)

    @property
    def lines(self) -> tuple[Invoke, Complete | None]:
        """Both lines as they were recorded, the second None where the request has no answer."""
        if self.answer is None or self.numbers is None:
            return self.asked, self.answer
        asked_n, asked_at_ns, n, at_ns, sent_ns, first_byte_ns, last_byte_ns, *_ = _NUMBERS.unpack(self.numbers)
        names = {"trial": self.trial, "unit": self.unit}
        return (
            msgspec.structs.replace(self.asked, n=asked_n, at_ns=asked_at_ns, **names),
            msgspec.structs.replace(
                self.answer,
                n=n,
                at_ns=at_ns,
                sent_ns=sent_ns,
                first_byte_ns=first_byte_ns,
                last_byte_ns=last_byte_ns,
                reply=self.reply,
                **names,
            ),
        )

    def flight(self, *, cache: bool) -> Flight | None:
        """Return the request as a proof sees it, None without a reply; `cache` says whether it allowed the cache.

        Raises: EvidenceError where the reply never ended.
        """
        answer, reply = self.answer, self.said
        if answer is None or reply is None:
            return None
        if self.numbers is None:
            sent_ns, end_ns = answer.sent_ns, answer.last_byte_ns
            prompt_ms, predicted_ms = reply.prompt_ms, reply.predicted_ms
        else:
            *_, sent_ns, _, end_ns, prompt_ms, predicted_ms = _NUMBERS.unpack(self.numbers)
        if end_ns is None:
            raise EvidenceError(f"history.jsonl: line {answer.n} holds a reply that never ended")
        return Flight(
            slot=self.asked.slot,
            cache=cache,
            sent_ns=sent_ns,
            end_ns=end_ns,
            id_slot=reply.id_slot,
            tokens_evaluated=reply.tokens_evaluated,
            cache_n=reply.cache_n,
            prompt_n=reply.prompt_n,
            prompt_ms=prompt_ms,
            predicted_n=reply.predicted_n,
            predicted_ms=predicted_ms,
        )
