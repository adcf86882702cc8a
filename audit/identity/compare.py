"""Two matrices of rows, compared as bytes; where they differ, how and by how much.

In go float32 rows of shape (rows, vocabulary), out come counts, the first differing value, and measures that another
program can compute again to the bit: every one is a single operation of IEEE doubles on float32 values, so that no
order of summation takes part. Rows are looked at one after the other; there is no Python loop over values.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROUNDING_SHARE_MAX", "Difference", "Part", "compare_rows", "farthest_nats", "ordinals"]

# A row whose values moved against each other by more than this share of its range did not only round differently:
# half precision, the coarsest number that rounding goes through in a float32 engine, keeps 11 bits.
ROUNDING_SHARE_MAX = 2.0**-10
# A difference that is one constant still comes out rounded on both sides, once each.
_CONSTANT_ULP_MAX = 2
# What the server writes for a probability of 0; it takes part in equality and in no measure of size.
_SENTINEL = np.float32(-3.4028234663852886e38)

Values = NDArray[np.float32]


class Part(NamedTuple):
    """The rows of one prompt on both sides, of equal shape."""

    prompt: str
    old: Values
    new: Values


class _RowDifference(NamedTuple):
    """One differing row; `share` is the spread of its differences over the old row's range, None without one."""

    differing: int
    nats_max: float
    ulp_max: int
    share: float | None
    constant: bool


class Difference(NamedTuple):
    """How two sides differ over all prompts of a cell; see docs/reference/identity.md for each field."""

    first: dict[str, Any]
    nats_max: float
    ulp_max: int
    rows: tuple[int, int]
    values: tuple[int, int]
    argmax: tuple[int, int]
    begins: str
    constant_rows: int
    share_max: float | None
    looks: str

    def entry(self) -> dict[str, Any]:
        """Return the difference for findings.json."""
        return {
            "first": self.first,
            "nats_max": self.nats_max,
            "ulp_max": self.ulp_max,
            "rows": list(self.rows),
            "values": list(self.values),
            "argmax": list(self.argmax),
            "begins": self.begins,
            "constant_rows": self.constant_rows,
            "share_max": self.share_max,
            "looks": self.looks,
        }


def ordinals(values: Values) -> NDArray[np.int32]:
    """Number the float32 values by their order, adjacent ones 1 apart, both zeros 0.

    32 bits hold the numbers and not every difference of two: subtract them as int64.
    """
    bits = values.view(np.int32)
    return np.where(bits < 0, np.int32(-(2**31)) - bits, bits)


def farthest_nats(old: Values, new: Values) -> float:
    """Return the largest absolute difference of two rows or matrices, in nats; infinite where one is not finite."""
    if old.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        moved = np.abs(new.astype(np.float64) - old.astype(np.float64))
    return float(moved.max()) if np.isfinite(moved).all() else float("inf")


def compare_rows(parts: Sequence[Part]) -> Difference | None:
    """Compare both sides of every prompt.

    Returns: None where all bytes are equal.
    """
    first: dict[str, Any] | None = None
    moved: list[_RowDifference] = []
    rows = values = agreeing = 0
    in_prefill = False
    for part in parts:
        for step in range(part.old.shape[0]):
            old, new = part.old[step], part.new[step]
            rows, values = rows + 1, values + old.size
            agreeing += int(old.argmax()) == int(new.argmax())
            if np.array_equal(old.view(np.uint32), new.view(np.uint32)):
                continue
            first = first or _first(part.prompt, step, old, new)
            in_prefill = in_prefill or step == 0
            moved.append(_row(old, new))
    if first is None:
        return None
    shares = [row.share for row in moved if row.share is not None]
    share = max(shares) if len(shares) == len(moved) else None
    return Difference(
        first=first,
        nats_max=max(row.nats_max for row in moved),
        ulp_max=max(row.ulp_max for row in moved),
        rows=(len(moved), rows),
        values=(sum(row.differing for row in moved), values),
        argmax=(agreeing, rows),
        begins="prefill" if in_prefill else "decode",
        constant_rows=sum(row.constant for row in moved),
        share_max=share,
        looks="rounding" if share is not None and share <= ROUNDING_SHARE_MAX else "structure",
    )


def _first(prompt: str, step: int, old: Values, new: Values) -> dict[str, Any]:
    """Name the first differing value in token-id order, both sides in decimal and as the hex of their bits."""
    left, right = old.view(np.uint32), new.view(np.uint32)
    token = int(np.flatnonzero(left != right)[0])
    return {
        "prompt": prompt,
        "step": step,
        "token": token,
        "old": float(old[token]),
        "new": float(new[token]),
        "old_hex": f"{int(left[token]):08x}",
        "new_hex": f"{int(right[token]):08x}",
    }


def _row(old: Values, new: Values) -> _RowDifference:
    """Measure one differing row, without the entries that are the sentinel on either side."""
    differing = int((old.view(np.uint32) != new.view(np.uint32)).sum())
    counted = (old != _SENTINEL) & (new != _SENTINEL)
    if not counted.all():
        old, new = old[counted], new[counted]
    if old.size == 0:
        return _RowDifference(differing, 0.0, 0, None, constant=False)
    moved = np.subtract(new, old, dtype=np.float64)
    rise, fall = float(moved.max()), float(moved.min())
    old_max, old_min = old.max(), old.min()
    width = float(old_max) - float(old_min)
    largest = max(abs(one) for one in (old_max, old_min, new.max(), new.min()))
    spread = rise - fall
    return _RowDifference(
        differing=differing,
        nats_max=max(abs(rise), abs(fall)),
        ulp_max=int(np.abs(np.subtract(ordinals(new), ordinals(old), dtype=np.int64)).max()),
        share=spread / width if width > 0 else None,
        constant=spread <= _CONSTANT_ULP_MAX * float(np.spacing(largest)),
    )
