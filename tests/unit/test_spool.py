"""What is kept of a streamed reply reads later as it would have read at once."""

from __future__ import annotations

import json

import pytest

from audit.client import Exchange
from audit.errors import ReplyError
from audit.spool import Sent, Spool
from audit.trial import Trial
from audit.wire import EventSink

TRIAL = Trial(trial="t", condition="batch", prompt="p", steps=2)


def body(*tokens: int, rows: int = 3) -> bytes:
    """A streamed reply with a row of three tokens a step."""
    events = [
        {
            "tokens": [token],
            "stop": False,
            "completion_probabilities": [
                {"id": token, "logprob": -1.0, "top_logprobs": [{"id": at, "logprob": -1.0 - at} for at in range(rows)]}
            ],
        }
        for token in tokens
    ]
    last = {"stop": True, "tokens": [], "tokens_predicted": len(tokens)}
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in [*events, last])


@pytest.mark.parametrize("size", [1, 7, 10_000, 6_000_000])
def test_a_kept_reply_is_the_reply(size: int) -> None:
    """Whatever the chunks, also where it is too large for the memory and waits in a file."""
    data = body(1, 2) if size < 6_000_000 else body(*[1] * 40_000)
    at_once, later, spool = EventSink(vocabulary=3), EventSink(vocabulary=3), Spool()
    for start in range(0, len(data), size):
        at_once.feed(data[start : start + size])
        spool.feed(data[start : start + size])
    sent = Sent(TRIAL, 0, Exchange(sent_ns=0), later, spool)
    expected, found = at_once.finish(), sent.read()
    sent.close()
    assert found.tokens == expected.tokens
    assert found.rows is not None
    assert expected.rows is not None
    assert (found.rows == expected.rows).all()


def test_a_kept_reply_that_cannot_be_read_is_refused_then() -> None:
    """The error comes when it is read, and not before."""
    spool = Spool()
    spool.feed(body(1, rows=2))
    sent = Sent(TRIAL, 0, Exchange(sent_ns=0), EventSink(vocabulary=3), spool)
    with pytest.raises(ReplyError, match="a row of 3 tokens has 2 entries"):
        sent.read()
    sent.close()


def test_a_reply_that_does_not_end_is_refused() -> None:
    """At the first byte that is too many, so that no disk is filled."""
    spool = Spool(bytes_max=5)
    spool.feed(b"12345")
    with pytest.raises(ReplyError, match="exceeds 5 bytes"):
        spool.feed(b"6")
    spool.close()


def test_a_whole_reply_is_read_from_its_body() -> None:
    """What was not streamed needs no spool."""
    whole = json.dumps({"tokens": [4], "stop": True, "tokens_predicted": 1}).encode()
    assert Sent(TRIAL, 0, Exchange(sent_ns=0, body=whole)).read().tokens == (4,)
