"""The shapes of findings.json of an audit, without behaviour: what a run's facts amount to.

docs/reference/verdicts.md says how each is computed. Like the shapes of record.py they are strict, so that a document
with another field or type is none; schemas/findings.schema.json is made of them.
"""

from typing import Any, Literal

import msgspec

from audit.errors import EvidenceError

__all__ = ["CellFinding", "Consequence", "Findings", "InstrumentFinding", "Rate", "Witness", "checked"]

Status = Literal["held", "failed", "incomplete"]
Kind = Literal["greedy", "seeded"]
Verdict = Literal[
    "unsupported",
    "not run",
    "tainted",
    "cross-talk",
    "vacuous",
    "insufficient",
    "unstable",
    "divergent",
    "token-identical",
    "identical",
]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape: frozen, by keyword, and strict about its fields."""


class Rate(_Shape, frozen=True, kw_only=True):
    """How many of n diverged, with the exact 95 % bounds of the rate, rounded outwards to six decimals."""

    divergent: int
    n: int
    low: float
    high: float


class Counted(_Shape, frozen=True, kw_only=True):
    """K of n."""

    k: int
    n: int


class Witness(_Shape, frozen=True, kw_only=True):
    """The smallest evidence of a divergence: the first difference of two streams. Logprobs and margin in nats."""

    trial: str
    reference: str
    step: int
    level: Literal["token", "logprob", "length"]
    rank: int
    value: float | None
    reference_value: float | None
    value_hex: str | None
    reference_hex: str | None
    ulp: int | None
    nats: float | None
    margin: float | None


class Consequence(_Shape, frozen=True, kw_only=True):
    """What the divergences of a cell do to summed logprob (nats), perplexity (percent) and ranks."""

    nats_median: float
    nats_max: float
    perplexity_percent_max: float
    rank_swaps: int


class CellFinding(_Shape, frozen=True, kw_only=True):
    """One condition on one server."""

    server: str
    condition: str
    verdict: Verdict
    reason: str
    qualifiers: list[Literal["partial", "weak"]]
    planned: int
    usable: int
    minimum: int
    excluded: dict[str, int]
    reasons: dict[str, int]
    logprob_identical: int
    token_identical: int
    distinct: int
    by_trial: Rate
    by_wave: Rate
    witness: Witness | None
    consequence: Consequence | None


class InstrumentFinding(_Shape, frozen=True, kw_only=True):
    """One check of the measuring chain on one server."""

    server: str
    check: str
    status: Status
    k: int
    n: int


class PooledFinding(_Shape, frozen=True, kw_only=True):
    """One condition over all servers that have a verdict for it."""

    condition: str
    servers: dict[str, Verdict]
    usable: int
    logprob_identical: int
    token_identical: int
    by_trial: Rate
    by_wave: Rate


class WavesFinding(_Shape, frozen=True, kw_only=True):
    """The three claims about the waves of one level."""

    server: str
    kind: Kind
    level: int
    waves: int
    repeatable: Counted
    wave_independent: Counted
    batch_invariant: Counted


class ThresholdFinding(_Shape, frozen=True, kw_only=True):
    """The largest level without divergence, with the bound of its rate."""

    server: str
    kind: Kind
    level: int | None
    waves: int | None
    high: float | None
    above: int | None


class PredictedCell(_Shape, frozen=True, kw_only=True):
    """A cell that a prediction speaks of."""

    server: str
    condition: str
    k: int
    n: int
    verdict: Verdict


class PredictionFinding(_Shape, frozen=True, kw_only=True):
    """What became of a prediction."""

    id: str
    statement: str
    status: Literal["holds", "refuted", "inconclusive", "not applicable"]
    k: int
    n: int
    cells: list[PredictedCell]


class Findings(_Shape, frozen=True, kw_only=True):
    """The whole document."""

    format: int
    kind: Literal["audit"]
    seal: str | None
    sound: bool
    conclusion: Literal["sound", "inconclusive"]
    instrument: list[InstrumentFinding]
    cells: list[CellFinding]
    pooled: list[PooledFinding]
    waves: list[WavesFinding]
    thresholds: list[ThresholdFinding]
    predictions: list[PredictionFinding]
    exploratory: Literal["not registered", "uncommitted", "changed", "overridden"] | None


def checked(document: dict[str, Any]) -> dict[str, Any]:
    """Return a findings document unchanged, if it is one.

    Raises: EvidenceError where a field is missing, unknown or of another type.
    """
    try:
        msgspec.convert(document, Findings)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"findings.json: {error}") from error
    return document
