"""One request in, one raw reply out: no retry, no redirect, no judgement.

A `Client` holds one connection to one server. In go a method, a path and the exact bytes of a body, out comes an
`Exchange`: status, headers, body, when the request left and when bytes arrived, or what failed. Requests and replies
are httpx's, its client is left out: no proxy or netrc of the environment, no redirect, no cookie, no header of its own.
"""

import asyncio
import os
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import httpx

from audit.errors import ReplyError, UsageError
from audit.schedule import Hold
from audit.transport import BROKEN, TIMED_OUT, UNCONNECTED, Transport

__all__ = ["BODY_BYTES_MAX", "Address", "Client", "Exchange", "Sink"]

# A whole reply of 1,000 steps with 1,000 logprobs each is about 110 MB; what exceeds this is cut and refused.
BODY_BYTES_MAX = 256 * 1024 * 1024
# Of a streamed reply that fails only the beginning is kept.
KEPT_BYTES_MAX = 64 * 1024
# llama-server closes a connection that was idle for 5 s; a client that trusts it longer reconnects behind our back.
KEEPALIVE_S = 3.0
KEY_MASKED_MIN = 12
CONNECT_TIMEOUT_S = 5.0


class Sink(Protocol):
    """Takes the chunks of a body as they arrive."""

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server is and how to be let in; the key is never shown.

    `ca` is the file of a private certificate authority.
    """

    label: str
    url: str
    key: str | None = field(default=None, repr=False)
    ca: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a key that no header can carry: what complains about it later would show it."""
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key.strip()):
            raise UsageError(
                "the API key is empty or holds a character that no HTTP header can carry",
                hint="look at DETERMINISM_API_KEY or the file of --key-file: a line break, a quote mark?",
            )

    @classmethod
    def parse(cls, text: str, *, key: str | None = None, ca: Path | None = None) -> Self:
        """Read `NAME=URL`.

        Raises: UsageError where the text names no http(s) address.
        """
        label, separator, url = text.partition("=")
        try:
            parts = urlsplit(url)
            complete = bool(parts.hostname) and parts.port != 0 and bool(httpx.URL(url).host) and " " not in url
        except (ValueError, httpx.InvalidURL):
            parts, complete = urlsplit(""), False
        if not separator or not label or not complete or parts.scheme not in {"http", "https"}:
            raise UsageError(
                f"--server {text!r} is not NAME=URL", hint="for example --server small=http://127.0.0.1:8080"
            )
        if not (label.isascii() and all(character.isalnum() or character in "._-" for character in label)):
            raise UsageError(f"--server: the name {label!r} may hold letters, digits, dot, dash and underscore only")
        if parts.username or parts.password:
            raise UsageError(
                f"--server {label}: a URL with a password would be stored by your shell; use DETERMINISM_API_KEY"
            )
        if "?" in url or "#" in url:
            raise UsageError(f"--server {label}: the URL {url!r} must end with its path")
        return cls(label=label, url=url.rstrip("/"), key=key, ca=ca)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One attempt at a request, whatever became of it; times are nanoseconds of `time.monotonic_ns`.

    `sent_ns` is right before the first byte, or right before the last one where that was held back: no server can have
    begun before.
    `failure` is (kind, message) or None; `status` is None where no head arrived; `body` is what was kept.
    """

    sent_ns: int
    first_byte_ns: int | None = None
    last_byte_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    failure: tuple[str, str] | None = None


class _Mask:
    """Takes the key out of what a server sends back: a refusal may repeat it, and what is received is stored.

    A key that is so short that it may stand in a reply by accident is left: evidence is not changed for it.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key.encode("ascii") if key is not None and len(key) >= KEY_MASKED_MIN else b""
        self._held = b""

    def chunk(self, data: bytes, *, last: bool = False) -> bytes:
        """Return what can be handed on; a tail that may be the beginning of the key is held back until the next."""
        if not self._key:
            return data
        data = (self._held + data).replace(self._key, b"*" * len(self._key))
        held = 0 if last else next(n for n in range(len(self._key) - 1, -1, -1) if data.endswith(self._key[:n]))
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def text(self, text: str) -> str:
        """Return a header's value or a message without the key."""
        return text.replace(self._key.decode(), "*" * len(self._key)) if self._key else text


class _Clock:
    """Notes when the first byte leaves, or the last one that was held, and when the reply's head is in."""

    def __init__(self) -> None:
        self.sent_ns = time.monotonic_ns()
        self.first_byte_ns: int | None = None

    def sent(self) -> None:
        self.sent_ns = time.monotonic_ns()

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event == "http11.send_request_headers.started":
            self.sent()
        elif event == "http11.receive_response_headers.complete":
            self.first_byte_ns = time.monotonic_ns()


def _tls(address: Address) -> ssl.SSLContext | None:
    """Build a TLS context only where it is needed: it costs tens of milliseconds a client."""
    if not address.url.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=None if address.ca is None else os.fspath(address.ca))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca {address.ca}: no certificates can be read from it: {error}") from error


class Client:
    """One connection to one server, used as an async context manager."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        """Prepare; the connection is made by the first request.

        Args:
            address: the server.
            timeout_s: how long a whole exchange may take, in seconds.
        """
        # Bodies are kept as they came, so nobody on the way is invited to compress them.
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "keep-alive",
            "User-Agent": "determinism-audit",
        }
        if address.key is not None:
            self._headers["Authorization"] = f"Bearer {address.key}"
        self.address = address
        self._timeout_s = timeout_s
        self._transport = Transport(tls=_tls(address), keepalive_s=KEEPALIVE_S)
        self._timeouts = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S).as_dict()

    async def __aenter__(self) -> Self:
        """Open the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self._transport.aclose()

    def _request(self, method: str, path: str, body: bytes | None = None) -> httpx.Request:
        """Build a request; nothing that a client of httpx would add by itself is in it."""
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        extensions = {"timeout": self._timeouts}
        return httpx.Request(method, self.address.url + path, headers=headers, content=body, extensions=extensions)

    async def get(self, path: str) -> Exchange:
        """Send a GET."""
        return await self._send(self._request("GET", path))

    async def post(self, path: str, body: bytes, *, sink: Sink | None = None, hold: Hold | None = None) -> Exchange:
        """Send a POST with exactly these bytes, of which the last one waits for `hold` where that is given."""
        return await self._send(self._request("POST", path, body), sink=sink, hold=hold)

    async def _send(self, request: httpx.Request, *, sink: Sink | None = None, hold: Hold | None = None) -> Exchange:
        """Send a request once.

        A reply of status 200 goes into `sink` where one is given, and only its beginning is kept; otherwise the whole
        body is kept, up to BODY_BYTES_MAX. A ReplyError of the sink ends the reply and is the exchange's failure.
        """
        clock, mask = _Clock(), _Mask(self.address.key)
        request.extensions["trace"] = clock.trace
        if hold is not None:
            self._transport.hold_last_byte(request, hold, clock.sent)
        body = bytearray()
        status, headers, failure, last_byte_ns = None, {}, None, None
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._transport.handle_async_request(request)
                try:
                    status = response.status_code
                    headers = {name: mask.text(value) for name, value in response.headers.items()}
                    feed = sink.feed if sink is not None and status == httpx.codes.OK else None
                    room = KEPT_BYTES_MAX if feed else BODY_BYTES_MAX
                    async for chunk in response.aiter_raw():
                        last_byte_ns = time.monotonic_ns()
                        shown = mask.chunk(chunk)
                        body += shown[: room - len(body)]
                        if feed is not None:
                            feed(shown)
                        elif len(body) >= room:
                            failure = ("refused", f"the body exceeds {BODY_BYTES_MAX} bytes and was cut")
                            break
                    shown = mask.chunk(b"", last=True)
                    body += shown[: room - len(body)]
                    if feed is not None and shown:
                        feed(shown)
                    last_byte_ns = last_byte_ns or clock.first_byte_ns
                finally:
                    await response.aclose()
        except UNCONNECTED as error:
            failure = ("connect", str(error) or "connection refused")
        except (TimeoutError, TIMED_OUT) as error:
            failure = ("timeout", f"{type(error).__name__}: no whole answer within {self._timeout_s:g} s")
        except ReplyError as error:
            failure = ("stream_error", error.message)
        except (*BROKEN, httpx.HTTPError, httpx.InvalidURL) as error:
            failure = ("transport", mask.text(f"{type(error).__name__}: {error}"))
        return Exchange(
            sent_ns=clock.sent_ns,
            first_byte_ns=clock.first_byte_ns,
            last_byte_ns=last_byte_ns,
            status=status,
            headers=headers,
            body=bytes(body),
            failure=failure,
        )
