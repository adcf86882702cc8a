"""Whatever a server sends becomes a Parsed reply or a ReplyError: nothing is lost, nothing is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import events
from audit.errors import ReplyError
from audit.events import EventReader
from audit.stream import Step, Stream
from audit.wire import (
    SENTINEL,
    EventSink,
    Parsed,
    decode,
    error_message,
    read_events,
    read_whole,
)

TIMINGS = {"cache_n": 0, "prompt_n": 4, "prompt_ms": 1.5, "predicted_n": 3, "predicted_ms": 2, "prompt_per_second": 9.0}
SETTINGS = {"temperature": 0.0, "seed": 7, "samplers": ["top_k"]}


def entry(token: int, logprob: object = -0.5, top: Iterable[tuple[int, object]] | None = None) -> dict[str, Any]:
    """Return one entry of `completion_probabilities`, with the fields that are not read."""
    pairs = [(token, logprob), (token + 1, -2.0)] if top is None else list(top)
    shown = [{"id": i, "token": "x", "bytes": [120], "logprob": nats} for i, nats in pairs]
    return {"id": token, "token": "x", "bytes": [120], "logprob": logprob, "top_logprobs": shown}


def whole(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a whole reply of three tokens."""
    reply = {
        "index": 0, "content": "xyz", "tokens": [5, 6, 7], "id_slot": 2, "stop": True, "model": "m.gguf",
        "tokens_predicted": 3, "tokens_evaluated": 4, "generation_settings": SETTINGS, "prompt": "abcd",
        "truncated": False, "stop_type": "limit", "stopping_word": "", "tokens_cached": 6, "timings": TIMINGS,
        "completion_probabilities": [entry(5), entry(6), entry(7)],
    }  # fmt: skip
    return {key: value for key, value in {**reply, **changes}.items() if value is not ...}


def encoded(value: object) -> bytes:
    """Return JSON as it comes over the wire."""
    return json.dumps(value, ensure_ascii=False).encode()


def read(**changes: Any) -> Parsed:  # noqa: ANN401 - any JSON
    """Read a whole reply."""
    return read_whole(encoded(whole(**changes)))


def event(*tokens: int, entries: Iterable[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return one event before the last."""
    found = [entry(token) for token in tokens] if entries is None else list(entries)
    return {"index": 0, "content": "\u00e9", "tokens": list(tokens), "stop": False, "id_slot": -1,
            "completion_probabilities": found, **more}  # fmt: skip


LAST = {key: value for key, value in whole(tokens=[]).items() if key != "completion_probabilities"}
EVENTS = [event(5), event(6), event(7), LAST]


def sse(events: Iterable[object], *, end: bytes = b"\n\n") -> bytes:
    """Return events as the body of a stream."""
    return b"".join(b"data: " + encoded(one) + end for one in events)


STEPS = tuple(Step(token, -0.5, ((token, -0.5), (token + 1, -2.0))) for token in (5, 6, 7))


def test_a_whole_reply_is_read_with_all_its_facts() -> None:
    """Steps in order with their top-k, and the facts beside them; unknown keys are passed over."""
    parsed = read(novel={"deep": [1]})
    assert parsed.steps == STEPS
    assert parsed.tokens == (5, 6, 7)
    assert parsed.rows is None
    last, timings = parsed.last, parsed.timings
    assert (last.id_slot, last.model, last.prompt, last.truncated, last.stop_type) == (
        2,
        "m.gguf",
        "abcd",
        False,
        "limit",
    )
    assert (last.tokens_evaluated, last.tokens_predicted, last.generation_settings) == (4, 3, SETTINGS)
    assert (timings.cache_n, timings.prompt_n, timings.prompt_ms, timings.predicted_ms) == (0, 4, 1.5, 2.0)
    assert timings.draft_n is None


def test_a_reply_in_another_key_order_is_the_same() -> None:
    """The order of keys does not matter."""
    turned = dict(reversed(whole().items()))
    assert read_whole(encoded(turned)) == read()


def test_whole_numbers_become_floats() -> None:
    """A logprob that the wire wrote as an integer is written as a float."""
    (step, *_) = read(completion_probabilities=[entry(5, -1), entry(6), entry(7)]).steps
    assert Stream(2, (step,)).to_bytes().endswith(b"[5,-1.0,[[5,-1.0],[6,-2.0]]]\n")


def test_a_reply_without_any_fact_has_none() -> None:
    """What the server did not say is None, and nothing is filled in."""
    parsed = read_whole(b'{"tokens":[5],"stop":true}')
    assert parsed.steps == (Step(5, None, ()),)
    said = (parsed.last.id_slot, parsed.last.prompt, parsed.last.truncated, parsed.timings.cache_n)
    assert said == (None, None, None, None)


@pytest.mark.parametrize(
    ("present", "holes"), [([5, 6, 7], []), ([6, 7], [5]), ([5, 7], [6]), ([5, 6], [7]), ([], [5, 6, 7])]
)
def test_a_token_without_entry_is_a_hole(present: list[int], holes: list[int]) -> None:
    """The server drops entries of tokens that end inside a character; the others keep their places."""
    parsed = read(completion_probabilities=[entry(token) for token in present])
    assert [step.token for step in parsed.steps] == [5, 6, 7]
    assert [step.token for step in parsed.steps if not step.top] == holes
    assert all(step.logprob is None for step in parsed.steps if not step.top)
    assert [step for step in parsed.steps if step.top] == [step for step in STEPS if step.token in present]


def test_no_key_for_entries_means_no_entries() -> None:
    """With n_probs 0 the whole key is missing."""
    assert [step.top for step in read(completion_probabilities=...).steps] == [(), (), ()]


def test_a_reply_to_an_empty_prompt_has_no_steps() -> None:
    """Nothing was generated, which is a reply with nothing to compare and no error."""
    parsed = read(tokens=[], tokens_predicted=0, completion_probabilities=...)
    assert (parsed.steps, parsed.tokens) == ((), ())


def test_an_entry_of_the_end_of_a_sequence_has_no_bytes() -> None:
    """Its text and its bytes are empty, and its logprob counts like any other."""
    assert read(completion_probabilities=[entry(5) | {"token": "", "bytes": []}, entry(6), entry(7)]).steps == STEPS


def test_equal_tokens_share_the_entries_in_order() -> None:
    """Where one of two equal tokens has no entry, the entry goes to the first; the second is the hole."""
    parsed = read(tokens=[5, 5, 7], completion_probabilities=[entry(5), entry(7)])
    assert [bool(step.top) for step in parsed.steps] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"completion_probabilities": [entry(5), entry(9)]}, "1 of 2 logprob entries belong to no generated token"),
        ({"completion_probabilities": [entry(7), entry(6), entry(5)]}, "2 of 3 logprob entries"),
        ({"tokens": [5, 6]}, "names 2 of 3 generated tokens"),
        ({"tokens": []}, "names 0 of 3 generated tokens"),
        ({"tokens": ...}, "no tokens"),
        ({"tokens": None}, "no tokens"),
        ({"stop": False}, "no tokens"),
        ({"stop": ...}, "no tokens"),
        ({"tokens": ["5", 6, 7]}, "cannot be read: Expected `int`"),
        ({"tokens": [5.5, 6, 7]}, "cannot be read: Expected `int`"),
        ({"completion_probabilities": [{"token": "x"}]}, "missing required field `id`"),
        ({"completion_probabilities": [entry(5, "high")]}, "cannot be read: Expected `float"),
        ({"completion_probabilities": [entry(5, True)]}, "cannot be read: Expected `float"),
        ({"timings": 3}, "cannot be read"),
        ({"error": {"code": 500, "message": "Context size has been exceeded."}}, "Context size has been exceeded"),
        ({"error": {"code": 500}}, "the server reports an error: .*500"),
    ],
)
def test_a_reply_that_is_not_what_was_asked_is_refused(changes: dict[str, Any], message: str) -> None:
    """Missing ids, entries of other tokens, other types: one line says what is wrong."""
    with pytest.raises(ReplyError, match=message) as caught:
        read(**changes)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"<html>no</html>", b'{"tokens":[5],"stop":true', b"\xff", b"{" * 10, b"[" * 200_000,
     b'{"tokens":[1e999],"stop":true}', b'{"tokens":[5],"stop":true,"prompt":"\xe2\x82"}',
     b'{"tokens":[5],"stop":true,"prompt":"\\ud800"}', b'{"tokens":[5],"stop":true,"timings":{"prompt_ms":1e999}}'],
)  # fmt: skip
def test_what_is_no_completion_is_refused_and_shown(body: bytes) -> None:
    """Anything else than JSON of a completion shows how it begins."""
    with pytest.raises(ReplyError, match=r"it begins b"):
        read_whole(body)
    with pytest.raises(ReplyError):
        read_events(b"data: " + body + b"\n\n")


def test_a_null_logprob_is_null_and_a_bare_nan_refuses_the_reply() -> None:
    """Null marks a missing number; NaN is no JSON, so nothing else in such a body is trusted."""
    parsed = read(completion_probabilities=[entry(5, None, [(5, None), (6, -1.0)]), entry(6), entry(7)])
    assert parsed.steps[0] == Step(5, None, ((5, None), (6, -1.0)))
    for text in ("NaN", "Infinity", "-Infinity", "1e999"):
        body = encoded(whole()).replace(b'"logprob": -0.5', b'"logprob": ' + text.encode(), 1)
        assert text.encode() in body
        with pytest.raises(ReplyError, match="cannot be read"):
            read_whole(body)


def test_a_logprob_just_above_zero_is_kept_and_counted() -> None:
    """Up to 1e-3 the server's rounding explains it; the value stays as it came."""
    parsed = read(completion_probabilities=[entry(5, 1e-3, [(5, 5e-4), (6, -1.0)]), entry(6), entry(7)])
    assert parsed.above_zero == 2
    assert parsed.steps[0] == Step(5, 1e-3, ((5, 5e-4), (6, -1.0)))


@pytest.mark.parametrize("nats", [1.1e-3, 0.5, 1e300])
def test_a_logprob_well_above_zero_refuses_the_reply(nats: float) -> None:
    """No probability is above one."""
    for changed in (entry(5, nats), entry(5, -0.5, [(5, -0.5), (6, nats)])):
        with pytest.raises(ReplyError, match="above zero"):
            read(completion_probabilities=[changed, entry(6), entry(7)])


def test_saturated_logprobs_are_counted() -> None:
    """Exactly 0.0, either sign, and the sentinel; they are kept."""
    top = [(5, 0), (6, -0.0), (7, SENTINEL), (8, -1e-30)]
    parsed = read(completion_probabilities=[entry(5, -0.5, top), entry(6), entry(7)])
    assert (parsed.saturated, parsed.above_zero) == (3, 0)
    assert [repr(nats) for _, nats in parsed.steps[0].top] == ["0.0", "-0.0", "-3.4028234663852886e+38", "-1e-30"]


POST = {"id": 5, "token": "x", "bytes": [120], "prob": 1.0, "top_probs": [{"id": 5, "token": "x", "prob": 1.0}]}


def test_the_post_sampling_dialect_is_refused() -> None:
    """Probabilities after sampling are no logprobs, whole, streamed or as rows."""
    readers: list[Callable[[], Parsed]] = [
        lambda: read(completion_probabilities=[POST, entry(6), entry(7)]),
        lambda: read_events(sse([event(5, entries=[POST]), *EVENTS[1:]])),
        lambda: as_rows(sse([event(5, entries=[POST]), LAST])),
    ]
    for read_it in readers:
        with pytest.raises(ReplyError, match="post-sampling"):
            read_it()


def test_a_drafted_token_has_no_top_k() -> None:
    """A speculative entry is read as it is: logprob 0.0, empty top-k, draft_n in the timings."""
    parsed = read(completion_probabilities=[entry(5, 0.0, []), entry(6), entry(7)], timings={**TIMINGS, "draft_n": 4})
    assert parsed.steps[0] == Step(5, 0.0, ())
    assert (parsed.timings.draft_n, parsed.saturated) == (4, 1)


def test_a_streamed_reply_is_the_whole_reply() -> None:
    """Tokens and entries of all events, the facts of the last."""
    streamed, parsed = read_events(sse(EVENTS)), read()
    assert (streamed.steps, streamed.tokens) == (parsed.steps, parsed.tokens)
    assert streamed.last.id_slot == 2
    assert streamed.timings == parsed.timings
    assert Stream(2, streamed.steps).logprob_digest == Stream(2, parsed.steps).logprob_digest


def fed(body: bytes, cuts: Iterable[int]) -> Parsed:
    """Read a stream that comes in chunks cut at these places."""
    sink, places = EventSink(), [0, *sorted(cuts), len(body)]
    for begin, end in pairwise(places):
        sink.feed(body[begin:end])
    return sink.finish()


NOISY = (
    b": a comment\r\n\r\n" + sse(EVENTS[:1], end=b"\r\n\r\n") + b"\n\n: ping\n\n"
    b"event: x\nid: 3\nretry: 5\n" + sse(EVENTS[1:2]) + b"data:\n\ndata: \n\n" + sse(EVENTS[2:3], end=b"\n\n\n\n")
    + sse([LAST], end=b"\r\n\r\n")
)  # fmt: skip


@given(st.lists(st.integers(0, len(NOISY)), max_size=12))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    """Inside a character, between CR and LF, inside a comment: the reply is the same."""
    assert "\u00e9".encode() in NOISY
    assert fed(NOISY, cuts) == read_events(sse(EVENTS))


def test_one_byte_at_a_time_is_the_same_reply() -> None:
    """The slowest server is read like the fastest."""
    assert fed(NOISY, range(len(NOISY))) == read_events(sse(EVENTS))


def test_an_event_of_several_data_lines_is_one() -> None:
    """Lines of data are joined by a line break, as server-sent events say."""
    body = sse(EVENTS).replace(b'"stop": true', b'"stop":\ndata: true')
    assert read_events(body).steps == STEPS


@pytest.mark.parametrize("cut", [b"\n\n", b"\n", b""])
def test_the_last_event_counts_without_its_blank_line(cut: bytes) -> None:
    """A server that closes right after its last line has said all."""
    assert read_events(sse(EVENTS).removesuffix(b"\n\n") + cut).tokens == (5, 6, 7)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_stream_that_ends_early_is_refused(kept: int) -> None:
    """Without the last event there is no reply, whatever came before; the error says how far it got."""
    with pytest.raises(ReplyError, match=rf"without its last event, after {kept} tokens"):
        read_events(sse(EVENTS[:kept]))


@pytest.mark.parametrize(
    "tail",
    [b'data: {"error":{"code":500,"message":"Context size has been exceeded."}}\n\n',
     b'error: {"code":500,"message":"Context size has been exceeded."}\n\n'],
)  # fmt: skip
def test_an_error_after_good_events_refuses_the_stream(tail: bytes) -> None:
    """HTTP said 200 long ago; the server's own words are in the error, in both dialects."""
    with pytest.raises(ReplyError, match="Context size has been exceeded"):
        read_events(sse(EVENTS[:2]) + tail)


def test_ids_that_vanish_from_a_stream_refuse_it() -> None:
    """A token that ends inside a character loses its id when streamed, which nothing can make up for."""
    with pytest.raises(ReplyError, match=r"names 2 of 3 generated tokens .*loses its id"):
        read_events(sse([event(5), event(entries=[]), event(7), LAST]))


def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by one event, and one event by a limit."""
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 100)
    reader = EventReader(lambda data: None)
    reader.feed(b"x" * 100)
    with pytest.raises(ReplyError, match="one event of the stream exceeds 100 bytes"):
        reader.feed(b"x")


VOCABULARY = 4


def full(*logprobs: object, order: Iterable[int] = (2, 0, 3, 1)) -> list[tuple[int, object]]:
    """Return a whole row, best first or in another order."""
    return [(token, logprobs[token]) for token in order]


def as_rows(body: bytes) -> Parsed:
    """Read a streamed reply whose entries are whole rows."""
    sink = EventSink(vocabulary=VOCABULARY)
    sink.feed(body)
    return sink.finish()


def canary(*rows: list[tuple[int, object]], predicted: int | None = None) -> bytes:
    """Return the stream of a canary."""
    events = [event(2, entries=[entry(2, -0.5, row)]) for row in rows]
    return sse([*events, {**LAST, "tokens_predicted": len(rows) if predicted is None else predicted}])


def test_rows_are_kept_as_float32_in_token_order() -> None:
    """Each step's whole row, in the order of ids; no step is kept beside it."""
    parsed = as_rows(canary(full(-1.0, -4.0, -0.5, -2.0), full(-1.0, -4.0, 0.0, SENTINEL, order=range(4))))
    assert parsed.rows is not None
    assert parsed.rows.dtype == np.float32
    assert parsed.rows.tolist() == [[-1.0, -4.0, -0.5, -2.0], [-1.0, -4.0, 0.0, SENTINEL]]
    assert (parsed.tokens, parsed.steps, parsed.saturated, parsed.above_zero) == ((2, 2), (), 2, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (canary(full(-1.0, -4.0, -0.5, -2.0)[:3]), "a row of 4 tokens has 3 entries"),
        (canary([*full(-1.0, -4.0, -0.5, -2.0), (3, -9.0)]), "a row of 4 tokens has 5 entries"),
        (canary(full(-1.0, None, -0.5, -2.0)), "null or no finite float32"),
        (canary(full(-1.0, -1e300, -0.5, -2.0)), "no finite float32"),
        (canary(full(-1.0, 0.5, -0.5, -2.0)), "above zero"),
        (canary(full(-1.0, -4.0, -0.5, -2.0), predicted=2), "names 1 of 2 generated tokens"),
        (sse([event(2, entries=[]), {**LAST, "tokens_predicted": 1}]), "0 rows came for 1 tokens"),
        (sse([event(2, entries=[entry(2, -0.5, [(2**70, -1.0)] * 4)]), LAST]), "Expected `int` <= 9223372036854775807"),
    ],
)
def test_rows_that_are_not_whole_refuse_the_reply(body: bytes, message: str) -> None:
    """A row lacks nothing, or there is no reply."""
    with pytest.raises(ReplyError, match=message):
        as_rows(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
odd_entries = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 8) | json_values},
        optional={
            "logprob": st.floats() | json_values,
            "prob": st.floats(),
            "top_logprobs": json_values
            | st.lists(st.fixed_dictionaries({"id": st.integers(0, 8) | st.just(2**70), "logprob": st.floats()})),
        },
    ),
    max_size=5,
)
odd_replies = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.lists(st.integers(0, 8), max_size=5) | json_values,
        "stop": st.booleans() | json_values,
        "tokens_predicted": st.integers(0, 5) | json_values,
        "completion_probabilities": odd_entries | json_values,
        "timings": st.dictionaries(st.sampled_from([*TIMINGS, "draft_n"]), json_values) | json_values,
        "generation_settings": json_values,
        "prompt": st.text() | json_values,
        "model": json_values,
        "error": json_values,
    },
)


def outcome(body: bytes) -> list[Parsed | ReplyError]:
    """Read a body in every way there is; anything but a reply or a ReplyError is raised."""
    found: list[Parsed | ReplyError] = []
    for read_it in (read_whole, read_events, as_rows):
        try:
            found.append(read_it(body))
        except ReplyError as error:
            found.append(error)
    return found


@given(st.binary() | st.builds(lambda text: b"data: " + text, st.binary()))
def test_any_bytes_become_a_reply_or_a_refusal(body: bytes) -> None:
    """No byte sequence breaks the reader."""
    assert all(isinstance(found, ReplyError) for found in outcome(body))
    assert isinstance(error_message(body), str)


@given(odd_replies, st.booleans())
def test_any_json_becomes_a_reply_or_a_refusal(reply: dict[str, Any], streamed: bool) -> None:
    """Whatever the fields hold, what is read can be written to the record, one step a token."""
    body = json.dumps(reply).encode()
    for found in outcome(b"data: " + body + b"\n\n" if streamed else body):
        if isinstance(found, Parsed) and found.rows is None:
            assert Stream(1, found.steps).tokens == found.tokens
            assert Stream.from_bytes(Stream(1, found.steps).to_bytes()).steps == found.steps
        elif isinstance(found, Parsed) and found.rows is not None:
            assert found.rows.shape == (len(found.tokens), VOCABULARY)
            assert np.isfinite(found.rows).all()


@given(json_values | odd_replies)
def test_an_error_body_is_told_in_one_short_line(value: object) -> None:
    """What an error body says, or how it begins."""
    text = error_message(json.dumps(value).encode())
    assert len(text) <= 500
    assert text.splitlines() in ([text], [])


def test_an_error_message_is_the_servers() -> None:
    """llama-server's form is read; any other body is shown."""
    assert error_message(b'{"error":{"code":400,"message":"no\\n way","type":"x"}}') == "no way"
    assert error_message(b"<html>") == "b'<html>'"


def test_a_body_that_is_no_json_is_named() -> None:
    """`what` says whose body it is."""
    assert decode(b"[1]", what="/slots") == [1]
    for body in (b"<html>", b"", b"\xff", b"[" * 200_000):
        with pytest.raises(ReplyError, match=r"/slots is not the JSON of a llama-server: .*it begins b"):
            decode(body, what="/slots")
