"""The proxy that tests put between a client and a server: it hands on what comes, and leaves nothing open behind it."""

from __future__ import annotations

import gc
import socket

from tests.integration.between import between


def test_bytes_go_both_ways_and_an_end_that_comes_early_closes_both_sides() -> None:
    """The block ends in the middle of a conversation: both ends are told, and no transport is left to the collector."""
    with socket.create_server(("127.0.0.1", 0)) as listener, between(listener.getsockname()[1]) as port:
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        behind, _ = listener.accept()
        behind.settimeout(10)
        client.sendall(b"there")
        assert behind.recv(5) == b"there"
        behind.sendall(b"back")
        assert client.recv(4) == b"back"
    with client, behind:
        for end in (client, behind):
            try:
                assert end.recv(1) == b""
            except ConnectionResetError:
                continue
    gc.collect()  # a transport that was not closed is a failure of this test, see filterwarnings in pyproject.toml
