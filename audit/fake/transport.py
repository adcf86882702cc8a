"""Transport: HTTP/1.1 on one connection, the way llama-server's library speaks it.

In: an asyncio stream pair. Out: requests, parsed by h11; replies, written as raw bytes in one place, so that what goes
over the wire is exactly what is asked for. It knows no routes. Errors close the connection, as do an idle time of
5 s and the hundredth reply.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import h11

__all__ = ["Connection", "HttpRequest"]

_IDLE_S_MAX = 5
_REPLIES_MAX = 100
_READ_BYTES = 65536
_JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: method, path without the query, headers with lower-case names, body."""

    method: str
    path: str
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

    def gone(self) -> bool:
        """Say whether the client has closed its side."""
        return self._reader.at_eof()

    def abort(self) -> None:
        """Drop the connection at once, unsent bytes included."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close the connection after everything is sent."""
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
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
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
        target = head.target.decode("latin-1")
        return HttpRequest(method=head.method.decode("ascii"), path=urlsplit(target).path, headers=headers, body=body)

    async def reply(
        self, status: int, body: bytes, *, content_type: str = _JSON, headers: Mapping[str, str] | None = None
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
        self._write(self._head(status, fields) + body)
        await self._writer.drain()

    async def begin_stream(self) -> None:
        """Send the head of a stream of events."""
        fields = {"X-Accel-Buffering": "no", "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        self._write(self._head(HTTPStatus.OK, fields))
        await self._writer.drain()

    async def send_event(self, data: bytes) -> None:
        """Send one event of a stream, as one chunk."""
        event = b"data: " + data + b"\n\n"
        self._write(b"%x\r\n%b\r\n" % (len(event), event))
        await self._writer.drain()

    async def end_stream(self) -> None:
        """Send the last chunk."""
        self._write(b"0\r\n\r\n")
        await self._writer.drain()

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

    def _write(self, data: bytes) -> None:
        """Put bytes on the wire: all of them pass here."""
        self._writer.write(data)
