"""Each metric by a worked example, and against plain Python; a constant more is the same distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.accuracy import metrics
from audit.accuracy.metrics import COLUMNS, METRICS, Measures, log_softmax, measure
from audit.errors import EvidenceError

# Probabilities 1/2, 1/4, 1/8, 1/8 and 1/4, 1/2, 1/8, 1/8.
REFERENCE = np.log(np.array([[0.5, 0.25, 0.125, 0.125]])).astype(np.float32)
SERVER = np.log(np.array([[0.25, 0.5, 0.125, 0.125]])).astype(np.float32)


def row(*values: float) -> NDArray[np.float32]:
    """One row."""
    return np.array([values], dtype=np.float32)


def test_the_largest_absolute_error_is_that_of_one_token() -> None:
    """Two tokens are off by ln 2 nats, the others by nothing."""
    found = measure(SERVER, REFERENCE, slot=0)
    assert found.max_abs[0] == pytest.approx(math.log(2), rel=1e-6)


def test_relative_l2_is_by_the_references_norm() -> None:
    """The error vector is (-ln 2, ln 2, 0, 0), the reference (1, 2, 3, 3) times -ln 2: sqrt(2) over sqrt(23)."""
    found = measure(SERVER, REFERENCE, slot=0)
    assert found.relative_l2[0] == pytest.approx(math.sqrt(2 / 23), rel=1e-6)
    assert measure(REFERENCE, SERVER, slot=0).relative_l2[0] == pytest.approx(math.sqrt(2 / 23), rel=1e-6)
    other = measure(REFERENCE, row(0, 0, 0, 0), slot=0)
    # The other way round the norm is another: four tokens of ln 4 each.
    assert other.relative_l2[0] == pytest.approx(math.sqrt(1 + 0 + 1 + 1) / 4, rel=1e-6)


def test_total_variation_is_half_the_moved_probability() -> None:
    """A quarter moved from the first token to the second."""
    assert measure(SERVER, REFERENCE, slot=0).total_variation[0] == pytest.approx(0.25, rel=1e-6)


def test_gap_and_bests_are_the_references_and_each_sides() -> None:
    """The gap is ln 2; the best tokens are 0 and 1; of equal ones the first counts."""
    found = measure(SERVER, REFERENCE, slot=7)
    assert found.gap[0] == pytest.approx(math.log(2), rel=1e-6)
    assert (found.best_reference[0], found.best_server[0], found.slot[0], found.position[0]) == (0, 1, 7, 0)
    tied = measure(row(-1, -1, -2), row(-3, -1, -1), slot=0)
    assert (tied.best_server[0], tied.best_reference[0], tied.gap[0]) == (0, 1, 0.0)


@pytest.mark.parametrize("constant", [0.0, 0.5, -17.25, 1000.0, -30000.0])
def test_a_constant_shift_changes_no_probability(constant: float) -> None:
    """Logits and logprobs of the same distribution are at no distance."""
    shifted = measure(REFERENCE.astype(np.float64) + constant, REFERENCE, slot=0)
    assert [getattr(shifted, name)[0] for name in METRICS] == pytest.approx([0, 0, 0], abs=1e-9)


def test_large_values_do_not_overflow() -> None:
    """The softmax is stable: thousands of nats are finite, and the sum of probabilities is 1."""
    values = log_softmax(row(30000.0, 29999.0, -30000.0))
    assert np.isfinite(values).all()
    assert np.exp(values).sum() == pytest.approx(1.0, abs=1e-15)


def test_equal_rows_are_at_no_distance() -> None:
    """Self against self."""
    found = measure(REFERENCE, REFERENCE, slot=0)
    assert [float(getattr(found, name)[0]) for name in METRICS] == [0.0, 0.0, 0.0]


def plain(server: list[float], reference: list[float]) -> list[float]:
    """The three metrics, one value after the other."""

    def normal(values: list[float]) -> list[float]:
        total = math.fsum(math.exp(value - max(values)) for value in values)
        return [value - max(values) - math.log(total) for value in values]

    ours, theirs = normal(server), normal(reference)
    differences = [one - two for one, two in zip(ours, theirs, strict=True)]
    moved = math.fsum(abs(math.exp(one) - math.exp(two)) for one, two in zip(ours, theirs, strict=True))
    norm: Callable[[list[float]], float] = lambda values: math.sqrt(math.fsum(value**2 for value in values))  # noqa: E731
    return [max(map(abs, differences)), norm(differences) / norm(theirs), moved / 2]


def test_many_rows_at_once_are_each_what_plain_python_gives() -> None:
    """Vectorised over rows and values, to within the order of a sum."""
    random = np.random.default_rng(5)
    reference = random.normal(size=(6, 333), scale=3).astype(np.float32)
    server = reference + random.normal(size=reference.shape, scale=0.01).astype(np.float32)
    found = measure(server, reference, slot=2)
    for at in range(6):
        mine = [float(getattr(found, name)[at]) for name in METRICS]
        assert mine == pytest.approx(plain(server[at].tolist(), reference[at].tolist()), rel=1e-11)
    assert found.position.tolist() == list(range(6))


@pytest.mark.parametrize("values", [1, 100, 250, 2**20])
def test_rows_are_the_same_however_many_are_measured_at_a_time(values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of one row, of two, with a rest, of all: the same bits, since a row's sums are its own."""
    generator = np.random.default_rng(3)
    reference = -generator.exponential(10.0, (7, 100)).astype(np.float32)
    server = (reference + generator.normal(0.0, 0.1, reference.shape)).astype(np.float32)
    alone = [measure(server[row : row + 1], reference[row : row + 1], slot=2) for row in range(7)]
    monkeypatch.setattr(metrics, "_BLOCK_VALUES", values)
    found = measure(server, reference, slot=2)
    assert found.position.tolist() == list(range(7))
    for name in set(COLUMNS) - {"position"}:
        assert getattr(found, name).tobytes() == getattr(Measures.joined(alone), name).tobytes()


@pytest.mark.parametrize("other", [row(1, 2), np.ones((2, 4), np.float32), np.ones(4, np.float32)])
def test_rows_of_other_shapes_are_not_compared(other: NDArray[np.float32]) -> None:
    """A short row, another number of rows, or no rows at all."""
    with pytest.raises(EvidenceError, match="cannot be compared"):
        measure(other, REFERENCE, slot=0)


def test_metrics_read_back_are_the_same_bytes() -> None:
    """Golden: a header, then one list a row, floats as repr."""
    found = Measures.joined([measure(REFERENCE, REFERENCE, slot=0), measure(SERVER, REFERENCE, slot=1)])
    data = found.to_bytes()
    assert data.splitlines()[1] == b"[0,0,0.0,0.0,0.0,0.6931471824645996,0,0]"
    again = Measures.from_bytes(data)
    assert all((getattr(again, name) == getattr(found, name)).all() for name in COLUMNS)
    assert len(again) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"0.0", b"0.00", 1),
        lambda data: data.replace(b"max_abs", b"max", 1),
        lambda data: data + b"[]\n",
        lambda data: data.replace(b"[0,0,", b"[0.5,0,", 1),
        lambda data: b"{" + data,
    ],
)
def test_metrics_that_nobody_wrote_are_refused(change: Callable[[bytes], bytes]) -> None:
    """Other digits, another header, a short row, a fraction for a slot, or no JSON."""
    with pytest.raises(EvidenceError, match="metrics of"):
        Measures.from_bytes(change(measure(REFERENCE, REFERENCE, slot=0).to_bytes()))
