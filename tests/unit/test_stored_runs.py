"""scripts/stored_runs.py accepts a stored run only where the verifier says what results/README.md lists for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import stored_runs
from scripts.stored_runs import StoredRun, TableError, check, main, read_table

TABLE = f"# Runs\n\n| {' | '.join(stored_runs.HEADER)} |\n|---|---|---|---|---|\n"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty results folder beside a verifier that exits with what the run's file `exit` says."""
    verifier = tmp_path / "scripts" / "verify.py"
    verifier.parent.mkdir()
    verifier.write_text(
        "import pathlib, sys\n"
        "assert sys.flags.isolated and sys.flags.no_site\n"
        "code = int((pathlib.Path(sys.argv[1]) / 'exit').read_text())\n"
        "print('unsealed: no SHA256SUMS' if code else 'sound')\n"
        "sys.exit(code)\n",
        encoding="ascii",
    )
    monkeypatch.setattr(stored_runs, "REPOSITORY", tmp_path)
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def store(results: Path, rows: str, **exits: int) -> list[str]:
    """Write the table and one folder a run; return the arguments of main."""
    (results / "README.md").write_text(TABLE + rows, encoding="ascii")
    for name, code in exits.items():
        (results / name).mkdir()
        (results / name / "exit").write_text(str(code), encoding="ascii")
    return ["--results", str(results)]


def test_runs_that_exit_as_listed_are_accepted(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sound and, with its reason, unsealed: both are what the table says, and local/ is nobody's business."""
    rows = "| [a](a/) | audit | two | 0 | sound |\n| b | audit | one | 2 | stopped: `no SHA256SUMS` |\n"
    arguments = store(results, rows, a=0, b=2, local=5)
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "stored runs: 2 listed, 0 not as listed"


@pytest.mark.parametrize(
    ("rows", "exits", "message"),
    [
        ("| a | audit | x | 0 | |", {"a": 3}, "a: the verifier exits 3, listed is 0: unsealed: no SHA256SUMS"),
        ("| a | audit | x | 0 | |", {"a": 4}, "a: the verifier exits 4, listed is 0"),
        ("| a | audit | x | 2 | `no seal` |", {"a": 2}, "a: exit 2 as listed, but its output does not say 'no seal'"),
        ("| a | audit | x | 2 | `no SHA256SUMS` |", {"a": 0}, "a: the verifier exits 0, listed is 2: sound"),
        ("| a | audit | x | 0 | |", {}, "a: listed, but there is no such folder"),
        ("", {"b": 0}, "b: not listed in README.md"),
        ("| a | audit | x | 4 | `no` |", {"a": 4}, "expected exit '4' is none of"),
        ("| a | audit | x | 5 | `no` |", {"a": 5}, "expected exit '5' is none of"),
    ],
)
def test_what_differs_from_the_table_fails(
    results: Path, capsys: pytest.CaptureFixture[str], rows: str, exits: dict[str, int], message: str
) -> None:
    """Another exit, another reason, a missing or unlisted folder, and codes 4 and 5 in any case: exit 1, named."""
    assert main(store(results, rows + "\n", **exits)) == 1
    assert message in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "no table with the header"),
        (TABLE + TABLE, "more than one"),
        (TABLE + "| a | audit | x | 0 |\n", "4 columns instead of 5"),
        (TABLE + "| a b | audit | x | 0 | |\n", "not the name of a folder"),
        (TABLE + "| ../a | audit | x | 0 | |\n", "not the name of a folder"),
        (TABLE + "| a | other | x | 0 | |\n", "kind 'other' is none of"),
        (TABLE + "| a | audit | x | 1 | `no` |\n", "expected exit '1' is none of"),
        (TABLE + "| a | audit | x | 2 | stopped |\n", "needs a reason"),
        (TABLE + "| a | audit | x | 0 | |\n" * 2, "listed more than once"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    """A row that is not understood is never a run that is silently not verified."""
    with pytest.raises(TableError, match=message):
        read_table(text)


def test_the_table_of_this_repository_can_be_read(repository: Path) -> None:
    """results/README.md has the table, and every folder of results/ is in it."""
    runs = read_table((repository / "results" / "README.md").read_text(encoding="ascii"))
    assert stored_runs.unlisted(repository / "results", runs) == []


def test_a_verifier_that_hangs_is_ended_and_named(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate goes on after the limit and says so."""
    store(results, "", a=0)
    (results.parent / "scripts" / "verify.py").write_text("import time\ntime.sleep(60)\n", encoding="ascii")
    monkeypatch.setattr(stored_runs, "TIMEOUT_S", 0.5)
    run = StoredRun(name="a", kind="audit", exit_expected=0, why="")
    assert check(run, results=results, python=sys.executable) == "the verifier did not end within 0.5 s"
