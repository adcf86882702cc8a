"""A client sends exactly what it was given, once, to nobody else, and tells what became of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit import client as client_module
from audit.client import Address, Client, Exchange, _Mask
from audit.errors import ReplyError, UsageError
from tests.unit.stub_server import CLOSE, RESET, SILENCE, Asked, Stub, chunked, reply, stub

KEY = "sk-secret-0123456789"
BODY = b'{"prompt":[1,2]}\n'
Answer = Callable[[Asked], bytes | list[bytes]]


class Chunks:
    """A sink that keeps what it is fed, and refuses a chunk."""

    def __init__(self, *, refused: bytes | None = None) -> None:
        self.fed: list[bytes] = []
        self.refused = refused

    def feed(self, chunk: bytes) -> None:
        """Take a chunk."""
        self.fed.append(chunk)
        if self.refused is not None and self.refused in chunk:
            raise ReplyError("this chunk is refused")


def ask(
    answer: Answer,
    *,
    path: str = "/completion",
    body: bytes | None = BODY,
    key: str | None = None,
    prefix: str = "",
    sink: Chunks | None = None,
    timeout_s: float = 5.0,
    times: int = 1,
) -> tuple[list[Exchange], Stub]:
    """Ask a stub one thing, so many times on one client."""

    async def talk() -> tuple[list[Exchange], Stub]:
        async with stub(answer) as server:
            address = Address(label="a", url=server.url + prefix, key=key)
            async with Client(address, timeout_s=timeout_s) as client:

                async def once() -> Exchange:
                    return await (client.get(path) if body is None else client.post(path, body, sink=sink))

                return [await once() for _ in range(times)], server

    return asyncio.run(talk())


def ok(_asked: Asked) -> bytes:
    """Answer with an empty object."""
    return reply()


def test_a_post_sends_exactly_these_bytes() -> None:
    """Method, path and body arrive as given, and nothing invites anybody to compress the answer."""
    (exchange,), server = ask(ok, prefix="/llm/v2")
    (asked,) = server.asked
    assert (asked.line, asked.body) == ("POST /llm/v2/completion HTTP/1.1", BODY)
    assert asked.headers["content-type"] == asked.headers["accept"] == "application/json"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["user-agent"] == "determinism-audit"
    assert "authorization" not in asked.headers
    assert (exchange.status, exchange.body, exchange.failure) == (200, b"{}", None)


def test_a_get_has_no_body() -> None:
    """Neither body nor content type."""
    _, server = ask(ok, body=None, path="/props")
    (asked,) = server.asked
    assert asked.line == "GET /props HTTP/1.1"
    assert asked.body == b""
    assert "content-type" not in asked.headers


def test_the_key_is_sent_and_never_shown() -> None:
    """It goes into one header; no repr of address, client or exchange holds it."""
    (exchange,), server = ask(ok, key=KEY)
    address = Address(label="a", url=server.url, key=KEY)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    for shown in (address, Client(address, timeout_s=1.0), exchange):
        assert KEY not in repr(shown)
        assert KEY not in str(shown)


@pytest.mark.parametrize("key", ["", "  ", "secret\n", "sec\r\nret", "secr\u00e9t", "secret\x00"])
def test_a_key_that_no_header_carries_is_refused_without_showing_it(key: str) -> None:
    """What the HTTP library would say about it shows the key, so it never gets that far."""
    with pytest.raises(UsageError, match="API key") as caught:
        Address(label="a", url="http://127.0.0.1:1", key=key)
    assert "sec" not in f"{caught.value.message} {caught.value.hint}"


def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy, no netrc: the server is asked directly and as nobody."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, dead)
        monkeypatch.setenv("no_proxy", "")
        (tmp_path / "netrc").write_text("default login user password secret\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        monkeypatch.setenv("HOME", str(tmp_path))
        (exchange,), server = ask(ok)
    assert exchange.status == 200
    assert "authorization" not in server.asked[0].headers


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed_and_the_key_stays(status: str) -> None:
    """The answer is the redirect itself; where it points nobody asks."""

    async def talk() -> tuple[Exchange, Stub]:
        async with stub(ok) as other:
            moved = reply(status=status, headers=f"Location: {other.url}/completion\r\n")
            async with (
                stub(lambda _: moved) as server,
                Client(Address(label="a", url=server.url, key=KEY), timeout_s=5.0) as client,
            ):
                return await client.post("/completion", BODY), other

    exchange, other = asyncio.run(talk())
    assert exchange.status == int(status[:3])
    assert exchange.failure is None
    assert other.asked == []


def test_one_client_is_one_connection() -> None:
    """Requests one after the other share it: a server's slot is not the client's doing."""
    found, server = ask(ok, times=3)
    assert [exchange.status for exchange in found] == [200] * 3
    assert [asked.connection for asked in server.asked] == [1, 1, 1]


def test_times_follow_each_other() -> None:
    """Sent, first byte, last byte, on the monotonic clock."""
    before = time.monotonic_ns()
    (exchange,), _ = ask(lambda _: chunked(b"{", b"}"))
    assert exchange.first_byte_ns is not None
    assert exchange.last_byte_ns is not None
    assert before <= exchange.sent_ns <= exchange.first_byte_ns <= exchange.last_byte_ns <= time.monotonic_ns()


def test_the_last_byte_waits_and_nobody_has_the_request_before() -> None:
    """The rest is on its way before the release; the bytes are the same, and `sent_ns` is the release."""

    async def talk() -> tuple[Exchange, int, int, Stub]:
        async with stub(ok) as server, Client(Address(label="a", url=server.url), timeout_s=5.0) as client:
            asked_before: list[int] = []

            async def hold(leave: Callable[[], None]) -> None:
                await asyncio.sleep(0.05)
                asked_before.extend([server.connections, len(server.asked), time.monotonic_ns()])
                leave()

            exchange = await client.post("/completion", BODY, hold=hold)
            connections, asked, released_ns = asked_before
            assert asked == 0
            return exchange, connections, released_ns, server

    exchange, connections, released_ns, server = asyncio.run(talk())
    assert exchange.failure is None
    assert connections == 1
    assert released_ns <= exchange.sent_ns <= (exchange.first_byte_ns or 0)
    (asked,) = server.asked
    assert asked.body == BODY
    assert asked.headers["content-length"] == str(len(BODY))
    assert "transfer-encoding" not in asked.headers


def test_a_body_larger_than_any_buffer_arrives_in_order_before_its_last_byte() -> None:
    """What is written past httpx overtakes nothing."""
    body = bytes(n % 251 for n in range(8_000_000)) + b"}"

    async def talk() -> tuple[Exchange, Stub]:
        async with stub(ok) as server, Client(Address(label="a", url=server.url), timeout_s=20.0) as client:

            async def hold(leave: Callable[[], None]) -> None:
                assert server.asked == []
                leave()

            return await client.post("/completion", body, hold=hold), server

    exchange, server = asyncio.run(talk())
    assert exchange.failure is None
    assert [asked.body == body for asked in server.asked] == [True]


def test_one_request_of_a_client_is_held_and_the_next_is_not() -> None:
    """A hold is for its own request."""

    async def talk() -> tuple[list[int], Stub]:
        held: list[int] = []
        async with stub(ok) as server, Client(Address(label="a", url=server.url), timeout_s=5.0) as client:

            async def hold(leave: Callable[[], None]) -> None:
                held.append(len(server.asked))
                leave()

            await client.post("/completion", BODY)
            await client.post("/completion", BODY, hold=hold)
            await client.post("/completion", BODY)
            return held, server

    held, server = asyncio.run(talk())
    assert held == [1]
    assert [asked.body for asked in server.asked] == [BODY] * 3


def test_a_connection_that_is_reset_before_the_release_is_a_failure_of_the_exchange() -> None:
    """The write that nobody takes is told like any other that fails."""

    async def talk() -> Exchange:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
            ended.set()

        async def hold(leave: Callable[[], None]) -> None:
            await ended.wait()
            leave()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = Address(label="a", url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with Client(address, timeout_s=5.0) as client:
                return await client.post("/completion", BODY, hold=hold)

    exchange = asyncio.run(talk())
    assert exchange.failure is not None
    assert (exchange.failure[0], exchange.status) == ("transport", None)


def test_a_connection_that_fails_before_the_release_is_not_held() -> None:
    """What nobody can receive waits for nothing: the failure is told, and the hold was never asked."""

    async def talk() -> Exchange:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        async def hold(_leave: Callable[[], None]) -> None:
            raise AssertionError("held")

        async with Client(Address(label="a", url=f"http://127.0.0.1:{port}"), timeout_s=5.0) as client:
            return await client.post("/completion", BODY, hold=hold)

    failure = asyncio.run(talk()).failure
    assert failure is not None
    assert failure[0] == "connect"


def test_an_empty_body_ends_with_its_head() -> None:
    """Without a body the last byte is the head's."""
    (exchange,), _ = ask(lambda _: reply(b""))
    assert exchange.body == b""
    assert exchange.last_byte_ns == exchange.first_byte_ns is not None


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized", "500 Internal Server Error", "503 Loading"])
def test_an_error_status_is_an_answer(status: str) -> None:
    """Its body is kept, and it is no failure of the exchange; nothing is tried again."""
    (exchange,), server = ask(lambda _: reply(b'{"error":{}}', status=status))
    assert (exchange.status, exchange.body, exchange.failure) == (int(status[:3]), b'{"error":{}}', None)
    assert len(server.asked) == 1


FAILURES: dict[str, tuple[list[bytes], str, int | None, bytes]] = {
    "no answer at all": ([SILENCE], "timeout", None, b""),
    "silence after the head": ([reply(length=9, body=b""), SILENCE], "timeout", 200, b""),
    "silence in the body": ([reply(b"abc", length=9), SILENCE], "timeout", 200, b"abc"),
    "a reset before the head": ([RESET], "transport", None, b""),
    "a reset in the body": ([reply(b"abc", length=9), CLOSE], "transport", 200, b"abc"),
    "a stream without end": ([*chunked(b"abc", end=False), CLOSE], "transport", 200, b"abc"),
    "a head that is no HTTP": ([b"220 mail.example ESMTP\r\n\r\n", CLOSE], "transport", None, b""),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILURES)
def test_what_breaks_off_is_a_failure_that_keeps_what_came(what: str) -> None:
    """The kind says what happened; the part of the body that arrived is kept; nothing is sent twice."""
    parts, kind, status, body = FAILURES[what]
    (exchange,), server = ask(lambda _: parts, timeout_s=0.2 if SILENCE in parts else 5.0)
    assert exchange.failure is not None
    assert (exchange.failure[0], exchange.status, exchange.body) == (kind, status, body)
    assert (exchange.first_byte_ns is None) == (status is None)
    assert len(server.asked) == 1


def test_bytes_beyond_the_promised_length_answer_nobody() -> None:
    """A Content-Length that is too short cuts the body, and what follows it is no reply to the next request."""
    found, _ = ask(lambda _: reply(b"abcdef", length=3), times=2)
    assert [exchange.body for exchange in found] == [b"abc", b""]
    assert [exchange.failure and exchange.failure[0] for exchange in found] == [None, "transport"]


def test_an_unreachable_port_is_a_failed_connection() -> None:
    """Nothing was sent, nothing arrived."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

        async def talk() -> Exchange:
            async with Client(Address(label="a", url=url), timeout_s=5.0) as client:
                return await client.get("/props")

        exchange = asyncio.run(talk())
    assert exchange.failure is not None
    assert exchange.failure[0] == "connect"
    assert (exchange.status, exchange.first_byte_ns, exchange.last_byte_ns) == (None, None, None)


def test_the_deadline_is_for_the_whole_exchange() -> None:
    """A server that keeps dripping bytes does not hold a run up for ever."""
    (exchange,), _ = ask(lambda _: [reply(b"", length=99), *[b"x"] * 3, SILENCE], timeout_s=0.2)
    assert exchange.failure == ("timeout", "TimeoutError: no whole answer within 0.2 s")


def test_a_body_beyond_the_limit_is_cut_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded whatever a server sends."""
    monkeypatch.setattr(client_module, "BODY_BYTES_MAX", 10)
    (exchange,), _ = ask(lambda _: reply(b"x" * 50))
    assert exchange.failure == ("refused", "the body exceeds 10 bytes and was cut")
    assert exchange.body == b"x" * 10


def test_a_sink_gets_the_stream_and_only_its_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A streamed reply may be larger than memory."""
    monkeypatch.setattr(client_module, "KEPT_BYTES_MAX", 4)
    sink = Chunks()
    (exchange,), _ = ask(lambda _: chunked(b"abc", b"def", b"ghi"), sink=sink)
    assert b"".join(sink.fed) == b"abcdefghi"
    assert (exchange.body, exchange.failure) == (b"abcd", None)


def test_what_a_sink_refuses_ends_the_reply() -> None:
    """Its words are the failure, and what came until then is kept."""
    sink = Chunks(refused=b"bad")
    (exchange,), _ = ask(lambda _: [*chunked(b"good", end=False), b"3\r\nbad\r\n", SILENCE], sink=sink)
    assert exchange.failure == ("stream_error", "this chunk is refused")
    assert (exchange.status, exchange.body) == (200, b"goodbad")


def test_an_error_body_is_kept_whole_and_never_fed() -> None:
    """A stream that was refused answers with plain JSON."""
    sink = Chunks()
    (exchange,), _ = ask(lambda _: reply(b'{"error":{}}', status="400 Bad Request"), sink=sink)
    assert sink.fed == []
    assert (exchange.status, exchange.body) == (400, b'{"error":{}}')


def test_https_where_nobody_speaks_it_is_a_failed_connection(tmp_path: Path) -> None:
    """A server that hangs up on the handshake is one; an unreadable CA file is the user's to change."""

    async def talk() -> Exchange:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            address = Address(label="a", url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with Client(address, timeout_s=5.0) as client:
                return await client.get("/props")

    failure = asyncio.run(talk()).failure
    assert failure is not None
    assert failure[0] in {"connect", "transport"}
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(UsageError, match=rf"--ca .*{name}: no certificates"):
            Client(Address(label="a", url="https://127.0.0.1:1", ca=tmp_path / name), timeout_s=1.0)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("a=http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("a=http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("A.b-c_9=https://host.example/llm/", "https://host.example/llm"),
        ("a=http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_address_is_name_and_url(text: str, url: str) -> None:
    """What stands before the first = is the label; a slash at the end is dropped."""
    address = Address.parse(text, key=KEY)
    assert (address.label, address.url, address.key) == (text.split("=", 1)[0], url, KEY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not NAME=URL"),
        ("http://127.0.0.1:8080", "is not NAME=URL"),
        ("=http://127.0.0.1:8080", "is not NAME=URL"),
        ("a=", "is not NAME=URL"),
        ("a=127.0.0.1:8080", "is not NAME=URL"),
        ("a=ftp://127.0.0.1", "is not NAME=URL"),
        ("a=http://", "is not NAME=URL"),
        ("a=http://127.0.0.1:99999", "is not NAME=URL"),
        ("a=http://127.0.0.1:0", "is not NAME=URL"),
        ("a=http://127.0.0.1:port", "is not NAME=URL"),
        ("a=http://[::1", "is not NAME=URL"),
        ("a=http://a b", "is not NAME=URL"),
        ("a b=http://127.0.0.1:8080", "'a b' may hold letters"),
        ("a/b=http://127.0.0.1:8080", "'a/b' may hold letters"),
        ("\u00e9=http://127.0.0.1:8080", "may hold letters"),
        ("a=http://127.0.0.1:8080/?x=1", "must end with its path"),
        ("a=http://127.0.0.1:8080#x", "must end with its path"),
        ("a=http://user:password@127.0.0.1:8080", "DETERMINISM_API_KEY"),
    ],
)
def test_what_is_no_address_is_refused(text: str, message: str) -> None:
    """The error shows the text or the part of it that is wrong, but no password."""
    with pytest.raises(UsageError, match=message) as caught:
        Address.parse(text)
    assert "password@" not in caught.value.message


@given(parts=st.lists(st.sampled_from([b"", b"s", b"sk-1", b"sk-1sk-2sk-", b"2sk-3", b"3", b"sk-1sk-2sk-3", b"x"])))
def test_the_key_is_masked_however_it_is_cut_into_chunks(parts: list[bytes]) -> None:
    """What is handed on is the body with the key replaced, byte for byte as long, nothing lost at the end."""
    mask = _Mask("sk-1sk-2sk-3")
    got = [mask.chunk(part) for part in parts]
    got.append(mask.chunk(b"", last=True))
    assert b"".join(got) == b"".join(parts).replace(b"sk-1sk-2sk-3", b"*" * 12)
    assert mask.text("Bearer sk-1sk-2sk-3") == "Bearer ************"


@pytest.mark.parametrize("key", [None, "k", "0", "12345", "elevenchars"])
def test_no_key_and_a_short_one_change_no_byte(key: str | None) -> None:
    """A key that is a digit would take numbers out of the evidence."""
    mask = _Mask(key)
    assert mask.chunk(b'{"k":0.12345}') == b'{"k":0.12345}'
    assert mask.chunk(b"", last=True) == b""
    assert mask.text("k 0") == "k 0"
