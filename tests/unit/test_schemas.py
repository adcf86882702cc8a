"""The published schemas are generated, up to date, and fit what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

RUN = "2026-11-30-skulk-b10434-tiny"
IDENTITY = "2026-11-30-identity-epochs-smollm2"
REGISTERED = "2026-11-30-embedded-b11549"


def schema(repository: Path, name: str) -> dict[str, Any]:
    """Read a published schema."""
    loaded: dict[str, Any] = json.loads((repository / "schemas" / f"{name}.schema.json").read_text())
    return loaded


def test_the_schemas_are_up_to_date(repository: Path) -> None:
    """scripts/make_schemas.py would change nothing."""
    command = [sys.executable, "scripts/make_schemas.py", "--check"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stderr


@pytest.mark.parametrize("name", ["manifest", "plan", "findings"])
@pytest.mark.parametrize("run", [RUN, REGISTERED])
def test_a_stored_run_fits_the_schemas(repository: Path, run: str, name: str) -> None:
    """Manifest, plan and findings of a stored run are valid."""
    document = json.loads((repository / "results" / run / f"{name}.json").read_text())
    assert list(Draft202012Validator(schema(repository, name)).iter_errors(document)) == []


@pytest.mark.parametrize(("name", "path"), [("identity-manifest", "manifest.json"), ("identity-plan", "plan.json")])
def test_a_stored_identity_record_fits_the_schemas(repository: Path, name: str, path: str) -> None:
    """The other kind has shapes of its own, and its lines are valid too."""
    folder = repository / "results" / IDENTITY
    document = json.loads((folder / path).read_text())
    assert list(Draft202012Validator(schema(repository, name)).iter_errors(document)) == []
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    kinds = {line["line"] for line in lines}
    validators = {kind: Draft202012Validator(schema(repository, f"history-{kind}")) for kind in kinds}
    assert kinds == {"begin", "process", "capture", "end"}
    assert [line["n"] for line in lines if not validators[line["line"]].is_valid(line)] == []


def test_registered_predictions_fit_the_schema(repository: Path) -> None:
    """So are the predictions of a registration."""
    document = json.loads((repository / "prereg" / "audit" / "predictions.json").read_text())
    assert list(Draft202012Validator(schema(repository, "predictions")).iter_errors(document)) == []


def test_every_line_of_a_stored_history_fits_its_schema(repository: Path) -> None:
    """Each kind of line has a schema, and each stored line is valid by it."""
    validators = {
        path.name.removeprefix("history-").removesuffix(".schema.json"): Draft202012Validator(
            json.loads(path.read_text())
        )
        for path in (repository / "schemas").glob("history-*.json")
    }
    lines = [json.loads(line) for line in (repository / "results" / RUN / "history.jsonl").read_text().splitlines()]
    assert [line["n"] for line in lines if not validators[line["line"]].is_valid(line)] == []


def test_a_field_that_the_format_does_not_know_is_no_valid_manifest(repository: Path) -> None:
    """The schemas are as strict as the readers."""
    for name in ("manifest", "findings"):
        document = json.loads((repository / "results" / RUN / f"{name}.json").read_text()) | {"passed": True}
        assert not Draft202012Validator(schema(repository, name)).is_valid(document)


def test_the_golden_run_fits_the_schemas(repository: Path) -> None:
    """So is the run that the hostile vectors are made from, wherever it has such a file."""
    golden = repository / "tests" / "vectors" / "golden"
    for name in ("manifest", "plan", "findings"):
        assert (
            list(
                Draft202012Validator(schema(repository, name)).iter_errors(
                    json.loads((golden / f"{name}.json").read_text())
                )
            )
            == []
        )
