"""Verify every stored run independently, and compare with what results/README.md expects of it.

In: the table of results/README.md, the folders beside it, and git's history, which tells when a registration was
committed. Out: a line a run, and exit 0 where each verifier exit is the listed one, else 1. Every folder of results/
must be listed, `local/` excepted. Where the listed exit is not 0 the last column says why, with words of the verifier's
output in backquotes, which must then appear there. Codes 4 (stored evidence contradicts itself) and 5 (a bug) are never
accepted, listed or not.

It deliberately judges nothing itself: scripts/verify.py does, in a process of its own.

    python scripts/stored_runs.py [--results FOLDER] [--python PROGRAM]
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
HEADER = ("run", "kind", "servers", "expected exit", "why")
KINDS = frozenset({"audit", "identity", "accuracy", "remedy"})
# 0 sound, 2 unsealed or unreadable on purpose, 3 inconclusive. A verifier never says 1 without --assert.
EXITS_ALLOWED = frozenset({0, 2, 3})
# Ten times what the largest run took; a verifier that hangs must not hold up the gate for ever.
TIMEOUT_S = 600


class TableError(ValueError):
    """The table of results/README.md cannot be read as one."""


@dataclass(frozen=True)
class StoredRun:
    """One row of the table: a folder of results/, the exit expected of the verifier, and why."""

    name: str
    kind: str
    exit_expected: int
    why: str

    @property
    def words_expected(self) -> list[str]:
        """Return what the verifier's output must contain: the words in backquotes of the last column."""
        return re.findall(r"`([^`]+)`", self.why)


def read_table(text: str) -> list[StoredRun]:
    """Return the rows of the one table whose header is HEADER.

    Raises:
        TableError: no such table, a row that does not fit it, or a run listed twice.
    """
    lines = [_cells(line) if line.lstrip().startswith("|") else None for line in text.splitlines()]
    if lines.count(HEADER) != 1:
        message = f"no table with the header | {' | '.join(HEADER)} |, or more than one"
        raise TableError(message)
    below = lines[lines.index(HEADER) + 2 :]
    runs = [_stored_run(row) for row in itertools.takewhile(lambda row: row is not None, below) if row is not None]
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"{name}: listed more than once")
    return runs


def unlisted(results: Path, runs: list[StoredRun]) -> list[str]:
    """Return the folders of `results` that no row lists, `local` excepted, sorted."""
    listed = {run.name for run in runs} | {"local"}
    return sorted(path.name for path in results.iterdir() if path.is_dir() and path.name not in listed)


def check(run: StoredRun, *, results: Path, python: str) -> str | None:
    """Run the verifier on one folder; return what is wrong, or None.

    Args:
        run: the row to check.
        results: the folder that holds the run's folder.
        python: the interpreter that runs scripts/verify.py, isolated and without installed packages.
    """
    folder = results / run.name
    if not folder.is_dir():
        return "listed, but there is no such folder"
    verifier = str(REPOSITORY / "scripts" / "verify.py")
    command = [python, "-I", "-S", verifier, str(folder), "--repo", str(REPOSITORY)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"the verifier did not end within {TIMEOUT_S} s"
    output = done.stdout + done.stderr
    if done.returncode != run.exit_expected:
        last = output.strip().splitlines()[-1:] or ["no output"]
        return f"the verifier exits {done.returncode}, listed is {run.exit_expected}: {last[0]}"
    missing = [words for words in run.words_expected if words not in output] if run.exit_expected else []
    return f"exit {done.returncode} as listed, but its output does not say {missing[0]!r}" if missing else None


def main(arguments: list[str] | None = None) -> int:
    """Check every stored run; print a line each; return 0 where all are as listed, else 1."""
    parser = argparse.ArgumentParser(description="Verify every stored run independently.")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "results")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs scripts/verify.py")
    options = parser.parse_args(arguments)
    try:
        runs = read_table((options.results / "README.md").read_text(encoding="utf-8"))
    except (OSError, TableError) as error:
        print(f"FAIL  {options.results.name}/README.md: {error}")
        return 1
    problems = [(name, "not listed in README.md") for name in unlisted(options.results, runs)]
    for run in runs:
        problem = check(run, results=options.results, python=options.python)
        if problem is None:
            print(f"ok    {run.name}: exit {run.exit_expected}")
        else:
            problems.append((run.name, problem))
    for name, problem in problems:
        print(f"FAIL  {name}: {problem}")
    print(f"stored runs: {len(runs)} listed, {len(problems)} not as listed")
    return 1 if problems else 0


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|"))


def _stored_run(row: tuple[str, ...]) -> StoredRun:
    if len(row) != len(HEADER):
        raise TableError(f"{' | '.join(row)}: {len(row)} columns instead of {len(HEADER)}")
    linked, kind, _, exit_listed, why = row
    # A run is written plain, in backquotes, or as a link to its folder.
    match = re.fullmatch(r"`?([\w.-]+)`?|\[`?([\w.-]+)`?\]\([^)]*\)", linked)
    if match is None:
        raise TableError(f"{linked}: not the name of a folder")
    name = match[1] or match[2]
    if kind not in KINDS:
        raise TableError(f"{name}: kind {kind!r} is none of {', '.join(sorted(KINDS))}")
    if exit_listed not in {str(code) for code in EXITS_ALLOWED}:
        raise TableError(f"{name}: expected exit {exit_listed!r} is none of {sorted(EXITS_ALLOWED)}")
    run = StoredRun(name=name, kind=kind, exit_expected=int(exit_listed), why=why)
    if run.exit_expected and not run.words_expected:
        raise TableError(f"{name}: exit {run.exit_expected} needs a reason with words of the verifier in backquotes")
    return run


if __name__ == "__main__":
    sys.exit(main())
