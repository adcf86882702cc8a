"""Server: a fake llama-server on a real loopback socket, started, restarted and stopped.

In: settings and a port. Out: an address, for as long as the context lasts. What has to die with a process (counters,
caches, fault state, the start number) lives in `_Process` and is replaced as a whole by a restart. It serves no
other interface than 127.0.0.1 and starts no child process.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic, monotonic_ns
from types import TracebackType
from typing import Self

import h11

from audit.errors import UsageError
from audit.fake.engine import Engine
from audit.fake.faults import FaultPoints, Proxy
from audit.fake.model import ToyModel
from audit.fake.routes import Routes
from audit.fake.settings import FakeSettings
from audit.fake.transport import Connection
from audit.fake.vocabulary import Vocabulary

__all__ = ["FakeServer", "FakeThread", "serve_forever"]

_HOST = "127.0.0.1"
_BACKLOG = 512  # a wave of 64 members may connect at once


class _Process:
    """What lives from one start of a server to the next."""

    def __init__(
        self, settings: FakeSettings, vocabulary: Vocabulary, model: ToyModel, *, restarts: int, proxy: Proxy
    ) -> None:
        self.faults = FaultPoints(settings.faults, started=monotonic(), restarts=restarts, proxy=proxy)
        self.engine = Engine(settings, vocabulary, model, self.faults)
        self.routes = Routes(settings, vocabulary, self.engine, self.faults, start=monotonic_ns() // 1000)
        self.loop = asyncio.create_task(self.engine.run())

    async def stop(self) -> None:
        """End the engine; an error in it is raised here."""
        self.loop.cancel()
        try:
            await self.loop
        except asyncio.CancelledError:
            return


class FakeServer:
    """A fake llama-server: `async with FakeServer(settings) as server`, then talk to `server.url`.

    Args:
        settings: what it is.
        port: the port, 0 for a free one.

    Raises: UsageError, when the port is taken.
    """

    def __init__(self, settings: FakeSettings | None = None, *, port: int = 0) -> None:
        self.settings = settings or FakeSettings()
        self.port = port
        self._vocabulary = Vocabulary(self.settings.vocabulary)
        self._model = ToyModel(self.settings.vocabulary)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._process: _Process | None = None
        self._launches = 0
        self._proxy = Proxy()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The address, with the path prefix if there is one and without a slash at its end."""
        return f"http://{_HOST}:{self.port}{self.settings.api_prefix}"

    async def __aenter__(self) -> Self:
        """Listen and start the engine."""
        try:
            self._listener = await asyncio.start_server(self._accept, _HOST, self.port, backlog=_BACKLOG)
        except OSError as error:
            raise UsageError(
                f"fake server: cannot listen on {_HOST}:{self.port}: {error.strerror}", hint="choose another port"
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._launch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop listening, drop every connection, end the engine."""
        if self._listener is not None:
            self._listener.close()
        await self._halt()
        if self._listener is not None:
            await self._listener.wait_closed()

    async def restart(self) -> None:
        """Behave as a process that ended and was started again on the same port."""
        await self._halt()
        self._launch()

    def _launch(self) -> None:
        self._process = _Process(
            self.settings, self._vocabulary, self._model, restarts=self._launches, proxy=self._proxy
        )
        self._launches += 1
        # An engine that broke answers nobody any more: better that clients see closed connections than wait.
        self._process.loop.add_done_callback(self._engine_ended)

    async def _halt(self) -> None:
        self._abort_connections()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._process is not None:
            await self._process.stop()

    async def _replace_process(self) -> None:
        """Put a new process in the place of the old one where a fault wants it and nothing runs."""
        process = self._process
        if process is not None and process.faults.replaced() and not process.engine.processing:
            self._launch()
            process.loop.remove_done_callback(self._engine_ended)
            await process.stop()

    def _engine_ended(self, task: asyncio.Task[None]) -> None:
        self._abort_connections()
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "the engine of a fake server broke", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(context)

    def _abort_connections(self) -> None:
        for connection in self._connections.values():
            connection.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        task = asyncio.create_task(self._serve(connection))
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)

    async def _serve(self, connection: Connection) -> None:
        """Answer the requests of one connection until one side closes it."""
        try:
            while self._process is not None and (request := await connection.receive()) is not None:
                await self._replace_process()
                await self._process.routes.answer(request, connection)
        except h11.RemoteProtocolError:
            await connection.reply(400, b"", content_type="text/plain")
        except ConnectionError:
            connection.abort()
        finally:
            await connection.close()


class FakeThread:
    """A fake server in a thread with a loop of its own, for callers without one: `with FakeThread(settings) as fake`.

    Args:
        settings: what it is.
        port: the port, 0 for a free one.

    Raises: UsageError, when the port is taken.
    """

    def __init__(self, settings: FakeSettings | None = None, *, port: int = 0) -> None:
        self._server = FakeServer(settings, port=port)
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="fake-server", daemon=True)

    @property
    def url(self) -> str:
        """The address, with the path prefix if there is one and without a slash at its end."""
        return self._server.url

    def __enter__(self) -> Self:
        """Start the thread and wait until the server listens."""
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the server and wait for the thread."""
        loop, stop = self._ready.result()
        loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def restart(self) -> None:
        """Behave as a process that ended and was started again on the same port."""
        loop, _ = self._ready.result()
        asyncio.run_coroutine_threadsafe(self._server.restart(), loop).result()

    async def _main(self) -> None:
        stop = asyncio.Event()
        try:
            async with self._server:
                self._ready.set_result((asyncio.get_running_loop(), stop))
                await stop.wait()
        except UsageError as error:
            self._ready.set_exception(error)


async def serve_forever(settings: FakeSettings, port: int, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve until the coroutine is cancelled.

    Args:
        settings: what the server is.
        port: the port, 0 for a free one.
        on_ready: called once with the address.
    """
    async with FakeServer(settings, port=port) as server:
        if on_ready is not None:
            on_ready(server.url)
        await asyncio.Event().wait()
