"""Failures: the faults that keep a reply from being one.

In: the index of a completion request. Out: an answer in the reply's place (`answered_instead`), the reply's JSON spoilt
(`spoilt`), or what becomes of its bytes on the way (`way_of`). Nothing here waits longer than the client does.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from audit.fake.refusal import error_body
from audit.fake.switches import Faults
from audit.fake.transport import JSON, Connection

__all__ = ["Instead", "answered_instead", "spoilt", "way_of"]

_HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><h1>Sign in to the network</h1></body></html>\n"
_HUGE_BYTES, _PIECE_BYTES = 100_000_000, 1 << 20
_DRIP_S = 0.02
_SPLIT_BYTES = 5
_ENCODE = msgspec.json.Encoder().encode
_LOGPROB = re.compile(rb'("logprob":)-?[0-9.eE+-]+')
_CRLF = b"\r\n\r\n"


@dataclass(frozen=True)
class Instead:
    """A reply in the place of the right one."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


def _error(status: int, message: str, kind: str, **more: object) -> Instead:
    body = error_body(status, message, kind)
    return Instead(status, _ENCODE({"error": {**body["error"], **more}}))  # type: ignore[dict-item]


_INSTEAD: dict[str, Instead] = {
    "loading_at": _error(503, "Loading model", "unavailable_error"),
    "unauthorized_at": _error(401, "Invalid API Key", "authentication_error"),
    "context_exceeded_at": _error(
        400,
        "request (1200 tokens) exceeds the available context size (1024 tokens), try increasing it",
        "exceed_context_size_error",
        n_prompt_tokens=1200,
        n_ctx=1024,
    ),
    "server_error_at": _error(500, "proxy error: could not establish connection", "server_error"),
    "redirected_at": Instead(307, b"", "text/plain", {"Location": "http://127.0.0.1:9/completion"}),
    "html_at": Instead(200, _HTML, "text/html"),
}


def answered_instead(ordinal: int, faults: Faults) -> Instead | None:
    """Return what a request is answered with in place of a reply, None where it is answered."""
    return next((instead for name, instead in _INSTEAD.items() if getattr(faults, name) == ordinal), None)


def spoilt(body: dict[str, Any], ordinal: int, middle: bool | None, faults: Faults) -> bytes:  # noqa: FBT001
    """Encode a reply or an event as this server does.

    Args:
        body: a whole reply, or an event of a stream.
        ordinal: the index of its request.
        middle: whether an event is that of the middle step, None for a whole reply.
        faults: the switches.
    """
    entries = body.get("completion_probabilities")
    if entries and middle is not False and (faults.null_logprobs or faults.null_logprob == ordinal):
        at = len(entries) // 2
        changed = entries[at] | {"top_logprobs": [*entries[at]["top_logprobs"][:-1], _null(entries[at])]}
        body = body | {"completion_probabilities": [*entries[:at], changed, *entries[at + 1 :]]}
    if faults.key_missing == ordinal:
        body = {key: value for key, value in body.items() if key != "tokens"}
    if faults.keys_reordered:
        body = _reordered(body)
    if faults.events_split:
        # A character of several bytes, for a cut to fall into.
        body = body | {"note": "\u00e9" * _SPLIT_BYTES}
    data = _ENCODE(body)
    return _LOGPROB.sub(rb"\1NaN", data, count=1) if faults.nan_at == ordinal else data


def _null(entry: dict[str, Any]) -> dict[str, Any]:
    last: dict[str, Any] = entry["top_logprobs"][-1]
    return last | {"logprob": None}


def _reordered(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {key: _reordered(item) for key, item in reversed(value.items())}
    return [_reordered(item) for item in value] if isinstance(value, list) else value


Way = Callable[[Connection, bytes], Awaitable[None]]


def way_of(ordinal: int, faults: Faults) -> Way | None:
    """Return what becomes of a reply's bytes on their way, None where they arrive as they are.

    A way gets every piece that is to be sent: a whole reply is one, of a stream the head and each event are.
    """
    for name, way in _WAYS.items():
        if getattr(faults, name) == ordinal:
            return way()
    return _split if faults.events_split else None


def _halved(end: Callable[[Connection], Awaitable[None]]) -> Callable[[], Way]:
    """Return a way on which half of a whole reply arrives, or the head and the first event of a stream."""

    def made() -> Way:
        pieces = 0

        async def way(connection: Connection, data: bytes) -> None:
            nonlocal pieces
            pieces += 1
            streamed = data.endswith(_CRLF) or pieces > 1
            if streamed and pieces <= 2:  # noqa: PLR2004 - the head and the first event
                await connection.put(data)
            else:
                await connection.put(b"" if streamed else data[: len(data) // 2])
                await end(connection)

        return way

    return made


async def _reset(connection: Connection) -> None:
    connection.abort()


async def _closed(connection: Connection) -> None:
    await connection.close()


async def _never(connection: Connection, _data: bytes) -> None:
    await connection.wait_gone()


async def _reset_at_once(connection: Connection, _data: bytes) -> None:
    connection.abort()


async def _dripping(connection: Connection, data: bytes) -> None:
    """Send byte after byte and keep the last one back, until the client goes away."""
    for at in range(len(data) - 1):
        await connection.put(data[at : at + 1])
        if connection.gone():
            return
        # The head arrives at once, so that it is the body that drips.
        if at > data.find(_CRLF):
            await asyncio.sleep(_DRIP_S)
    if not data.endswith(_CRLF):
        await connection.wait_gone()
    else:
        await connection.put(data[-1:])


async def _split(connection: Connection, data: bytes) -> None:
    """Send a few bytes at a time, each on its own."""
    for at in range(0, len(data), _SPLIT_BYTES):
        await connection.put(data[at : at + _SPLIT_BYTES])
        await asyncio.sleep(0)


def _padded() -> Way:
    """Return a way on which 100 MB come first, of which no more than one piece is held at a time."""
    done = False

    async def way(connection: Connection, data: bytes) -> None:
        nonlocal done
        head, separator, body = data.partition(_CRLF)
        if done or not head.startswith(b"HTTP/"):
            await connection.put(data)
            return
        done = True
        count = -(-_HUGE_BYTES // _PIECE_BYTES)
        if body:
            length = len(body) + count * _PIECE_BYTES
            await connection.put(re.sub(rb"(Content-Length: )[0-9]+", rb"\g<1>%d" % length, head) + separator)
            piece = b" " * _PIECE_BYTES
        else:
            await connection.put(data)
            piece = b"%x\r\n%b\r\n" % (_PIECE_BYTES, b":" + b"-" * (_PIECE_BYTES - 2) + b"\n")
        for _ in range(count):
            await connection.put(piece)
        await connection.put(body)

    return way


_WAYS: dict[str, Callable[[], Way]] = {
    "body_cut": _halved(_closed),
    "reset_before": lambda: _reset_at_once,
    "reset_middle": _halved(_reset),
    "stalled": lambda: _never,
    "dripped": lambda: _dripping,
    "body_huge": _padded,
}
