"""A canonical document, compressed for the store `captures`, and read back with a limit on what it grows to.

A check of kind accuracy holds its captures this way: docs/reference/accuracy.md, "A check".
"""

import gzip
import zlib
from typing import Any

import msgspec

from audit.errors import EvidenceError

__all__ = ["pack", "unpack"]

# What grows beyond this is no capture; the largest stored one has 5 MB.
_GROWN_MAX = 1 << 28


def pack(data: bytes) -> bytes:
    """Return one gzip member that holds the document and no time."""
    return gzip.compress(data, mtime=0)


def unpack(data: bytes, where: str) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document that was packed; `where` names it in errors.

    Raises: EvidenceError where it is not one whole gzip member, grows beyond 256 MiB, or is no JSON.
    """
    inflated = zlib.decompressobj(wbits=31)
    try:
        document = inflated.decompress(data, _GROWN_MAX)
        if not inflated.eof or inflated.unused_data:
            raise EvidenceError(f"{where} is not one whole compressed document")
        return msgspec.json.decode(document)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise EvidenceError(f"{where}: {error}") from error
