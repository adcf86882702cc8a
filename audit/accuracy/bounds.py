"""The bounds file: what a row may differ by, and the maxima that it follows from. Shapes, reading and writing.

A bound is `FACTOR` times the largest value that the calibration members showed in either mode. Nothing here measures.
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from audit.errors import UsageError
from audit.stream import FORMAT, canonical, digest

__all__ = ["FACTOR", "RELATIVE_TOLERANCE", "Bounds", "ModelBounds", "Triple", "write_bounds"]

# Fixed by the format and so by every registration: no option can move it.
FACTOR = 1.5
# Another numpy or processor may sum in another order; a float64 sum of 262,144 terms stays far inside this.
RELATIVE_TOLERANCE = 1e-9


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, by keyword, and strict about its fields."""


class Triple(_Shape, frozen=True, kw_only=True):
    """One number a metric."""

    max_abs: float
    relative_l2: float
    total_variation: float

    def times(self, factor: float) -> "Triple":
        """Return each number times a factor."""
        return Triple(
            max_abs=factor * self.max_abs,
            relative_l2=factor * self.relative_l2,
            total_variation=factor * self.total_variation,
        )

    def is_near(self, other: "Triple") -> bool:
        """Tell whether every number is the other's, but for the order of a sum."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in self.__struct_fields__]
        return all(abs(one - two) <= RELATIVE_TOLERANCE * max(abs(one), abs(two)) for one, two in pairs)


class ModelBounds(_Shape, frozen=True, kw_only=True):
    """The bounds of one model: how many rows set them, and the seals of the two captures that hold these rows."""

    bounds: Triple
    maxima: Triple
    rows: int
    server: str
    reference: str


class Bounds(_Shape, frozen=True, kw_only=True):
    """The file."""

    format: int
    kind: Literal["bounds"]
    corpus: str
    factor: float
    models: dict[str, ModelBounds]
    plan: str
    registered: str

    @classmethod
    def parse(cls, data: bytes, *, name: str) -> "Bounds":
        """Read bounds strictly.

        Raises: UsageError that says what is wrong.
        """
        try:
            bounds = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{name} holds no bounds: {error}", hint="determinism accuracy calibrate") from error
        if bounds.format != FORMAT:
            raise UsageError(f"{name} has format {bounds.format}, this program reads format {FORMAT}")
        if canonical(msgspec.to_builtins(bounds)) != data:
            raise UsageError(f"{name} is not canonical JSON, so it is not what calibrate wrote")
        return bounds

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return canonical(msgspec.to_builtins(self))


def write_bounds(bounds: Bounds, path: Path) -> str:
    """Write the file, which must not exist, and return its digest.

    Raises: UsageError where it exists or cannot be written.
    """
    data = bounds.to_bytes()
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        hint = "bounds are frozen: calibrate into a new file"
        raise UsageError(f"{path}: cannot be made: {error.strerror}", hint=hint) from error
    return digest(data)
