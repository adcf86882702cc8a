"""Apply every hostile vector to the golden run, and write what the verifier says into tests/vectors/vectors.json.

In: tests/vectors/golden and the recipes of scripts/vectors/. Out: for each vector
its name, how far the forger goes, the redundancy that catches it, the exit code, and the names of the checks that fail.
A vector must fail its named check and exit with 2, 3 or 4; an undetectable one must be sound (0), and with `--expect`
and the golden seal be refused. No edited folder is kept.

    python -m scripts.make_vectors [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.forgery import GOLDEN, REPOSITORY, Forgery, examine, failed, load_verifier, require_sound, sha
from scripts.vectors import UNDETECTABLE, VECTORS, Vector

JSON = Any
PAGE = REPOSITORY / "docs" / "explanation" / "independence.md"
TABLE = REPOSITORY / "tests" / "vectors" / "vectors.json"
GOLDEN_SEAL = "sha256:" + sha((GOLDEN / "SHA256SUMS").read_bytes())
BEGIN, END = "<!-- undetectable: begin -->\n", "<!-- undetectable: end -->\n"


def applied(vector: Vector, folder: Path, verifier: ModuleType) -> None:
    """Write the golden run, edited by a vector, into a new folder."""
    run = Forgery(GOLDEN)
    vector.edit(run)
    run.write(folder, vector.forge, verifier)


def outcome(vector: Vector, folder: Path, verifier: ModuleType) -> dict[str, JSON]:
    """Return the entry of a vector whose edited run is in a folder."""
    report = examine(verifier, folder)
    entry: dict[str, JSON] = {
        "name": vector.name,
        "forge": vector.forge,
        "redundancy": vector.redundancy,
        "check": vector.check,
    }
    entry |= {"exit": report["exit"], "failed": sorted(failed(report)), "undetectable": vector.name in UNDETECTABLE}
    if entry["undetectable"]:
        expected = examine(verifier, folder, "--expect", GOLDEN_SEAL)
        entry["with_expect"] = {"exit": expected["exit"], "failed": sorted(failed(expected))}
    return entry


def wrong(entry: dict[str, JSON]) -> str:
    """Return why an entry is not what a vector must be; empty where it is."""
    if entry["undetectable"]:
        fine = entry["exit"] == 0 and entry["with_expect"] == {"exit": 4, "failed": ["expect"]}
        return "" if fine else f"undetectable, and exit {entry['exit']} for {entry['failed']}, {entry['with_expect']}"
    fine = entry["exit"] in (2, 3, 4) and entry["check"] in entry["failed"]
    return "" if fine else f"exit {entry['exit']}, {entry['check']} is not among {entry['failed']}"


def renewed(page: str) -> str:
    """Return the page on independence with its table of undetectable edits made again.

    Raises: ValueError where the page has no place for it.
    """
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after and END not in rest:
        raise ValueError(f"{PAGE.name} has no {BEGIN.strip()} and {END.strip()}")
    rows = "".join(f"| `{name}` | {what} |\n" for name, what in UNDETECTABLE.items())
    return f"{before}{BEGIN}| vector | what was made up |\n|---|---|\n{rows}{END}{after}"


def main() -> int:
    """Make the table and the page's part again, or check them; return 0 where all is as it must be."""
    parser = argparse.ArgumentParser(description="Apply every hostile vector to the golden run and write the table.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file would change")
    options = parser.parse_args()
    verifier = load_verifier()
    require_sound(verifier, GOLDEN)
    entries = []
    with tempfile.TemporaryDirectory() as scratch:
        for vector in VECTORS:
            folder = Path(scratch) / vector.name
            applied(vector, folder, verifier)
            entries.append(outcome(vector, folder, verifier))
    problems = {entry["name"]: problem for entry in entries if (problem := wrong(entry))}
    for name, problem in problems.items():
        print(f"{name}: {problem}", file=sys.stderr)
    linked = sum(entry["forge"] in ("links", "findings") and not entry["undetectable"] for entry in entries)
    print(f"{len(entries)} vectors, {linked} caught although re-linked, {len(UNDETECTABLE)} undetectable")
    page = PAGE.read_text(encoding="ascii")
    texts = {TABLE: json.dumps({"format": 1, "vectors": entries}, indent=1) + "\n", PAGE: renewed(page)}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="ascii") != text]
    for path in stale:
        print(f"{path.relative_to(REPOSITORY)}: {'stale' if options.check else 'written'}")
        if not options.check:
            path.write_text(texts[path], encoding="ascii")
    return int(bool(problems) or (options.check and bool(stale)))


if __name__ == "__main__":
    sys.exit(main())
