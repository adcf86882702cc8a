"""Long histories, made once and kept while a program runs: the input of the benches that read them.

In: how many attempts. Out: the folder of a synthetic run (synthetic.py). They lie in `build/bench/`, which git ignores
and which may be deleted at any time; a folder that was not finished is made again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from audit.analyse import findings
from audit.store import SUMS, Run
from scripts.bench.measure import REPOSITORY, Spent, command, in_child
from scripts.bench.synthetic import synthesize

__all__ = ["floor_of_findings", "floor_of_verification", "history", "ours_findings", "ours_verification"]

_CHUNK = 100_000
_KEPT = REPOSITORY / "build" / "bench"


def history(attempts: int) -> Path:
    """Return the folder of a run of so many attempts."""
    folder = _KEPT / f"synthetic-{attempts}"
    if not (folder / SUMS).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        in_child("histories", "make", folder=str(folder), attempts=attempts)
    return folder


def make(folder: str, attempts: int) -> Callable[[], None]:
    """Make one, in a process of its own, whose memory is then free again."""
    return lambda: (synthesize(Path(folder), attempts), None)[1]


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError("beyond every double")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:  # noqa: PLR2004 - no 64-bit number is longer
        raise ValueError("too long")
    return int(text)


def _refuse(text: str) -> None:
    raise ValueError(text)


def strict(folder: str) -> Callable[[], None]:
    """Read every line strictly and hash it: what no verification can do without."""
    decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_whole, parse_float=_number, parse_constant=_refuse)

    def work() -> None:
        with (Path(folder) / "history.jsonl").open("rb") as file:
            for line in file:
                decoder.decode(line.decode("ascii"))
                hashlib.sha256(line).hexdigest()

    return work


def pandas_read(folder: str) -> Callable[[], None]:
    """Read the history as tables of 100,000 lines: as one it would be 15 GB for a million attempts."""
    import pandas as pd  # noqa: PLC0415 - the other roles do without its memory

    def work() -> None:
        with pd.read_json(Path(folder) / "history.jsonl", lines=True, chunksize=_CHUNK) as tables:
            for _ in tables:
                pass

    return work


def judge(folder: str) -> Callable[[], None]:
    """Compute the findings."""
    return lambda: (findings(Run.open(Path(folder))), None)[1]


def floor_of_verification(folder: Path) -> Spent:
    """Return what the floor of a verification takes."""
    return in_child("histories", "strict", folder=str(folder))


def ours_verification(folder: Path) -> Spent:
    """Verify by digests, with nothing installed."""
    script = str(REPOSITORY / "scripts" / "verify.py")
    return command([sys.executable, "-I", "-S", script, "--level", "digests", str(folder)])


def floor_of_findings(folder: Path) -> Spent:
    """Return what pandas takes for the same file."""
    return in_child("histories", "pandas_read", folder=str(folder))


def ours_findings(folder: Path) -> Spent:
    """Return what the findings take."""
    return in_child("histories", "judge", folder=str(folder))
