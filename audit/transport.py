"""httpx over one connection, on which the last byte of a request can wait and then leave at once.

httpx hands a request to httpcore, and httpcore hands bytes to a network stream. The stream here is httpcore's own but
for two things: head and body leave in one piece, and a byte that is held has gone through all layers before its
release, so that what is left to do then is a single write to the socket. In go requests of httpx, out come its
responses; what breaks is told by exceptions of httpcore.
"""

import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any

import httpcore
import httpx

from audit.schedule import Hold

__all__ = ["BROKEN", "TIMED_OUT", "UNCONNECTED", "Transport"]

# What an exchange can end with. httpcore's names are those of httpx, of which it is a part.
UNCONNECTED = httpcore.ConnectError
TIMED_OUT = httpcore.TimeoutException
BROKEN = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol)


class Transport(httpx.AsyncBaseTransport):
    """One HTTP/1.1 connection, kept while it is used again within `keepalive_s` seconds.

    `tls` is the context of an https address.
    """

    def __init__(self, *, tls: ssl.SSLContext | None, keepalive_s: float) -> None:
        """Prepare; the connection is made by the first request."""
        self._network = _Network()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=keepalive_s,
            network_backend=self._network,
        )

    def hold_last_byte(self, request: httpx.Request, hold: Hold, note: Callable[[], None]) -> None:
        """Let the last byte of a request's body wait for `hold`; `note` is called right before it leaves.

        A server begins no request before it has the whole of it.
        """
        request.stream = _LastByteHeld(request.content, self._network, hold, note)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return when the head of the reply is there."""
        reply = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(reply.status, headers=reply.headers, stream=_Body(reply), extensions=reply.extensions)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of a reply as httpx wants it."""

    def __init__(self, reply: httpcore.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._reply.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._reply.aclose()


class _LastByteHeld(httpx.AsyncByteStream):
    """A body of which the network holds the last byte: what that waits for, and who is told when it leaves."""

    def __init__(self, body: bytes, network: "_Network", hold: Hold, note: Callable[[], None]) -> None:
        self._body, self._network, self.hold, self.note = body, network, hold, note

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body[:-1]
        self._network.held = self
        yield self._body[-1:]


class _Network(httpcore.AsyncNetworkBackend):
    """Connects as httpcore does; `held` is for the next bytes that are written."""

    def __init__(self) -> None:
        self.held: _LastByteHeld | None = None
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options), self)


class _Stream(httpcore.AsyncNetworkStream):
    """A stream of httpcore that sends a request in one piece, and held bytes past it, straight to the socket."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, network: _Network) -> None:
        self._stream, self._network, self._unsent = stream, network, b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        # A server may refuse a request before it has all of it, so that what cannot be sent hides no answer.
        with suppress(httpcore.WriteError):
            await self._send(timeout)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        held, self._network.held = self._network.held, None
        if held is not None:
            await self._send(timeout)
            buffer = buffer[await self._write_at_release(buffer, held) :]
        self._unsent += buffer

    async def _send(self, timeout: float | None) -> None:  # noqa: ASYNC109 - httpcore's
        unsent, self._unsent = self._unsent, b""
        await self._stream.write(unsent, timeout)

    async def _write_at_release(self, buffer: bytes, held: _LastByteHeld) -> int:
        """Wait, write what the socket takes at the moment of release, and return how many bytes that was.

        Whatever was written before has left: a write of the stream ends when its buffer is empty. Encrypted bytes are
        not written here, nor is a failure told here: the stream does both, right after.
        """
        encrypted = self._stream.get_extra_info("ssl_object") is not None
        socket = self._stream.get_extra_info("socket")
        written = 0

        def leave() -> None:
            nonlocal written
            held.note()
            if not encrypted:
                with suppress(OSError):
                    written = os.write(socket.fileno(), buffer)

        await held.hold(leave)
        return written

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._network)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's
        return self._stream.get_extra_info(info)
