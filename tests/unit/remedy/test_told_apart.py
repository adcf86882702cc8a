"""A setting is only told apart from chance where its bound lies below what was seen without it."""

from __future__ import annotations

import pytest

from audit.remedy.findings import STATUSES, is_told_apart
from audit.remedy.page import STATUS_WORDS
from audit.statistics import rate


@pytest.mark.parametrize(
    ("waves", "before", "after", "told"),
    [
        (16, (16, 16), (16, 16), True),
        (16, (4, 16), (3, 16), True),  # 0 of 16 bounds the rate at 0.171
        (16, (4, 16), (2, 16), False),
        (2, (2, 2), (2, 2), True),
        (2, (1, 2), (2, 2), False),
        (60, (4, 60), (4, 60), True),
        (60, (2, 60), (4, 60), False),
    ],
)
def test_a_divergence_that_is_rare_needs_more_waves(
    waves: int, before: tuple[int, int], after: tuple[int, int], told: bool
) -> None:
    """Both sides count: on either the divergence must be more frequent than the setting can still be."""
    sides = [rate(*side)._asdict() for side in (before, after)]
    assert is_told_apart(rate(0, waves)._asdict(), sides) is told


def test_every_status_is_explained() -> None:
    """On the page, in the same order."""
    assert tuple(STATUS_WORDS) == STATUSES
