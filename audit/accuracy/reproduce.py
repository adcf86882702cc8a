"""A reference captured again: does every row come out the same, and by which executable.

In go two references of one group, the first from the record and the second made from its pins, out come the rows whose
digests differ. The second folder keeps the first as a fact, and its own declaration names the executable.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.accuracy.archive import Capture, open_capture
from audit.accuracy.corpus import Corpus
from audit.accuracy.order import AccuracyOrder
from audit.accuracy.plan import AccuracyPlan
from audit.errors import UsageError

__all__ = ["Reproduction", "compared", "order_of", "settings_of"]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """How many rows were compared, which (sequence, position) differ, and by which build they were made again."""

    rows: int
    differing: tuple[tuple[str, int], ...]
    build: str


def order_of(original: Capture) -> AccuracyOrder:
    """Return the order that a reference was captured under, from its own record.

    Raises: UsageError where it is no reference.
    """
    if original.head.side != "reference":
        raise UsageError(f"{original.folder} is {original.label}, and only a reference is reproduced")
    plan = AccuracyPlan.parse(json.loads(original.run.plan_bytes()), name="plan.json")
    corpus: Corpus = original.corpus
    return AccuracyOrder(
        plan=plan,
        corpus=corpus,
        registered=original.manifest.registered,
        registration=original.manifest.registration,
        files=original.run.registration(),
    )


def settings_of(original: Capture) -> dict[str, Any]:
    """Return the settings that a reference's server was started with.

    Raises: UsageError where none are recorded.
    """
    settings = original.declaration.get("settings")
    if not isinstance(settings, dict):
        raise UsageError(f"{original.folder} does not record how its server was started")
    return {**settings, "extra_args": tuple(settings.get("extra_args", ()))}


def compared(original: Capture, folder: Path) -> Reproduction:
    """Compare a reproduction with its original, row by row.

    Raises: UsageError where a sequence is refused.
    """
    again = open_capture(folder)
    if again.refused:
        (mode, sequence), reason = next(iter(again.refused.items()))
        raise UsageError(f"{folder}: {mode} {sequence} is refused: {reason}", hint="reproduce it again")
    differing, rows = [], 0
    for one in original.members:
        before, now = (capture.rows_fact("serial", one.id).digests for capture in (original, again))
        rows += len(before)
        pairs = zip(before, now, strict=True)
        differing += [(one.id, position) for position, (first, second) in enumerate(pairs) if first != second]
    return Reproduction(
        rows=rows,
        differing=tuple(differing),
        build=_build(again, original),
    )


def _build(again: Capture, original: Capture) -> str:
    """Name the build that made the rows again, and say whether it is the original's."""
    same = all(again.build[name] == original.build[name] for name in ("executable_sha256", "libraries"))
    return f"{again.declaration.get('build')}, {'the' if same else 'another than the'} original's executable"
