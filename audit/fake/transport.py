"""Transport: HTTP/1.1 on one connection, the way llama-server's library speaks it.

In: an asyncio stream pair. Out: requests, parsed by h11; replies, written as raw bytes in one place, so that what goes
over the wire is exactly what is asked for. It knows no routes. Errors close the connection, as do an idle time of
5 s and the hundredth reply.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import h11

__all__ = ["JSON", "Connection", "HttpRequest"]

_IDLE_S_MAX = 5
_REPLIES_MAX = 100
_READ_BYTES = 65536
JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: method, path without the query, the query's fields, headers with lower-case names, body."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One accepted connection, request after request.

    Args:
        reader: where bytes come from.
        writer: where bytes go.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._left_over = b""
        self._replies = 0
        self._closing = False
        self._way: Callable[[Connection, bytes], Awaitable[None]] | None = None
        self._copy: list[bytes] | None = None

    def gone(self) -> bool:
        """Say whether the client has closed its side."""
        return self._reader.at_eof()

    def abort(self) -> None:
        """Drop the connection at once, unsent bytes included."""
        self._closing = True
        self._writer.transport.abort()

    def take_way(
        self, way: "Callable[[Connection, bytes], Awaitable[None]] | None", *, copy: list[bytes] | None = None
    ) -> None:
        """Send what follows by a way of its own, and add each piece to a copy; None is the straight way, and none."""
        self._way, self._copy = way, copy

    async def put(self, data: bytes) -> None:
        """Put bytes on the wire and wait until there is room for more."""
        if data and not self._writer.is_closing():
            self._writer.write(data)
            await self._writer.drain()

    async def wait_gone(self) -> None:
        """Wait until the client closes its side."""
        self._closing = True
        while not self._reader.at_eof():
            await self._reader.read(_READ_BYTES)

    async def close(self) -> None:
        """Close the connection after everything is sent."""
        self._closing = True
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            # The client was faster; there is nobody left to tell.
            return

    async def receive(self) -> HttpRequest | None:
        """Return the next request, None when there will be none.

        Raises: h11.RemoteProtocolError, for bytes that are no HTTP request.
        """
        if self._closing:
            return None
        parser = h11.Connection(h11.SERVER)
        if self._left_over:
            parser.receive_data(self._left_over)
        head: h11.Request | None = None
        body: list[bytes] = []
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                if not await self._feed(parser):
                    return None
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                self._left_over = parser.trailing_data[0]
                return self._request(head, b"".join(body))
            else:
                return None

    async def _feed(self, parser: h11.Connection) -> bool:
        """Pass more bytes to the parser, and say whether there were any."""
        if parser.they_are_waiting_for_100_continue:
            await self.put(b"HTTP/1.1 100 Continue\r\n\r\n")
            parser.send(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            async with asyncio.timeout(_IDLE_S_MAX):
                data = await self._reader.read(_READ_BYTES)
        except (TimeoutError, ConnectionError):
            return False
        if data:
            parser.receive_data(data)
        return bool(data)

    def _request(self, head: h11.Request, body: bytes) -> HttpRequest:
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        self._closing = headers.get("connection", "").lower() == "close" or head.http_version != b"1.1"
        target = urlsplit(head.target.decode("latin-1"))
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        method = head.method.decode("ascii")
        return HttpRequest(method=method, path=target.path, query=query, headers=headers, body=body)

    async def reply(
        self, status: int, body: bytes, *, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole reply.

        Args:
            status: the HTTP status; an error closes the connection.
            body: the bytes after the head.
            content_type: of the body.
            headers: additional ones, which come before it.
        """
        if status >= HTTPStatus.BAD_REQUEST:
            self._closing = True
        fields = {**(headers or {}), "Content-Type": content_type, "Content-Length": str(len(body))}
        await self._send(self._head(status, fields) + body)

    async def begin_stream(self) -> None:
        """Send the head of a stream of events."""
        fields = {"X-Accel-Buffering": "no", "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        await self._send(self._head(HTTPStatus.OK, fields))

    async def send_event(self, data: bytes) -> None:
        """Send one event of a stream, as one chunk."""
        event = b"data: " + data + b"\n\n"
        await self._send(b"%x\r\n%b\r\n" % (len(event), event))

    async def end_stream(self) -> None:
        """Send the last chunk."""
        await self._send(b"0\r\n\r\n")

    async def again(self, pieces: list[bytes]) -> None:
        """Send an old reply as it was sent before."""
        for piece in pieces:
            await self._send(piece)

    def _head(self, status: int, fields: Mapping[str, str]) -> bytes:
        self._replies += 1
        if self._replies >= _REPLIES_MAX:
            self._closing = True
        last = (
            ("Connection", "close") if self._closing else ("Keep-Alive", f"timeout={_IDLE_S_MAX}, max={_REPLIES_MAX}")
        )
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Server: llama.cpp",
            "Access-Control-Allow-Origin: ",
            *(f"{name}: {value}" for name, value in (*fields.items(), last)),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _send(self, data: bytes) -> None:
        """Send a piece of a reply: all of them pass here."""
        if self._copy is not None:
            self._copy.append(data)
        await (self.put(data) if self._way is None else self._way(self, data))
