"""Any bytes at all from a server: a stream, a marked partial or a named refusal, and no equality out of missing data.

scripts/fuzz_wire.py throws the same questions at many more inputs.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import ReplyError
from audit.wire import decode, error_message, read_whole
from scripts.fuzz_wire import VOCABULARY, WHOLE, ask, chunks, event, questions

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from([2**63, -(2**63), 10**400, 1e308, -3.4028234663852886e38, 0.0, -0.0, 1e-45, "\x1b[2J", "../x"]),
)  # fmt: skip
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner))


def encoded(value: object) -> bytes:
    """Return JSON as a careless server writes it: NaN and Infinity as such, numbers of any length."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid reply of which some values are replaced, some keys are gone, and which may be cut and doubled."""
    reply: dict[str, Any] = json.loads(json.dumps(WHOLE))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = reply
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            if draw(st.booleans()):
                place[key] = draw(VALUES)
            else:
                del place[key]
            break
    data = encoded(reply)
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@settings(max_examples=300)
@given(data=st.binary(max_size=400) | mutated() | VALUES.map(encoded))
def test_any_body_becomes_a_stream_or_a_named_refusal(data: bytes) -> None:
    """Random bytes, mutated replies, any JSON: what is read holds together, and the rest is a ReplyError."""
    ask("whole", data)
    ask("error", data)
    ask("document", data)


@settings(max_examples=300)
@given(
    events=st.lists(st.binary(max_size=60) | mutated().map(event) | VALUES.map(encoded).map(event), max_size=5),
    cut=st.integers(1, 40), rows=st.booleans(),
)  # fmt: skip
def test_any_event_stream_becomes_a_stream_or_a_named_refusal(events: list[bytes], cut: int, rows: bool) -> None:
    """Events that are none, mutated ones, cut anywhere into chunks; rows are whole or refused."""
    ask("rows" if rows else "events", b"".join(events), cut=cut)


@given(cut=st.integers(1, 50), end=st.integers(0, 3000))
def test_a_stream_that_is_cut_is_never_equal_to_the_whole_one(cut: int, end: int) -> None:
    """Of a body that ends early nothing is read that could be compared."""
    body = chunks(WHOLE)
    if end < len(body) - 2:
        assert ask("events", body[:end], cut=cut) is None
    else:
        whole, again = ask("events", body, cut=cut), read_whole(encoded(WHOLE))
        assert whole is not None
        assert whole.steps == again.steps


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"generation_settings":' + b'{"a":' * 900 + b"1" + b"}" * 901,
        encoded({**WHOLE, "generation_settings": {"n": 2**63}}),
        encoded({**WHOLE, "id_slot": 2**63}),
        encoded({**WHOLE, "tokens": [10**30, 1, 2]}),
        b'{"tokens":[' + b"9" * 5_000 + b"]}",
        encoded({"error": {"message": [[[1]]] * 10, "code": 2**64}}),
    ],
    ids=["unclosed", "nested", "setting", "slot", "token", "digits", "error"],
)
def test_what_no_record_could_hold_is_refused_by_name(body: bytes) -> None:
    """Nesting without end and numbers of more than 64 bits end in one sentence, not in a traceback."""
    with pytest.raises(ReplyError) as caught:
        read_whole(body)
    assert len(caught.value.message) < 500
    assert isinstance(error_message(body), str)
    ask("document", body)


def test_a_document_is_bounded_too() -> None:
    """Sixty-four levels are read, one more is refused; so is a whole number of 65 bits, in whatever place."""
    assert decode(b"[" * 64 + b"]" * 64, what="x")
    with pytest.raises(ReplyError, match="nested deeper than 64"):
        decode(b"[" * 66 + b"]" * 66, what="x")
    assert decode(b"9223372036854775807", what="x") == 2**63 - 1
    with pytest.raises(ReplyError, match=r"more than 64 bits|out of range"):
        decode(b'{"a":[9223372036854775808]}', what="x")


def test_every_question_reads_a_valid_input() -> None:
    """The oracle is no wall: each question accepts what a server really sends."""
    assert set(questions()) == {"whole", "events", "rows", "error", "document"}
    whole = ask("whole", encoded(WHOLE))
    assert whole is not None
    assert len(whole.steps) == len(WHOLE["tokens"])
    rows = ask("rows", chunks(WHOLE, vocabulary=VOCABULARY), cut=7)
    assert rows is not None
    assert rows.rows is not None
    assert rows.rows.shape == (len(WHOLE["tokens"]), VOCABULARY)
