"""Render every stored run again, under another locale, time zone and hash seed, and compare the bytes that are stored.

In: the folders of results/ that are sealed and hold derived files. Out: a line a run, and exit 0 where each derived
file is what the program makes of the evidence now, else 1. Nothing is written. With --write the stored files are made
anew, which is what one does after the report itself has changed.

    python -m scripts.derived_files [--write] [RUN ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from audit.kind import kind_of
from audit.store import DERIVED_SUMS as SUMS
from audit.store import OMITTED

REPOSITORY = Path(__file__).resolve().parents[1]
# A locale with a decimal comma where this machine has one, a zone a day ahead, and another order of every set.
LOCALE = "de_DE.utf8"
SURROUNDINGS = {"TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "4711"}
RENDER = """
import json, locale, sys
from pathlib import Path
from audit.derived import files_of
locale.setlocale(locale.LC_ALL, "")
_, files = files_of(Path(sys.argv[1]), with_steps=sys.argv[2] == "steps")
json.dump({name: data.decode("utf-8") for name, data in files.items()}, sys.stdout)
"""


def surroundings() -> dict[str, str]:
    """Return the environment to render in."""
    known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()  # noqa: S607 - as a shell would
    name = LOCALE if LOCALE in known else "C"
    return {**os.environ, **SURROUNDINGS, "LC_ALL": name, "LANG": name}


def stored(folder: Path) -> dict[str, bytes]:
    """Return the derived files that a run lists."""
    names = [line.split("  ", 1)[1] for line in (folder / SUMS).read_text(encoding="ascii").splitlines()]
    return {name: (folder / name).read_bytes() for name in names}


def rendered(folder: Path, *, with_steps: bool) -> dict[str, bytes]:
    """Return the derived files as another process makes them."""
    import json  # noqa: PLC0415 - beside its one use

    command = [sys.executable, "-c", RENDER, str(folder), "steps" if with_steps else ""]
    done = subprocess.run(command, cwd=REPOSITORY, env=surroundings(), capture_output=True, text=True, check=True)
    return {name: text.encode("utf-8") for name, text in json.loads(done.stdout).items()}


def check(folder: Path) -> list[str]:
    """Return the names of derived files that differ, are missing, or are too many."""
    here = stored(folder)
    made = rendered(folder, with_steps="steps.csv" in here)
    return sorted(name for name in {*here, *made} if here.get(name) != made.get(name))


def runs(results: Path) -> list[Path]:
    """Return the stored runs whose derived files follow from what is there.

    Of copies that leave files out these are those of kind accuracy, whose metrics are evidence and stay, and
    remedy, which asks nothing of rows.
    """
    found = (path.parent for path in results.glob(f"*/{SUMS}") if path.parent.name != "local")
    return sorted(run for run in found if not (run / OMITTED).is_file() or kind_of(run) in ("accuracy", "remedy"))


def main(arguments: list[str] | None = None) -> int:
    """Compare or write."""
    parser = argparse.ArgumentParser(description="Render every stored run again and compare the stored bytes.")
    parser.add_argument("run", nargs="*", type=Path, help="run folders; default every one of results/")
    parser.add_argument("--write", action="store_true", help="write the files anew instead")
    options = parser.parse_args(arguments)
    failed = 0
    for folder in options.run or runs(REPOSITORY / "results"):
        if options.write:
            from audit.derived import files_of  # noqa: PLC0415 - only to write
            from audit.store import write_derived  # noqa: PLC0415 - only to write

            write_derived(folder, files_of(folder, with_steps=(folder / "steps.csv").is_file())[1])
        differing = check(folder)
        failed += bool(differing)
        print(f"{'FAIL' if differing else 'ok  '}  {folder.name}: {', '.join(differing) or 'byte for byte'}")
    print(f"derived files: {failed} of {len(options.run or runs(REPOSITORY / 'results'))} runs differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
