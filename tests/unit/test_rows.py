"""Rows hold every logprob of a step as float32 in token-id order, and refuse what is incomplete."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import EvidenceError
from audit.rows import Rows, row_of

VALUES = np.array([[-0.5, -1.25, -3.0], [-2.0, -0.125, -7.5]], dtype=np.float32)
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_bytes_are_little_endian_float32_row_by_row() -> None:
    """The bytes are those of the format, the digests those of the bytes."""
    rows, expected = Rows(VALUES), struct.pack("<6f", *VALUES.reshape(-1))
    assert rows.to_bytes() == expected
    assert rows.shape == (2, 3)
    assert rows.digests == tuple(
        "sha256:" + hashlib.sha256(part).hexdigest() for part in (expected[:12], expected[12:])
    )


def test_entries_are_put_into_token_id_order() -> None:
    """The server's order, which is by probability, does not matter."""
    one = row_of([2, 0, 1], [-3.0, -0.5, -1.25], 3)
    other = row_of([0, 1, 2], [-0.5, -1.25, -3.0], 3)
    assert one.dtype == np.float32
    assert one.tobytes() == other.tobytes() == VALUES[0].tobytes()


def test_minus_zero_keeps_its_sign() -> None:
    """-0.0 is not written as 0.0."""
    assert row_of([0, 1], [-0.0, 0.0], 2).tobytes() == struct.pack("<2f", -0.0, 0.0)


def test_one_ulp_of_one_token_changes_one_row_and_the_file() -> None:
    """The smallest change shows in the digest of its row alone."""
    moved = VALUES.copy()
    moved[1, 2] = np.nextafter(moved[1, 2], np.float32(0), dtype=np.float32)
    assert Rows(moved).to_bytes() != Rows(VALUES).to_bytes()
    assert Rows(moved).digests[0] == Rows(VALUES).digests[0]
    assert Rows(moved).digests[1] != Rows(VALUES).digests[1]


@pytest.mark.parametrize("stored", [VALUES.astype(">f4"), np.asfortranarray(VALUES), VALUES[::1, :]])
def test_how_rows_lie_in_memory_does_not_matter(stored: np.ndarray) -> None:
    """Byte order and layout of the array are not part of the identity."""
    assert Rows(stored).to_bytes() == Rows(VALUES).to_bytes()
    assert Rows(stored).digests == Rows(VALUES).digests


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(float32, min_size=width, max_size=width), min_size=1)))
def test_rows_are_read_back_to_the_bit(values: list[list[float]]) -> None:
    """Reading inverts writing."""
    rows = Rows(np.array(values, dtype=np.float32))
    again = Rows.from_bytes(rows.to_bytes(), rows.shape)
    assert again.shape == rows.shape
    assert again.to_bytes() == rows.to_bytes()
    assert again.digests == rows.digests


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (1, 3), (6, 2)])
def test_bytes_that_do_not_fit_the_shape_are_refused(shape: tuple[int, int]) -> None:
    """The error names the shape and both numbers of bytes."""
    with pytest.raises(EvidenceError, match=rf"need {4 * shape[0] * shape[1]} bytes, there are 24"):
        Rows.from_bytes(Rows(VALUES).to_bytes(), shape)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([(0, -1.0), (1, -1.0)], "2 entries, 2 distinct"),
        ([(0, -1.0), (1, -1.0), (1, -2.0)], "3 entries, 2 distinct"),
        ([(0, -1.0), (1, -1.0), (3, -2.0)], "3 entries, 3 distinct"),
        ([(-1, -1.0), (0, -1.0), (1, -2.0)], "3 entries"),
        ([(0, -1.0), (1, -1.0), (2, -1.0), (2, -1.0)], "4 entries"),
        ([], "0 entries"),
        ([(0, -1.0), (1, None), (2, -1.0)], "null or no finite float32"),
        ([(0, -1.0), (1, -1e300), (2, -1.0)], "no finite float32"),
        ([(0, -1.0), (1, float("-inf")), (2, -1.0)], "no finite float32"),
        ([(0, -1.0), (1, float("nan")), (2, -1.0)], "no finite float32"),
        ([(0, -1.0), (1, -1.0), (2**70, -1.0)], "an id that no vocabulary holds"),
    ],
)
def test_an_incomplete_row_is_refused(entries: list[tuple[int, float | None]], why: str) -> None:
    """A missing, doubled or foreign id, or a logprob that is no float32, is never filled in."""
    with pytest.raises(EvidenceError, match=why):
        row_of([token for token, _ in entries], [logprob for _, logprob in entries], 3)
