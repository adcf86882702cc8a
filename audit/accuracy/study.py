"""Captures that belong together: each group of each model on both sides, once, complete, and of one build.

In go opened captures, out come pairs of server and reference, and their metrics. What is missing is a UsageError, what
contradicts is an EvidenceError. No bound is known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.accuracy.archive import Capture, open_capture
from audit.accuracy.metrics import Measures, measure
from audit.accuracy.order import AccuracyOrder
from audit.accuracy.plan import MODES, Mode
from audit.errors import EvidenceError, UsageError
from audit.stream import digest

__all__ = ["Pair", "Study", "measure_pair", "open_study"]

_SHOWN_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One group of one model: as the server gave it, and as the reference did."""

    server: Capture
    reference: Capture


@dataclass(frozen=True, kw_only=True)
class Study:
    """The pairs of some groups by model and group, in the order of the corpus."""

    pairs: dict[tuple[str, str], Pair]

    @property
    def captures(self) -> list[Capture]:
        """All captures, the server's and the reference's of each group."""
        return [capture for pair in self.pairs.values() for capture in (pair.server, pair.reference)]


def open_study(folders: Sequence[Path], order: AccuracyOrder, *, models: Sequence[str], groups: Sequence[str]) -> Study:
    """Open captures and check that they are all that is needed, and belong together.

    Args:
        folders: the captures' folders, in any order.
        order: plan and corpus that all of them must have.
        models: the models that are needed.
        groups: the groups that are needed of each.

    Raises: UsageError where something is missing, there twice or not asked for, or a sequence is refused;
        EvidenceError where captures contradict each other, the plan or the corpus.
    """
    found: dict[tuple[str, str, str], Capture] = {}
    for folder in folders:
        capture = open_capture(folder)
        key = (capture.head.model, capture.head.group, capture.head.side)
        if key in found:
            raise UsageError(f"{folder} and {found[key].folder} are both {capture.label}", hint="give one of them")
        if key[0] not in models or key[1] not in groups:
            raise UsageError(f"{folder} is {capture.label}, which has no place here: only {', '.join(groups)}")
        _check_order(capture, order)
        found[key] = capture
    wanted = [(model, group, side) for model in models for group in groups for side in ("server", "reference")]
    missing = [" ".join(key) for key in wanted if key not in found]
    if missing:
        raise UsageError(f"missing: {', '.join(missing)}", hint="capture them, or name their folders")
    for model in models:
        for side in ("server", "reference"):
            _check_builds([found[model, group, side] for group in groups])
    _check_refused(list(found.values()))
    pairs = {
        (model, group): Pair(server=found[model, group, "server"], reference=found[model, group, "reference"])
        for model in models
        for group in groups
    }
    return Study(pairs=pairs)


def _check_order(capture: Capture, order: AccuracyOrder) -> None:
    if capture.head.corpus != digest(order.corpus.to_bytes()):
        raise EvidenceError(f"{capture.folder} was captured with another corpus")
    if capture.manifest.plan != digest(order.plan.to_bytes()) or capture.manifest.registered != order.registered:
        raise EvidenceError(f"{capture.folder} was captured under another plan or registration")


def _check_builds(captures: Sequence[Capture]) -> None:
    """Refuse captures of one side that were made by different executables or settings."""
    first = captures[0]
    for other in captures[1:]:
        differing = [name for name in first.build if first.build[name] != other.build[name]]
        if differing:
            raise EvidenceError(
                f"{other.folder} is of another build than {first.folder}: {', '.join(differing)} differ"
            )


def _check_refused(captures: Sequence[Capture]) -> None:
    refused = [
        f"{capture.label} {mode} {sequence}: {reason}"
        for capture in captures
        for (mode, sequence), reason in capture.refused.items()
    ]
    if refused:
        more = f", and {len(refused) - _SHOWN_MAX} more" if len(refused) > _SHOWN_MAX else ""
        raise UsageError(f"refused: {'; '.join(refused[:_SHOWN_MAX])}{more}", hint="capture these groups again")


def measure_pair(pair: Pair) -> dict[Mode, Measures]:
    """Measure every row of a group in both modes against the reference's, one sequence after the other."""
    found: dict[Mode, Measures] = {}
    for mode in MODES:
        parts = []
        for one in pair.server.members:
            reference = pair.reference.rows("serial", one.id)
            parts.append(measure(pair.server.rows(mode, one.id), reference, slot=one.slot))
        found[mode] = Measures.joined(parts)
    return found
