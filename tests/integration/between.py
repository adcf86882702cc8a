"""A proxy between a client and a server, on the level of TCP: what a test does to bytes on their way, it does here.

In: the server's port and what happens to each direction's bytes. Out: the port of the proxy, while the block lasts. It
leaves no connection behind: one that the loop did not close would be reported in whichever test runs when the garbage
is collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

__all__ = ["Way", "between", "hand_on"]

Way = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_HOST = "127.0.0.1"


async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand bytes on as they come."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@contextmanager
def between(
    port: int, *, upward: Way = hand_on, downward: Way = hand_on, tls: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Stand between clients and a server, in a thread with a loop of its own.

    Args:
        port: the server's.
        upward: brings what a client says to the server, until one of the two has ended.
        downward: brings what the server says to a client.
        tls: with it, clients speak TLS, and the server behind does not.

    Yields: the port that clients speak to.
    """
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def pair(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, jobs = [writer], set[asyncio.Task[None]]()
        try:
            there, here = await asyncio.open_connection(_HOST, port)
            writers.append(here)
            jobs = {asyncio.ensure_future(way) for way in (upward(reader, here), downward(there, writer))}
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for one in writers:
                one.transport.abort()
        finally:
            for job in jobs:
                job.cancel()
            for one in writers:
                one.close()
            await asyncio.gather(*jobs, *(one.wait_closed() for one in writers), return_exceptions=True)

    async def serve() -> None:
        done = asyncio.Event()
        listener = await asyncio.start_server(pair, _HOST, 0, ssl=tls)
        ready.set_result((asyncio.get_running_loop(), done, listener.sockets[0].getsockname()[1]))
        await done.wait()
        listener.close()
        pairs = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pairs:
            task.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop, done, own = ready.result(timeout=10)
    try:
        yield own
    finally:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(done.set)
        thread.join()
