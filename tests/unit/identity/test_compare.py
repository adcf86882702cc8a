"""Two matrices of rows: equal bytes, or where and by how much not; and what logprobs hide that logits show."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.fake.model import row_of
from audit.identity.compare import Difference, Part, compare_rows, farthest_nats, ordinals

Values = NDArray[np.float32]


def rows(count: int = 3, vocabulary: int = 16, seed: int = 1) -> Values:
    """Return made-up logprobs."""
    made = np.random.Generator(np.random.Philox(seed)).normal(-8.0, 2.0, (count, vocabulary))
    return made.astype(np.float32)


def difference(old: Values, new: Values) -> Difference:
    """Compare one prompt that must differ."""
    found = compare_rows([Part("p", old, new)])
    assert found is not None
    return found


def planted(values: Values, step: int, token: int, direction: float = -np.inf) -> Values:
    """Return a copy with one value moved by one ULP."""
    moved = values.copy()
    moved[step, token] = np.nextafter(moved[step, token], np.float32(direction))
    return moved


def test_equal_bytes_are_no_difference() -> None:
    """The same rows, and a copy of them, compare as equal."""
    assert compare_rows([Part("p", rows(), rows()), Part("q", rows(seed=2), rows(seed=2))]) is None


@pytest.mark.parametrize(("step", "token"), [(0, 0), (1, 7), (2, 15)])
def test_one_ulp_in_any_place_is_found(step: int, token: int) -> None:
    """The place is named, the count is one value of one row, and it looks like rounding."""
    found = difference(rows(), planted(rows(), step, token))
    assert (found.first["step"], found.first["token"]) == (step, token)
    assert (found.rows, found.values, found.ulp_max) == ((1, 3), (1, 48), 1)
    assert found.begins == ("prefill" if step == 0 else "decode")
    assert found.looks == "rounding"
    assert found.constant_rows == 1, "one ULP at one place cannot be told from a constant that was rounded"


def test_the_sign_of_zero_is_a_difference() -> None:
    """Bytes are compared: -0.0 is not 0.0, though no value lies between them."""
    old = np.zeros((1, 2), np.float32)
    new = np.array([[0.0, -0.0]], np.float32)
    found = difference(old, new)
    assert (found.values, found.ulp_max, found.nats_max) == ((1, 2), 0, 0.0)


def test_a_moved_normaliser_is_one_constant() -> None:
    """Where every value moved alike, only the normaliser moved; one that moved otherwise as well is no constant."""
    moved = rows() + np.float32(0.25)
    assert difference(rows(), moved).constant_rows == 3
    moved[1, 3] += np.float32(0.01)
    assert difference(rows(), moved).constant_rows == 2


def test_a_large_change_within_a_row_looks_like_structure() -> None:
    """More than a thousandth of a row's range is no rounding."""
    moved = rows()
    moved[2, 4] += np.float32(1.0)
    found = difference(rows(), moved)
    assert found.looks == "structure"
    assert found.nats_max == pytest.approx(1.0, rel=1e-6)


def test_argmax_agreement_counts_rows() -> None:
    """A row whose most likely token is another counts, the others agree."""
    moved = rows()
    moved[1, (int(moved[1].argmax()) + 1) % 16] = 0.0
    assert difference(rows(), moved).argmax == (2, 3)


def test_the_sentinel_takes_part_in_equality_only() -> None:
    """A token of probability 0 on one side is a differing value, and no difference of 1e38 nats."""
    moved = rows()
    moved[0, 0] = np.float32(-3.4028234663852886e38)
    found = difference(rows(), moved)
    assert (found.values[0], found.nats_max) == (1, 0.0)


def test_ordinals_are_one_apart_and_cross_zero() -> None:
    """Adjacent floats are 1 apart on both sides of zero."""
    tiny = np.float32(1e-45)
    assert ordinals(np.array([-tiny, -0.0, 0.0, tiny], np.float32)).tolist() == [-1, 0, 0, 1]
    below = np.nextafter(np.float32(-2.0), np.float32(-9))
    assert ordinals(np.array([below], np.float32))[0] - ordinals(np.array([-2.0], np.float32))[0] == -1


def test_what_is_not_finite_is_infinitely_far() -> None:
    """A value that is no number is near nothing, itself included."""
    broken = np.array([np.nan], np.float32)
    assert farthest_nats(broken, broken) == np.inf
    assert farthest_nats(rows(), rows()) == 0.0


def logits(seed: int, scale: float) -> Values:
    """Return made-up logits of one step."""
    made = np.random.Generator(np.random.Philox(seed)).normal(0.0, scale, 512)
    return made.astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 4.0, 16.0])
def test_one_ulp_in_a_logit_is_always_seen_in_logits_and_not_always_in_logprobs(scale: float) -> None:
    """Planted in each of 512 logits: rows of logits differ each time, logprobs are sometimes the same bytes."""
    base = logits(3, scale)
    hidden = 0
    for token in range(base.size):
        moved = planted(base[np.newaxis], 0, token)[0]
        assert compare_rows([Part("p", base[np.newaxis], moved[np.newaxis])]) is not None
        before, after = (row_of(one).logprobs.astype(np.float32)[np.newaxis] for one in (base, moved))
        hidden += compare_rows([Part("p", before, after)]) is None
    assert 0 < hidden < base.size, f"{hidden} of {base.size} hidden at scale {scale}"


def test_a_constant_shift_of_all_logits_is_hidden_by_logprobs() -> None:
    """A power of two added where nothing is rounded: all logits differ, and not one logprob."""
    base = (logits(5, 4.0) * np.float32(256)).round() / np.float32(256)
    moved = (base + np.float32(1.0)).astype(np.float32)
    assert compare_rows([Part("p", base[np.newaxis], moved[np.newaxis])]) is not None
    assert (
        compare_rows([Part("p", *(row_of(one).logprobs.astype(np.float32)[np.newaxis] for one in (base, moved)))])
        is None
    )


def test_memory_stays_under_a_gigabyte_at_64_rows_of_the_largest_vocabulary() -> None:
    """64 rows of 262,144 values on each side, every row different: the comparison itself adds far less."""
    old = np.zeros((64, 262_144), np.float32)
    new = old + np.float32(1.0)
    tracemalloc.start()
    found = difference(old, new)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.rows == (64, 64)
    assert old.nbytes + new.nbytes + peak_bytes < 10**9
