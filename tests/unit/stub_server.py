"""A scripted HTTP server on a loopback socket: raw bytes in, raw bytes out, and nothing that an HTTP library would add.

In: what to answer to a request, as bytes, as chunks, or as a fault. Out: an address and every request as it arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

RESET, SILENCE, CLOSE = b"reset", b"silence", b"close"


@dataclass
class Asked:
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass
class Stub:
    """The address of a running server, and what it was asked."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


def reply(body: bytes = b"{}", *, status: str = "200 OK", length: int | None = None, headers: str = "") -> bytes:
    """Return a raw reply; `length` lies about the body's length."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n{headers}\r\n"
    return head.encode() + body


def chunked(*chunks: bytes, end: bool = True) -> list[bytes]:
    """Return a raw reply in pieces, as a stream sends it."""
    parts = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
    parts += [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    return parts + ([b"0\r\n\r\n"] if end else [])


@asynccontextmanager
async def stub(answer: Callable[[Asked], bytes | list[bytes]]) -> AsyncIterator[Stub]:
    """Serve until the block ends; RESET drops a connection, CLOSE ends it, SILENCE says nothing."""
    server = Stub()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        number = server.connections
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *rest = head.decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                server.asked.append(Asked(line, headers, body, number))
                answered = answer(server.asked[-1])
                parts = answered if isinstance(answered, list) else [answered]
                for part in parts:
                    if part == SILENCE:
                        await asyncio.Event().wait()
                    if part == RESET:
                        writer.transport.abort()
                        return
                    if part == CLOSE:
                        return
                    writer.write(part)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.create_task(serve(reader, writer)))
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
