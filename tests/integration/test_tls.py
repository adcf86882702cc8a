"""A server behind HTTPS with a private authority, under a path prefix and with a key, is audited like any other."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audit.client import Address, Client, Exchange
from audit.fake import FakeSettings, FakeThread
from audit.probe import probe
from tests.integration.between import between

KEY = "a-key-of-this-test"
PREFIX = "/llm"


@pytest.fixture
def url(repository: Path) -> Iterator[str]:
    """Give the HTTPS address of a fake server that wants a key and has a path prefix."""
    with FakeThread(FakeSettings(api_key=KEY, api_prefix=PREFIX)) as fake:
        assets = repository / "tests" / "assets"
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(assets / "tls_cert.pem", assets / "tls_key.pem")
        with between(int(fake.url.split(":")[2].split("/")[0]), tls=context) as port:
            yield f"https://127.0.0.1:{port}{PREFIX}"


def test_a_private_authority_a_prefix_and_a_key_open_the_server(url: str, repository: Path) -> None:
    """With all three given, the server is found auditable."""
    address = Address(label="mine", url=url, key=KEY, ca=repository / "tests" / "assets" / "tls_cert.pem")
    assert asyncio.run(probe(address))["auditable"] is True


def test_the_last_byte_waits_there_as_well(url: str, repository: Path) -> None:
    """It is encrypted at the release: the server answers as ever, and nothing left before."""
    body = json.dumps({"prompt": [5, 6, 7], "n_predict": 2, "n_probs": 3, "id_slot": 0}).encode()

    async def ask() -> tuple[Exchange, Exchange, int]:
        address = Address(label="mine", url=url, key=KEY, ca=repository / "tests" / "assets" / "tls_cert.pem")
        released: list[int] = []

        async def hold(leave: Callable[[], None]) -> None:
            await asyncio.sleep(0.05)
            released.append(time.monotonic_ns())
            leave()

        async with Client(address, timeout_s=10.0) as client:
            held = await client.post("/completion", body, hold=hold)
            return held, await client.post("/completion", body), released[0]

    held, after, released_ns = asyncio.run(ask())
    assert (held.status, held.failure, after.status) == (200, None, 200)
    assert json.loads(held.body)["tokens"] == json.loads(after.body)["tokens"]
    assert released_ns <= held.sent_ns <= (held.first_byte_ns or 0)


def test_without_its_authority_the_certificate_is_refused(url: str) -> None:
    """No request reaches a server whose certificate nobody vouches for."""

    async def ask() -> tuple[str, str] | None:
        async with Client(Address(label="mine", url=url, key=KEY), timeout_s=10.0) as client:
            return (await client.get("/props")).failure

    failure = asyncio.run(ask())
    assert failure is not None
    assert failure[0] == "connect"
    assert "certificate" in failure[1].lower()
