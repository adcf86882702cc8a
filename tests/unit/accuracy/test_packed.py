"""A packed document is read back whole; what is not one is refused by name."""

from __future__ import annotations

import gzip
import json

import pytest

from audit.accuracy.packed import pack, unpack
from audit.errors import EvidenceError
from audit.stream import canonical

DOCUMENT = canonical({"kind": "capture", "history": list(range(1000))})


def test_a_packed_document_is_one_gzip_member() -> None:
    """Any gzip reads it, it holds no time, and packed twice it is the same."""
    packed = pack(DOCUMENT)
    assert gzip.decompress(packed) == DOCUMENT
    assert packed == pack(DOCUMENT)
    assert unpack(packed, "x") == json.loads(DOCUMENT)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DOCUMENT, "^x: .*incorrect header check"),
        (pack(DOCUMENT)[:-3], "^x is not one whole compressed document"),
        (pack(DOCUMENT) * 2, "^x is not one whole compressed document"),
        (pack(b"[1"), "^x: "),
        (pack(b"[" * 100_000), "^x: "),
        (pack(bytes((1 << 28) + 1)), "^x is not one whole compressed document"),
    ],
    ids=["text", "half", "two", "no JSON", "deep", "a bomb"],
)
def test_what_is_no_packed_document_is_refused(data: bytes, message: str) -> None:
    """Nothing is guessed, and nothing fills the memory."""
    with pytest.raises(EvidenceError, match=message):
        unpack(data, "x")
