"""A folder of one kind that is opened as another is a wrong argument, and no evidence against anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.accuracy.record import AccuracyRun
from audit.errors import UsageError
from audit.identity.evidence import IdentityRun
from audit.remedy.record import RemedyRun
from audit.store import Folder, Run

READERS: tuple[type[Folder[Any, Any]], ...] = (Run, AccuracyRun, IdentityRun, RemedyRun)
STORED = {
    "audit": "2026-11-30-skulk-b10434-tiny",
    "accuracy": "2026-11-30-accuracy-tiny-llama-q4_0",
    "identity": "2026-11-30-identity-skulk",
    "remedy": "2026-11-30-remedy-gemma",
}


def test_every_reader_has_a_stored_folder() -> None:
    """A kind that comes later is looked at too."""
    assert {reader.kind for reader in READERS} == set(STORED)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_another_kind_is_named_with_the_one_that_was_expected(
    repository: Path, reader: type[Folder[Any, Any]], kind: str
) -> None:
    """Audits and accuracy records share the shape of their manifest, and who needs one of the two asks for its kind."""
    folder = repository / "results" / STORED[kind]
    if reader.kind == kind or {reader.kind, kind} == {"audit", "accuracy"}:
        assert reader.open(folder).manifest.kind == kind
        return
    with pytest.raises(UsageError, match=f"is a run of kind {kind}, not of kind {reader.kind}"):
        reader.open(folder)
