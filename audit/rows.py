"""Full-vocabulary rows: every logprob of a step, as raw float32.

In go the token ids and logprobs of a step, out come little-endian bytes in token-id order with a digest a row and
one for all of them. It compares nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from audit.errors import EvidenceError
from audit.stream import digest

__all__ = ["Rows", "row_of"]


def row_of(ids: Iterable[int], logprobs: Iterable[float | None], vocabulary: int) -> NDArray[np.float32]:
    """Put the entries of one step into token-id order.

    Args:
        ids: the token id of every entry, in any order.
        logprobs: the logprob of every entry in nats, in the same order.
        vocabulary: number of tokens.

    Returns: logprobs in nats, shape (vocabulary,), float32.
    Raises: EvidenceError where an id is missing, doubled or out of range, or a logprob is no finite float32.
    """
    try:
        places = np.fromiter(ids, dtype=np.int64)
    except OverflowError as error:
        raise EvidenceError(f"a row of {vocabulary} tokens has an id that no vocabulary holds") from error
    if not np.array_equal(np.sort(places), np.arange(vocabulary)):
        raise EvidenceError(
            f"a row of {vocabulary} tokens has {len(places)} entries, {len(np.unique(places))} distinct ids"
        )
    row = np.empty(vocabulary, dtype=np.float32)
    with np.errstate(over="ignore"):
        row[places] = np.fromiter(logprobs, dtype=np.float64, count=vocabulary)  # None becomes nan
    if not np.isfinite(row).all():
        raise EvidenceError("a row holds a logprob that is null or no finite float32")
    return row


@dataclass(frozen=True)
class Rows:
    """The rows of one reply.

    `values` holds logprobs in nats, shape (steps, vocabulary), float32.
    """

    values: NDArray[np.float32]

    @classmethod
    def from_bytes(cls, data: bytes, shape: tuple[int, int]) -> Self:
        """Read rows back.

        Raises: EvidenceError where the number of bytes does not fit the shape.
        """
        if len(data) != 4 * shape[0] * shape[1]:
            raise EvidenceError(f"rows of shape {shape} need {4 * shape[0] * shape[1]} bytes, there are {len(data)}")
        return cls(np.frombuffer(data, dtype="<f4").reshape(shape))

    def to_bytes(self) -> bytes:
        """Return the raw little-endian float32 of all rows."""
        return self.values.astype("<f4", copy=False).tobytes()

    @property
    def shape(self) -> tuple[int, int]:
        """Number of steps and size of the vocabulary."""
        return (self.values.shape[0], self.values.shape[1])

    @property
    def digests(self) -> tuple[str, ...]:
        """One digest a row."""
        return tuple(digest(np.ascontiguousarray(row, dtype="<f4").data) for row in self.values)
