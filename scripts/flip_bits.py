"""Flip random single bits of a run's files, and count how the verifier answers: every one must be refused.

In: a sealed run folder, which is copied first. Out: a line with seed and figures; exit 0 where each flipped bit
ended in exit 4 or 2, else 1 with each bit that did not. Every bit of every file, the lists included, is equally likely.

It deliberately makes no sum again: what a forger does is in scripts/make_vectors.py and scripts/sweep_values.py.

    python -m scripts.flip_bits [--count N] [--seed S] [RUN]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from scripts.forgery import GOLDEN, examine, load_verifier, require_sound

REFUSED = (2, 4)


def flip(folder: Path, count: int, seed: int, verifier: ModuleType) -> tuple[dict[int, int], list[str]]:
    """Flip bits of a folder one after the other, each undone again.

    Returns: how often the verifier ended with each exit code, and the bits that it did not refuse.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = [path.stat().st_size for path in paths]
    exits: dict[int, int] = {}
    passed = []
    for _ in range(count):
        path = chance.choices(paths, weights=sizes)[0]
        data = path.read_bytes()
        place, bit = chance.randrange(len(data)), chance.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :])
        code = examine(verifier, folder)["exit"]
        path.write_bytes(data)
        exits[code] = exits.get(code, 0) + 1
        if code not in REFUSED:
            passed.append(f"{path.relative_to(folder)}: byte {place}, bit {bit}: exit {code}")
    return exits, passed


def main() -> int:
    """Flip, and print what was found; return 0 where every bit was refused."""
    parser = argparse.ArgumentParser(description="Flip random single bits of a run; every one must be refused.")
    parser.add_argument("run", nargs="?", type=Path, default=GOLDEN, metavar="RUN", help="default: the golden run")
    parser.add_argument("--count", type=int, default=500, help="how many bits (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice (default: %(default)s)")
    options = parser.parse_args()
    began, verifier = time.monotonic(), load_verifier()
    require_sound(verifier, options.run)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        shutil.copytree(options.run, folder)
        exits, passed = flip(folder, options.count, options.seed, verifier)
    for line in passed:
        print(f"not refused: {line}", file=sys.stderr)
    counts = ", ".join(f"{count} with exit {code}" for code, count in sorted(exits.items()))
    refused = options.count - len(passed)
    print(f"seed {options.seed}: {refused} of {options.count} refused ({counts}), {time.monotonic() - began:.0f} s")
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
