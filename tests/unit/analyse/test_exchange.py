"""What is kept small comes back as it was recorded, and what others say as well is kept once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from audit.analyse.exchange import Exchange, Shared
from audit.record import Complete, Failure, Invoke, Joined, Reply, RowsFact

TEXT = "sha256:" + "0" * 64
REPLY = Reply(
    logprob=TEXT, token=TEXT, steps=8, holes=0, rows=None, joined=None, settings=TEXT, prompt_echo=None, model="m",
    id_slot=1, tokens_evaluated=3, tokens_predicted=8, cache_n=0, prompt_n=3, prompt_ms=1.25, predicted_n=8,
    predicted_ms=2.5, draft_n=None, truncated=False, stop_type="limit", above_zero=0, saturated=0,
)  # fmt: skip
ROWS = RowsFact(file=TEXT, shape=(2, 4), digests=[TEXT, TEXT])
FAILURE = Failure(kind="timeout", message="", body=None)
MS = 10**6


def invoke(number: int) -> Invoke:
    """Return the line of a request."""
    trial = f"t/{number}"
    return Invoke(
        n=number, prev="p", at_ns=MS, server="s", trial=trial, unit="t", attempt=1, part=0, request=TEXT, slot=1
    )


def complete(number: int, changes: dict[str, Any]) -> Complete:
    """Return the line of its answer; changes to the reply stand under `reply`."""
    reply = changes.get("reply", {})
    values: dict[str, Any] = {
        "n": number + 1, "prev": "p", "at_ns": 9 * MS, "server": "s", "trial": f"t/{number}", "unit": "t",
        "attempt": 1, "part": 0, "sent_ns": 2 * MS + number, "first_byte_ns": 3 * MS, "last_byte_ns": 4 * MS,
        "status": 200, "failure": None,
        **changes,
        "reply": None if reply is None else msgspec.structs.replace(REPLY, **reply),
    }  # fmt: skip
    return Complete(**values)


def kept(number: int, answer: Complete, shared: Shared) -> Exchange:
    """Return the exchange of a request and its answer."""
    return Exchange.begin(invoke(number), trial=f"t/{number}", unit="t").end(answer, shared)


@pytest.mark.parametrize(
    ("changes", "packed"),
    [
        ({}, True),
        ({"reply": {"prompt_ms": -0.0, "predicted_ms": 1e300, "logprob": None, "id_slot": None}}, True),
        ({"reply": {"joined": Joined(logprob=TEXT, token=TEXT, steps=1, holes=0)}}, True),
        ({"reply": {"prompt_ms": None}}, False),
        ({"reply": {"rows": ROWS}}, False),
        ({"first_byte_ns": None}, False),
        ({"sent_ns": -(2**63)}, True),
        ({"sent_ns": 2**63}, False),
        ({"reply": None, "failure": FAILURE, "last_byte_ns": None}, False),
    ],
)
def test_both_lines_come_back(changes: dict[str, Any], packed: bool) -> None:
    """Every field but the digest of the line before is the recorded one, whether numbers were packed or not."""
    answer = complete(7, changes)
    exchange = kept(7, answer, Shared())
    assert (exchange.numbers is not None) == packed
    unlinked = (msgspec.structs.replace(invoke(7), prev=""), msgspec.structs.replace(answer, prev=""))
    assert repr(exchange.lines) == repr(unlinked)
    assert repr(exchange.reply) == repr(answer.reply)


def test_a_request_without_answer_is_kept_as_it_is() -> None:
    """It has neither a reply nor a second line."""
    waiting = Exchange.begin(invoke(7), trial="t/7", unit="t")
    assert waiting.lines == (msgspec.structs.replace(invoke(7), prev=""), None)
    assert waiting.said is waiting.reply is None


def test_equal_answers_are_kept_once() -> None:
    """Other names and numbers make no other answer; another stream does, whose other texts are the same objects."""
    shared = Shared()
    one, again = (kept(number, complete(number, {"reply": {"prompt_ms": 1.0 + number}}), shared) for number in (1, 2))
    assert again.asked is one.asked
    assert again.answer is one.answer
    other = kept(
        3, complete(3, {"reply": {"logprob": TEXT + "1", "settings": str(bytes(TEXT, "ascii"), "ascii")}}), shared
    )
    assert other.said is not None
    assert one.said is not None
    assert other.answer is not one.answer
    assert other.said.settings is one.said.settings


def test_a_value_without_hash_is_found_by_its_key() -> None:
    """A list is shared by the tuple of its items."""
    shared = Shared()
    first = shared.one([1, 2], key=(1, 2))
    assert shared.one([1, 2], key=(1, 2)) is first
