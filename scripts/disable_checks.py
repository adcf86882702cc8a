"""Disable each check of the verifier in turn, and show a hostile vector that then passes.

In: scripts/verify.py and the hostile vectors. Out: a line a check. `passes` names a vector that is refused with the
check and sound without it; `turns` one whose verdicts change, though other findings disagree as well; `backed` one for
which another check stands in; `nothing` means that no vector fails the check, and is exit 1.

It deliberately changes nothing in the verifier's file: it puts a name into DISABLED of the imported module.

    python -m scripts.disable_checks [CHECK ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.forgery import GOLDEN, Forgery, examine, failed, load_verifier, require_sound
from scripts.make_golden import commit
from scripts.make_vectors import GOLDEN_SEAL, applied
from scripts.vectors import SEAL_ONLY, UNDETECTABLE, VECTORS

JSON = Any
Case = tuple[str, Path, tuple[str, ...]]  # a vector's name, its folder and the flags that the verifier is given


def later_registration(scratch: Path, verifier: ModuleType) -> Case:
    """Write a run whose registration was committed after its program, and the repository that shows it."""
    repository = scratch / "repository"
    folder = repository / "prereg" / "golden"
    folder.mkdir(parents=True)
    (repository / "program.py").write_text("1\n", encoding="ascii")
    run = Forgery(GOLDEN)
    run.manifest["program"]["commit"] = commit(repository, "program")
    for path, data in run.files.items():
        if path.startswith("registration/"):
            (folder / path.removeprefix("registration/")).write_bytes(data)
    run.manifest["registration"]["commit"] = commit(repository, "registration")
    run.write(scratch / "registered_later", "findings", verifier)
    return "registered_later", scratch / "registered_later", ("--repo", str(repository))


def cases(scratch: Path, verifier: ModuleType) -> dict[str, list[Case]]:
    """Write every vector; return, by the check that it is meant for, those that fail it."""
    found: dict[str, list[Case]] = {"repository": [later_registration(scratch, verifier)]}
    for vector in VECTORS:
        if vector.name in UNDETECTABLE and found.get(SEAL_ONLY):
            continue  # one is enough: only the seal differs
        folder = scratch / vector.name
        applied(vector, folder, verifier)
        flags = ("--expect", GOLDEN_SEAL) if vector.check == SEAL_ONLY else ()
        found.setdefault(vector.check, []).append((vector.name, folder, flags))
    return found


def without(check: str, case: Case, verifier: ModuleType) -> tuple[int, str]:
    """Return how much disabling a check changes for a vector (3 passes, 2 turns, 1 backed, 0 nothing), in words."""
    name, folder, flags = case
    before = examine(verifier, folder, *flags)
    if check not in failed(before):
        return 0, "nothing"
    verifier.DISABLED.add(check)
    try:
        after = examine(verifier, folder, *flags)
    finally:
        verifier.DISABLED.discard(check)
    if after["exit"] == 0:
        return 3, f"passes  {name}: exit {before['exit']} becomes 0"
    cells = [(report["findings"] or {}).get("cells") for report in (before, after)]
    if before["exit"] != after["exit"] or (None not in cells and cells[0] != cells[1]):
        return 2, f"turns   {name}: exit {before['exit']}, then {after['exit']}: {after['sentence'][:90]}"
    return 1, f"backed  {name}: {', '.join(sorted(failed(after)))} still sees it"


def main(arguments: list[str] | None = None) -> int:
    """Disable the checks, print a line for each, and return 0 where each has a vector."""
    parser = argparse.ArgumentParser(description="Disable each check in turn and show a vector that then passes.")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="default: all")
    options = parser.parse_args(arguments)
    verifier, missing = load_verifier(), []
    require_sound(verifier, GOLDEN)
    with tempfile.TemporaryDirectory() as scratch:
        found = cases(Path(scratch), verifier)
        for check in options.checks or [*verifier.CONTRADICTIONS, *verifier.JUDGEMENTS]:
            level, words = 0, "nothing"
            for case in found.get(check, []):
                level, words = max((level, words), without(check, case, verifier))
                if level == 3:  # noqa: PLR2004 - the best there is
                    break
            missing += [check] if not level else []
            print(f"{check:<14}  {words}")
    print(f"checks without a vector: {', '.join(missing) or 'none'}")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
