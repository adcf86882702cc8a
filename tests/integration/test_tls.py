"""A server behind HTTPS with a private authority, under a path prefix and with a key, is audited like any other."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.client import Address, Client
from audit.fake import FakeSettings, FakeThread
from audit.probe import probe

KEY = "a-key-of-this-test"
PREFIX = "/llm"


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


class _Terminator:
    """Ends TLS in front of a plain server, in a thread of its own."""

    def __init__(self, port: int, assets: Path) -> None:
        self._target = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(assets / "tls_cert.pem", assets / "tls_key.pem")
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.port = 0

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(_pipe(reader, behind_writer), _pipe(behind_reader, writer))

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(10)
        return f"https://127.0.0.1:{self.port}{PREFIX}"

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def url(repository: Path) -> Iterator[str]:
    """Give the HTTPS address of a fake server that wants a key and has a path prefix."""
    with FakeThread(FakeSettings(api_key=KEY, api_prefix=PREFIX)) as fake:
        port = int(fake.url.split(":")[2].split("/")[0])
        with _Terminator(port, repository / "tests" / "assets") as address:
            yield address


def test_a_private_authority_a_prefix_and_a_key_open_the_server(url: str, repository: Path) -> None:
    """With all three given, the server is found auditable."""
    address = Address(label="mine", url=url, key=KEY, ca=repository / "tests" / "assets" / "tls_cert.pem")
    assert asyncio.run(probe(address))["auditable"] is True


def test_without_its_authority_the_certificate_is_refused(url: str) -> None:
    """No request reaches a server whose certificate nobody vouches for."""

    async def ask() -> tuple[str, str] | None:
        async with Client(Address(label="mine", url=url, key=KEY), timeout_s=10.0) as client:
            return (await client.get("/props")).failure

    failure = asyncio.run(ask())
    assert failure is not None
    assert failure[0] == "connect"
    assert "certificate" in failure[1].lower()
