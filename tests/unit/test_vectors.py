"""Hostile edits of the golden run end as tests/vectors/vectors.json says, and no check, bit or field is forgotten.

The recipes are those of scripts/vectors/; no edited folder is stored.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts import disable_checks, make_vectors, sweep_values
from scripts.flip_bits import flip
from scripts.forgery import FORGES, GOLDEN, Forgery, examine, failed, load_verifier
from scripts.make_golden import SIZE_MAX
from scripts.make_vectors import applied, outcome, wrong
from scripts.vectors import UNDETECTABLE, VECTORS, Vector

JSON = Any
ENTRIES: list[dict[str, JSON]] = json.loads(make_vectors.TABLE.read_text(encoding="ascii"))["vectors"]
# Half a minute of flips and changes; twenty thousand and two thousand were made once, see independence.md.
FLIPS, CHANGES, SEED = 500, 300, 2


@pytest.fixture(scope="module")
def verifier() -> ModuleType:
    """Return the verifier, imported from its file."""
    return load_verifier()


def test_the_golden_run_is_small_and_sound(verifier: ModuleType) -> None:
    """What the vectors are edits of has nothing wrong with it: every check holds, and each judgement in every case."""
    report = examine(verifier, GOLDEN)
    assert (report["exit"], failed(report), report["notes"]["findings.json"]) == (0, set(), "compared")
    assert {row["status"] for row in report["findings"]["predictions"]} == {"holds"}
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) <= SIZE_MAX


def test_written_again_without_an_edit_it_is_the_same(tmp_path: Path, verifier: ModuleType) -> None:
    """Re-linking and making the sums again changes no byte, so that what a vector changes is its edit alone."""
    for forge in FORGES[:3]:
        Forgery(GOLDEN).write(tmp_path / forge, forge, verifier)
        paths = sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file())
        assert (
            sorted(path.relative_to(tmp_path / forge) for path in (tmp_path / forge).rglob("*") if path.is_file())
            == paths
        )
        assert [path for path in paths if (GOLDEN / path).read_bytes() != (tmp_path / forge / path).read_bytes()] == []


def test_the_table_is_that_of_the_recipes() -> None:
    """Each recipe has an entry, each name stands once, and there are enough that re-link the chain."""
    assert [entry["name"] for entry in ENTRIES] == [vector.name for vector in VECTORS]
    assert len({vector.name for vector in VECTORS}) == len(VECTORS) >= 60
    linked = [entry for entry in ENTRIES if entry["forge"] in ("links", "findings") and not entry["undetectable"]]
    assert len(linked) >= 20
    assert {entry["name"] for entry in ENTRIES if entry["undetectable"]} == set(UNDETECTABLE)


@pytest.mark.parametrize(
    ("vector", "entry"), list(zip(VECTORS, ENTRIES, strict=True)), ids=lambda value: getattr(value, "name", "")
)
def test_a_vector_ends_as_the_table_says(
    tmp_path: Path, verifier: ModuleType, vector: Vector, entry: dict[str, JSON]
) -> None:
    """The named check fails with the stored exit code; an undetectable edit is sound, and not the deposited seal."""
    applied(vector, tmp_path / "run", verifier)
    found = outcome(vector, tmp_path / "run", verifier)
    assert wrong(found) == ""
    assert found == entry


def test_the_page_lists_what_only_a_deposited_seal_catches() -> None:
    """The table in docs/explanation/independence.md is that of the undetectable vectors."""
    page = make_vectors.PAGE.read_text(encoding="ascii")
    assert make_vectors.renewed(page) == page


def test_every_flipped_bit_is_refused(tmp_path: Path, verifier: ModuleType) -> None:
    """No single bit of any file can change: exit 4 or 2."""
    shutil.copytree(GOLDEN, tmp_path / "run")
    exits, passed = flip(tmp_path / "run", FLIPS, SEED, verifier)
    assert passed == []
    assert sum(exits.values()) == FLIPS


def test_every_changed_value_is_noticed_or_listed(tmp_path: Path, verifier: ModuleType) -> None:
    """A forger's change of one value is refused, or the findings disagree, or the page says that it is unanchored."""
    swept = sweep_values.sweep(CHANGES, SEED, tmp_path, verifier)
    listed = sweep_values.listed(sweep_values.PAGE.read_text(encoding="ascii"))
    assert {name: change for name, change in swept.unanchored.items() if name not in listed} == {}
    assert swept.bugs == []
    assert swept.outcomes["refused"] + swept.outcomes["findings disagree"] > CHANGES // 2


def test_every_unanchored_field_is_one_of_the_format() -> None:
    """The list on the page names fields that the golden run has, each once and in order."""
    page = sweep_values.PAGE.read_text(encoding="ascii")
    listed = sweep_values.listed(page)
    assert listed <= set(sweep_values.fields_of(Forgery(GOLDEN)))
    assert sweep_values.renewed(page, dict.fromkeys(listed, "")) == page


def test_every_check_is_needed_by_some_vector(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a check a vector passes, or its verdicts turn; only unreadable JSON is always seen twice."""
    assert disable_checks.main([]) == 0
    said = {line[:14].strip(): line[16:].split()[0] for line in capsys.readouterr().out.splitlines()[:-1]}
    verifier = load_verifier()
    assert set(said) == {*verifier.CONTRADICTIONS, *verifier.JUDGEMENTS}
    assert {name for name, word in said.items() if word not in ("passes", "turns")} == {"json"}
