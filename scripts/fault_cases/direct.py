"""A client without a socket: the same requests and replies, byte for byte, in memory and on one event loop.

In: a `FakeServer` that need not listen. Out: a stand-in for `audit.client.Client`, put into the modules that make
clients while a block lasts. A thousand trials then cost seconds, since neither sockets nor an HTTP client's own work is
in the way. What fails on the way (resets, stalls, cut bodies) is not for this: it needs a real connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, cast
from unittest.mock import patch

import h11

from audit.client import Address, Exchange, Sink
from audit.errors import ReplyError
from audit.fake import FakeServer
from audit.fake.transport import Connection
from audit.schedule import Hold

__all__ = ["Owner", "in_memory"]

_OK = 200


class _Writer:
    """The server's side of a connection: what it writes is read by the client's side."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.arrived = asyncio.Event()
        self.closed = False
        self.transport = self

    def write(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()

    async def drain(self) -> None:
        return

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self.arrived.set()

    abort = close

    async def wait_closed(self) -> None:
        return

    async def read(self) -> bytes:
        """Return what arrived, empty at the end."""
        while not self.data and not self.closed:
            self.arrived.clear()
            await self.arrived.wait()
        taken = bytes(self.data)
        self.data.clear()
        return taken


class _Client:
    """Stands in for `audit.client.Client`."""

    server: FakeServer

    def __init__(self, address: Address, *, timeout_s: float) -> None:  # noqa: ARG002 - the original's signature
        self.address = address
        self._writer = _Writer()
        self._writer.closed = True
        self._reader = asyncio.StreamReader()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reader.feed_eof()
        await asyncio.gather(*self._tasks)

    async def get(self, path: str) -> Exchange:
        """Send a GET."""
        return await self._send("GET", path, b"", None)

    async def post(self, path: str, body: bytes, *, sink: Sink | None = None, hold: Hold | None = None) -> Exchange:
        """Send a POST, after the release of its wave where it has one."""
        if hold is not None:
            await hold(lambda: None)
        return await self._send("POST", path, body, sink)

    def _connect(self) -> None:
        self._reader.feed_eof()
        self._writer, self._reader = _Writer(), asyncio.StreamReader()
        connection = Connection(self._reader, cast("asyncio.StreamWriter", self._writer))
        self._tasks.add(asyncio.create_task(self.server._serve(connection)))  # noqa: SLF001 - the socket left out

    async def _send(self, method: str, path: str, body: bytes, sink: Sink | None) -> Exchange:
        if self._writer.closed:
            self._connect()
        parser = h11.Connection(h11.CLIENT)
        headers = [("Host", "memory"), ("Content-Length", str(len(body)))]
        request = parser.send(h11.Request(method=method, target=path, headers=headers))
        sent_ns = time.monotonic_ns()
        self._reader.feed_data(request + body)
        parser.send(h11.Data(data=body)) if body else None
        parser.send(h11.EndOfMessage())
        return await self._receive(parser, sink, sent_ns)

    async def _receive(self, parser: h11.Connection, sink: Sink | None, sent_ns: int) -> Exchange:
        head: h11.Response | None = None
        body, first_ns, failure = bytearray(), sent_ns, None
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await self._writer.read())
            elif isinstance(event, h11.Response):
                head, first_ns = event, time.monotonic_ns()
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
        assert head is not None, "a reply in memory is whole"  # noqa: S101 - what breaks off needs a real connection
        if sink is not None and head.status_code == _OK:
            try:
                sink.feed(bytes(body))
            except ReplyError as error:
                failure = ("stream_error", error.message)
        return Exchange(
            sent_ns=sent_ns,
            first_byte_ns=first_ns,
            last_byte_ns=time.monotonic_ns(),
            status=head.status_code,
            headers={name.decode(): value.decode() for name, value in head.headers},
            body=bytes(body),
            failure=failure,
        )


class Owner:
    """Restarts a fake that runs on the loop of the audit itself, as if it were a server of our own."""

    def __init__(self, server: FakeServer) -> None:
        self._server, self._loop = server, asyncio.get_running_loop()

    def restart(self) -> None:
        """Replace the process; called from another thread than the loop's."""
        asyncio.run_coroutine_threadsafe(self._server.restart(), self._loop).result()

    def abort(self) -> None:
        """End nothing: the fake ends with the run."""

    def declaration(self) -> dict[str, Any]:
        """Return what the operator knows."""
        return {"argv": ["fake"]}


@contextmanager
def in_memory(server: FakeServer) -> Iterator[None]:
    """Let an audit reach this server, and no other, without a socket."""
    client = type("DirectClient", (_Client,), {"server": server})
    with patch("audit.capture.Client", client), patch("audit.sitting.Client", client):
        yield
