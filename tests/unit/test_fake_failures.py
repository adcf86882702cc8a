"""Each failure of the fake breaks the reply that it names, in the way that it says; the next request is answered."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from audit.fake import FakeSettings, FakeThread, Faults
from tests.unit.test_fake_faults import BODY, ask, entries, faulty

HIT = 1
STREAMED = BODY | {"stream": True}


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("loading_at", 503, "Loading model"),
        ("unauthorized_at", 401, "Invalid API Key"),
        ("context_exceeded_at", 400, "exceed_context_size_error"),
        ("server_error_at", 500, "proxy error"),
        ("redirected_at", 307, ""),
        ("html_at", 200, "<!DOCTYPE html>"),
    ],
)
def test_one_request_is_answered_with_something_else(fault: str, status: int, words: str) -> None:
    """Whole or streamed the request gets this status; those before and after it get their replies."""
    for body in (BODY, STREAMED):
        with faulty(**{fault: HIT}) as client:
            clean, other = entries(client), client.post("/completion", json=body)
            assert (other.status_code, words in other.text) == (status, True)
            assert entries(client) == clean


def test_a_context_error_names_both_numbers() -> None:
    """The one that matters to whoever has to shorten a prompt."""
    with faulty(context_exceeded_at=0) as client:
        error = client.post("/completion", json=BODY).json()["error"]
    assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == (400, 1200, 1024)


@pytest.mark.parametrize("fault", ["body_cut", "reset_before", "reset_middle"])
def test_a_connection_that_breaks_is_no_reply(fault: str) -> None:
    """The client sees a broken connection, whole and streamed, and what it asks next is answered."""
    for body in (BODY, STREAMED):
        with faulty(**{fault: HIT}) as client:
            clean = entries(client)
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                client.post("/completion", json=body)
            assert entries(client) == clean


def gather(response: httpx.Response, got: bytearray) -> None:
    """Add what arrives, as it arrives."""
    for chunk in response.iter_raw():
        got += chunk


def test_a_body_that_is_cut_has_come_by_half() -> None:
    """The head promises more bytes than arrive."""
    with faulty(body_cut=0) as client, client.stream("POST", "/completion", json=BODY) as response:
        length, got = int(response.headers["content-length"]), bytearray()
        with pytest.raises(httpx.RemoteProtocolError):
            gather(response, got)
    assert 0 < len(got) < length


@pytest.mark.parametrize("fault", ["stalled", "dripped"])
def test_a_server_that_does_not_come_to_an_end_waits_for_the_client_to_go(fault: str) -> None:
    """Nothing arrives in time, or never the last byte; once the client is gone the server answers the next one."""
    faults: dict[str, Any] = {fault: 0}
    for body in (BODY, STREAMED):
        with FakeThread(FakeSettings(faults=Faults(**faults))) as fake:
            host, port = fake.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as connection:
                data = json.dumps(body).encode()
                connection.sendall(
                    b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(data) + data
                )
                connection.settimeout(0.3 if fault == "stalled" else 30)
                if fault == "stalled":
                    with pytest.raises(TimeoutError):
                        connection.recv(1)
                else:
                    got = b""
                    while got.count(b"\r\n\r\n") < 1 or len(got.split(b"\r\n\r\n", 1)[1]) < 5:
                        got += connection.recv(64)
                    assert got.startswith(b"HTTP/1.1 200 OK")
            with httpx.Client(base_url=fake.url, trust_env=False, timeout=30) as client:
                assert len(entries(client)) == 8


@pytest.mark.parametrize("stream", [False, True])
def test_a_huge_body_is_the_reply_behind_100_mb(stream: bool) -> None:
    """A hundred million bytes come first, and then all that a small reply holds."""
    body, size, tail = BODY | {"stream": stream}, 0, b""
    with faulty(body_huge=0) as client:
        with client.stream("POST", "/completion", json=body) as response:
            for chunk in response.iter_raw():
                size, tail = size + len(chunk), (tail + chunk)[-8000:]
        clean = entries(client)
    assert 100_000_000 < size < 110_000_000
    text = tail.decode().strip() if not stream else tail.decode()
    if stream:
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [event["completion_probabilities"][0] for event in events[:-1]] == clean
    else:
        assert json.loads(text)["completion_probabilities"] == clean


def test_a_bare_nan_stands_in_the_json() -> None:
    """One number of one reply is NaN, which strict JSON has no word for."""
    with faulty(nan_at=0) as client:
        assert client.post("/completion", json=BODY).text.count("NaN") == 1
        assert "NaN" not in client.post("/completion", json=BODY).text


@pytest.mark.parametrize(("faults", "hit"), [({"null_logprob": 0}, [1, 0]), ({"null_logprobs": True}, [1, 1])])
def test_a_null_stands_at_the_last_rank_of_the_middle_step(faults: dict[str, Any], hit: list[int]) -> None:
    """In one reply or in all, whole and streamed alike."""
    with faulty(**faults) as client:
        replies = [entries(client) for _ in hit]
    for count, reply in zip(hit, replies, strict=True):
        nulls = [(step, rank) for step, entry in enumerate(reply) for rank, top in enumerate(entry["top_logprobs"])
                 if top["logprob"] is None]  # fmt: skip
        assert nulls == [(4, 3)] * count
    with faulty(null_logprobs=True) as client:
        text = client.post("/completion", json=STREAMED).text
    assert ["null" in event.split('"bytes"', 1)[-1] for event in text.split("\n\n")[:8]] == [False] * 4 + [True] + [
        False
    ] * 3


def test_a_key_is_missing_in_one_reply() -> None:
    """`tokens` is not there, and is there in the next."""
    with faulty(key_missing=0) as client:
        assert "tokens" not in ask(client)
        assert "tokens" in ask(client)


def test_keys_come_in_another_order_with_the_same_values() -> None:
    """The reply is the same object, written the other way round, also inside."""
    with faulty() as client:
        clean = ask(client)
    with faulty(keys_reordered=True) as client:
        turned = ask(client)
    assert list(turned) == list(clean)[::-1]
    assert list(turned["timings"]) == list(clean["timings"])[::-1]
    assert turned["completion_probabilities"] == clean["completion_probabilities"]


def test_events_come_in_pieces_that_cut_a_character() -> None:
    """Some piece of the stream ends inside a character of two bytes, and the whole is as it was."""
    with faulty(events_split=True) as client:
        with client.stream("POST", "/completion", json=STREAMED) as response:
            text = b"".join(response.iter_raw())
        clean = entries(client)
    assert text.decode().count("\u00e9") > 8
    events = [json.loads(event[6:]) for event in text.decode().split("\n\n") if event]
    assert [event["completion_probabilities"][0] for event in events[:-1]] == clean


def test_a_stream_breaks_off_with_an_event_of_an_error() -> None:
    """HTTP says 200, half of the events are good, the last one is an error; a whole reply is not touched."""
    for hit, body in ((0, STREAMED), (None, BODY)):
        with faulty(stream_error=0) as client:
            response = client.post("/completion", json=body)
            assert response.status_code == 200
            assert ("Context size has been exceeded" in response.text) is (hit == 0)
            assert len(entries(client)) == 8
    with faulty(stream_error=0) as client:
        events = client.post("/completion", json=STREAMED).text.split("\n\n")
    assert [json.loads(event[6:]).keys() == {"error"} for event in events if event] == [False] * 4 + [True]


def test_a_wave_ends_at_once_where_its_members_hold_too_much() -> None:
    """One request fits, two of several prompts do not: both are a 500, and the server goes on."""
    with faulty(wave_overflows=18) as client:
        both = client.post("/completion", json=BODY | {"prompt": [[40, 50, 60], [41, 51, 61]], "id_slot": -1})
        assert (both.status_code, both.json()["error"]["message"]) == (500, "Context size has been exceeded.")
        assert len(entries(client)) == 8
        assert not any(slot["is_processing"] for slot in client.get("/slots").json())


@pytest.mark.parametrize(
    ("faults", "path"), [({"metrics_missing": True}, "/metrics"), ({"slots_missing": True}, "/slots")]
)
def test_an_optional_endpoint_is_not_offered(faults: dict[str, Any], path: str) -> None:
    """It is a 501, and `/props` says so."""
    with faulty(**faults) as client:
        assert client.get(path).status_code == 501
        assert client.get("/props").json()[f"endpoint_{path[1:]}"] is False


def test_metrics_get_lost() -> None:
    """They are there before the second request and not after it."""
    with faulty(metrics_lost_after=2) as client:
        found = []
        for _ in range(3):
            entries(client)
            found.append(client.get("/metrics").status_code)
    assert found == [200, 501, 501]


def test_a_server_refuses_every_connection_after_a_while() -> None:
    """From then on nothing is answered, not even `/health`."""
    with FakeThread(FakeSettings(faults=Faults(refuses_after=2))) as fake:
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            assert [client.post("/completion", json=BODY).status_code for _ in range(2)] == [200, 200]
        for _ in range(2):
            with httpx.Client(base_url=fake.url, trust_env=False) as client, pytest.raises(httpx.TransportError):
                client.get("/health")
