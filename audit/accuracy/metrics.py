"""The three metrics of a row, in float64, over the whole vocabulary.

In go two sides' rows of the same steps, out come one number a metric and row, the reference's top-two gap, and the
best token of each side. Both sides pass the same log-softmax first, so that reported logprobs and raw logits may be
compared. Everything is vectorised over rows and values; nothing here judges.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.errors import EvidenceError
from audit.stream import FORMAT, canonical

__all__ = ["COLUMNS", "METRICS", "Measures", "log_softmax", "measure"]

METRICS = ("max_abs", "relative_l2", "total_variation")
# One line of a metrics file, behind the header.
COLUMNS = ("slot", "position", *METRICS, "gap", "best_reference", "best_server")

# Rows are measured so many values at a time: what a pass leaves is still in the processor's cache for the next.
_BLOCK_VALUES = 2**17
_FLOATS = frozenset({*METRICS, "gap"})

Values = NDArray[np.float64]


def log_softmax(rows: NDArray[np.float32]) -> Values:
    """Return log probabilities in nats, shape (rows, vocabulary): the same for logits, logprobs, and any constant more.

    Each row is shifted by its largest value first, so that no exponential overflows.
    """
    values = rows.astype(np.float64)
    values -= values.max(axis=1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
    return values


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The metrics of the rows of one group in one mode, each of shape (rows,), ordered by slot and position.

    `gap` is the reference's best value minus its second best, in nats; `best_*` are the first of the largest values.
    """

    slot: NDArray[np.int64]
    position: NDArray[np.int64]
    max_abs: Values
    relative_l2: Values
    total_variation: Values
    gap: Values
    best_reference: NDArray[np.int64]
    best_server: NDArray[np.int64]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.slot)

    def to_bytes(self) -> bytes:
        """Return the metrics as JSON lines: a header with the columns, then a list a row."""
        columns = [getattr(self, name).tolist() for name in COLUMNS]
        lines = [canonical({"columns": list(COLUMNS), "format": FORMAT}), *map(canonical, zip(*columns, strict=True))]
        return b"".join(lines)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Measures":
        """Read metrics back.

        Raises: EvidenceError where the bytes are not exactly what `to_bytes` writes.
        """
        try:
            header, *rows = [json.loads(line) for line in data.splitlines()]
            known = header == {"columns": list(COLUMNS), "format": FORMAT}
            columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
            values: dict[str, Any] = {
                name: np.array(column, dtype=np.float64 if name in _FLOATS else np.int64)
                for name, column in zip(COLUMNS, columns, strict=True)
            }
            found = cls(**values)
            again = found.to_bytes()
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise EvidenceError(f"metrics of {len(data)} bytes cannot be read: {error}") from error
        if not known or again != data:
            raise EvidenceError(f"metrics of {len(data)} bytes are not in canonical form")
        return found

    @classmethod
    def joined(cls, parts: "list[Measures]") -> "Measures":
        """Put the metrics of several sequences behind one another."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS})


def measure(server: NDArray[np.float32], reference: NDArray[np.float32], *, slot: int) -> Measures:
    """Measure the rows of one sequence.

    Args:
        server: the server's rows, shape (rows, vocabulary).
        reference: the reference's rows of the same steps, same shape.
        slot: which member of its group the sequence is.

    Raises: EvidenceError where the shapes differ.
    """
    if server.shape != reference.shape or server.ndim != 2 or server.shape[1] < 2:  # noqa: PLR2004 - a best and a second
        raise EvidenceError(f"rows of shape {server.shape} cannot be compared with rows of shape {reference.shape}")
    block = max(1, _BLOCK_VALUES // server.shape[1])
    starts = range(0, max(1, len(server)), block)
    parts = [_columns(server[start : start + block], reference[start : start + block]) for start in starts]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    place = np.arange(len(server), dtype=np.int64)
    return Measures(slot=np.full_like(place, slot), position=place, **dict(zip(COLUMNS[2:], columns, strict=True)))


def _columns(server: NDArray[np.float32], reference: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """Measure some rows: the columns behind slot and position, in their order."""
    ours, theirs = log_softmax(server), log_softmax(reference)
    difference = ours - theirs
    norm = np.linalg.norm(theirs, axis=1)
    top_two = np.partition(reference, -2, axis=1)[:, -2:].astype(np.float64)
    ours, theirs = np.exp(ours, out=ours), np.exp(theirs, out=theirs)
    ours -= theirs
    return (
        np.abs(difference).max(axis=1),
        np.linalg.norm(difference, axis=1) / norm,
        np.abs(ours, out=ours).sum(axis=1) / 2,
        top_two[:, 1] - top_two[:, 0],
        reference.argmax(axis=1).astype(np.int64),
        server.argmax(axis=1).astype(np.int64),
    )
