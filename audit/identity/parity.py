"""Candidate rows for a parity record: families whose validation the new build may take over from the old one.

In goes the folder of a finished comparison, out come a file with one entry for each family that qualifies, and the
reasons of those that do not. It decides nothing that the findings do not say.
"""

from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.identity.evidence import IdentityRun, read_rounds
from audit.identity.findings import identity_findings
from audit.stream import FORMAT, canonical

__all__ = ["candidates", "write_candidates"]


def candidates(run: IdentityRun) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries of families that qualify, and for each other family why it does not."""
    findings, manifest = identity_findings(run), run.manifest
    old, new = manifest.builds[0], manifest.builds[-1]
    rounds = read_rounds(run)
    pair = findings["pairs"][0]
    refused: list[str] = []
    entries: list[dict[str, Any]] = []
    if len(findings["pairs"]) > 1:
        return [], [f"{len(manifest.builds)} builds were compared, and a candidate needs one pair"]
    for family in pair["families"]:
        name = family["family"]
        pinned = all((rounds[build.label, cell.cell, 1].executable is not None) for build in (old, new)
                     for cell in manifest.cells if cell.family == name)  # fmt: skip
        if family["verdict"] != "IDENTICAL":
            refused.append(f"{name} is {family['verdict']}{': ' + family['reason'] if family['reason'] else ''}")
        elif not family["inherits"]:
            refused.append(f"{name}: only {family['ran']} of {family['cells']} cells ran")
        elif not pinned:
            refused.append(f"{name}: a server that ran already is pinned by no digest")
        else:
            entries.append(
                {
                    "family": name,
                    "device": findings["device"],
                    "rows": findings["rows"],
                    "from": {"name": old.name, "commit": old.commit, "archive": old.archive},
                    "to": {"name": new.name, "commit": new.commit, "archive": new.archive},
                    "cells": [
                        {"cell": cell.cell, "model_sha256": cell.model_sha256}
                        for cell in manifest.cells
                        if cell.family == name
                    ],
                    "seal": findings["seal"],
                }
            )
    return entries, refused


def write_candidates(folder: Path, file: Path) -> list[str]:
    """Write the candidates to a file, and return the refusals.

    Raises: UsageError where it cannot be written.
    """
    entries, refused = candidates(IdentityRun.open(folder))
    try:
        file.write_bytes(canonical({"format": FORMAT, "kind": "parity-candidates", "candidates": entries}))
    except OSError as error:
        raise UsageError(f"--record {file} cannot be written: {error.strerror}") from error
    return refused
