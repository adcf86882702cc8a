"""Bounds are exact, rounded outwards, and the same in every implementation."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import EvidenceError
from audit.statistics import detectable_rate, rate


def tail_at_least(k: int, n: int, p: Fraction) -> Fraction:
    """Return the exact probability of `k` or more of `n`."""
    return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1)), Fraction(0))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 1, 0.0, 0.95),
        (1, 1, 0.05, 1.0),
        (0, 2, 0.0, 0.776394),
        (0, 60, 0.0, 0.048703),
        (60, 60, 0.951297, 1.0),
        (1, 2, 0.012579, 0.987421),
        (5, 10, 0.187086, 0.812914),
    ],
)
def test_golden_bounds(k: int, n: int, low: float, high: float) -> None:
    """Known bounds, two of them exact multiples of the last digit (1 of 1 and 0 of 1)."""
    assert rate(k, n) == (k, n, low, high)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_are_rounded_outwards_by_less_than_one_digit(pair: tuple[int, int]) -> None:
    """At the printed low the tail is at most its share, one digit further in it is more; likewise for high."""
    k, n = pair
    found = rate(k, n)
    share = Fraction(5, 100) if k in {0, n} else Fraction(5, 200)
    digit = Fraction(1, 10**6)
    low, high = Fraction(str(found.low)), Fraction(str(found.high))
    if k:
        assert tail_at_least(k, n, low) <= share < tail_at_least(k, n, low + digit)
    else:
        assert low == 0
    if k < n:
        assert tail_at_least(n - k, n, 1 - high) <= share < tail_at_least(n - k, n, 1 - high + digit)
    else:
        assert high == 1


def test_the_detectable_rate_falls_with_the_number_of_trials() -> None:
    """No trial detects nothing; sixty show one divergence in twenty with 95 % probability."""
    assert [detectable_rate(n) for n in (0, 1, 60)] == [1.0, 0.95, 0.048703]
    assert 1 - (1 - detectable_rate(60)) ** 60 >= 0.95


@pytest.mark.parametrize(("k", "n"), [(-1, 2), (3, 2)])
def test_what_is_no_count_is_refused(k: int, n: int) -> None:
    """A count outside 0 .. n is a contradiction."""
    with pytest.raises(EvidenceError, match=f"{k} of {n}"):
        rate(k, n)
