"""What the report calls things: every check and every verdict has words of its own."""

from __future__ import annotations

from typing import get_args

from audit.finding import Verdict
from audit.prereg.predictions import CHECKS as KNOWN_CHECKS
from audit.report.words import CHECKS, VERDICTS


def test_every_check_of_the_instrument_is_explained() -> None:
    """A name alone explains nothing, and a check that is gone needs no words."""
    assert sorted(CHECKS) == sorted(KNOWN_CHECKS)
    assert all(words.count(" ") > 2 for words in CHECKS.values())


def test_every_verdict_is_explained() -> None:
    """No cell has a verdict that the page does not explain."""
    assert sorted(VERDICTS) == sorted(get_args(Verdict))
