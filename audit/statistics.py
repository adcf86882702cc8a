"""Exact bounds on a rate, rounded outwards, and the rate that a number of trials would have shown.

Counts in, bounds out. Two programs must print the same digits, so a bound that falls close to a multiple of the last
digit is decided by exact integer arithmetic. Nothing here knows what was counted.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from scipy.special import betaincinv

from audit.errors import EvidenceError

__all__ = ["CONFIDENCE", "DIGITS", "Rate", "detectable_rate", "rate"]

CONFIDENCE = Fraction(95, 100)
DIGITS = 6
_UNIT = 10**DIGITS
_ONE_SIDED = 1 - CONFIDENCE
_TWO_SIDED = _ONE_SIDED / 2
# scipy's quantiles are good to about 1e-12; within a hundredth of the last digit they are not trusted. They come from
# scipy.special, since importing scipy.stats takes longer than judging a run.
_DOUBT = 0.01


class Rate(NamedTuple):
    """How many of `n` diverged, with Clopper-Pearson bounds on the rate: low rounded down, high rounded up."""

    divergent: int
    n: int
    low: float
    high: float


def rate(divergent: int, n: int) -> Rate:
    """Bound a rate at 95 %: on both sides, and on one side where none or all of `n` diverged.

    Raises: EvidenceError where not 0 <= divergent <= n.
    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934) 404-413.
    """
    if not 0 <= divergent <= n:
        raise EvidenceError(f"{divergent} of {n} is no count")
    if n == 0:
        return Rate(0, 0, 0.0, 1.0)
    tail = _ONE_SIDED if divergent in {0, n} else _TWO_SIDED
    low = 0.0 if divergent == 0 else _lower(divergent, n, tail) / _UNIT
    # The upper bound of k is one minus the lower bound of n - k.
    high = 1.0 if divergent == n else (_UNIT - _lower(n - divergent, n, tail)) / _UNIT
    return Rate(divergent, n, low, high)


def detectable_rate(n: int) -> float:
    """Return the smallest divergence rate that `n` trials show at least once with 95 % probability, rounded up."""
    return rate(0, n).high


def _lower(k: int, n: int, tail: Fraction) -> int:
    """Return the lower bound of `k` of `n` in units of the last digit, rounded down; k > 0."""
    scaled: float = float(betaincinv(k, n - k + 1, float(tail))) * _UNIT
    nearest: int = round(scaled)
    if abs(scaled - nearest) > _DOUBT:
        return math.floor(scaled)
    return nearest if _at_least(k, n, nearest) <= tail else nearest - 1


def _at_least(k: int, n: int, unit: int) -> Fraction:
    """Return the exact probability of `k` or more of `n` at a rate of `unit` units; it rises with the rate."""
    hit, miss = unit, _UNIT - unit
    total = sum(math.comb(n, i) * hit**i * miss ** (n - i) for i in range(k, n + 1))
    return Fraction(total, _UNIT**n)
