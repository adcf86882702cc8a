"""The smallest concrete evidence of a cell's divergence, and what the divergence does to the text's probability.

In go the usable trials of a cell, out come the entries `witness` and `consequence` of findings.json, null where nothing
differs or this copy of the record leaves the streams out. Each pair of streams is compared once.
"""

from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from audit.analyse.table import NO_LOGPROBS
from audit.compare import Consequence, Difference, consequence, first_difference
from audit.store import Run

__all__ = ["Witnesses"]


class _Pair(NamedTuple):
    """A trial's stream and its reference's, by digest."""

    stream: str
    reference: str


class Witnesses:
    """Compares the streams of one run."""

    def __init__(self, run: Run) -> None:
        """Prepare; nothing is read yet."""
        self._run = run
        self._difference = cache(self._compare)
        self._consequence = cache(self._consequence_of)

    def __call__(self, usable: pd.DataFrame) -> Mapping[str, Any]:
        """Return `witness` and `consequence` of a cell's usable trials."""
        differs = (usable["outcome"] != "identical") & usable["logprob"].notna()
        other = usable.loc[differs, ["condition", "trial", "reference", "logprob", "reference_logprob"]]
        pairs = [_Pair(*pair) for pair in zip(other["logprob"], other["reference_logprob"], strict=True)]
        if not all(self._run.has("streams", name) for pair in set(pairs) for name in pair):
            return {"witness": None, "consequence": None}
        tokens_only = bool((other["condition"] == NO_LOGPROBS).any())
        found = [
            (difference, trial, reference)
            for pair, trial, reference in zip(pairs, other["trial"], other["reference"], strict=True)
            if (difference := self._difference(pair, tokens_only)) is not None
        ]
        return {
            "witness": _witness(*min(found, key=lambda item: (item[0].step, item[1]))) if found else None,
            "consequence": None if tokens_only else _summary([self._consequence(pair) for pair in pairs]),
        }

    def _compare(self, pair: _Pair, tokens_only: bool) -> Difference | None:  # noqa: FBT001 - a key of the cache
        return first_difference(
            self._run.stream(pair.stream), self._run.stream(pair.reference), tokens_only=tokens_only
        )

    def _consequence_of(self, pair: _Pair) -> Consequence | None:
        return consequence(self._run.stream(pair.stream), self._run.stream(pair.reference))


def _witness(difference: Difference, trial: str, reference: str) -> dict[str, Any]:
    value, other = difference.value, difference.reference_value
    return {
        "trial": trial,
        "reference": reference,
        **difference._asdict(),
        "value_hex": None if value is None else value.hex(),
        "reference_hex": None if other is None else other.hex(),
    }


def _summary(found: list[Consequence | None]) -> dict[str, Any] | None:
    """Return the median and the largest of what the trials show, None where none shows anything."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    nats = [abs(one.nats) for one in known]
    percent = [abs(one.perplexity_percent) for one in known if one.perplexity_percent is not None]
    return {
        "nats_median": float(median(nats)),
        "nats_max": max(nats),
        "perplexity_percent_max": max(percent) if len(percent) == len(known) else None,
        "rank_swaps": sum(one.rank_swaps for one in known),
    }
