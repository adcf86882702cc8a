"""Make the golden run: a small registered run on the look-alike server, which the hostile vectors are edits of.

In: nothing but the plan and the predictions below. Out: a sealed run folder with its findings, verified as sound, of at
most 200 kB. Times differ from one making to the next, so vectors.json is made again after it.

It deliberately edits nothing: the folder is what `determinism run` and `determinism report` write for any other server.

    python -m scripts.make_golden [--out FOLDER] [--tries N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.capture import capture
from audit.client import Address
from audit.fake import FakeSettings, FakeThread
from audit.lock import write_resolved
from audit.prereg.choose import chosen_order
from audit.report import derived_files
from audit.sitting import Target
from audit.store import write_derived

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = REPOSITORY / "tests" / "vectors" / "golden"
SIZE_MAX = 200_000
KEPT = ("findings.json", "cells.csv")  # the vectors are about evidence and findings, not about pages
SLOTS = 3
# A wave of four needs a slot more than the server has, which makes a skip. The middle blocks are one of each family.
PLAN = """
name = "golden"
steps = 8
n_probs = 3
pace_per_second = 1000.0
canary = { prompt = "a", steps = 1 }

[prompts.a]
text = "Once {registered}"

[prompts.b]
text = "def median(values):"

[prompts.story]
text = "{block} is the number on the door of the archive; behind it lie the letters"

"""
ENTRIES = [
    'name = "first_request"\nprompts = ["a"]',
    'name = "repeat_greedy"\nprompts = ["a", "b"]',
    'name = "other_slot"\nprompts = ["a"]\nlevels = [2]',
    'name = "concurrent_greedy"\nprompts = ["a", "b"]\nlevels = [2, 4]\nagain = 1\nminimum = 2',
    'name = "concurrent_seeded"\nprompts = ["a"]\nlevels = [2]',
    'name = "oversubscribed"\nprompts = ["b"]\nlevels = [4]',
    'name = "cross_batch_together"\nprompts = ["a"]\nneighbours = ["b"]',
    'name = "cache"\nprompts = ["story"]\nopener = "b"',
    'name = "idle_neighbour"\nprompts = ["a"]\nneighbours = ["b"]',
    'name = "prefill_vs_decode"\nprompts = ["b"]',
    'name = "control_prompt"\nprompts = ["a", "b"]',
    'name = "control_seed"\nprompts = ["a"]',
    'name = "control_temperature"\nprompts = ["a"]',
    'name = "restart"\nprompts = ["a"]',
]
CONTROLS = ["control_prompt", "control_seed", "control_temperature", "canary"]


def prediction(name: str, statement: str, conditions: list[str], measure: str, minimum: int) -> dict[str, Any]:
    """Return a prediction that all are identical."""
    rules = {"holds": {"op": "==", "value": 1.0}, "refuted": {"op": "<", "value": 1.0}}
    more = {"servers": "*", "unit": "cell", "requires": CONTROLS}
    said = {"id": name, "statement": statement, "conditions": conditions, "measure": measure, "minimum": minimum}
    return {**said, **rules, **more}


PREDICTIONS = [
    prediction("P1", "Serial repeats are bit-identical.", ["repeat_greedy"], "logprob_identical", 2),
    prediction("P2", "Waves of two are bit-identical.", ["concurrent_greedy_c2"], "waves_identical", 2),
]
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "a", "EMAIL": "a@example.org", "DATE": "2026-01-01T00:00:00+0000"}.items()
}


def commit(root: Path, message: str) -> str:
    """Commit everything below a folder, with a date of its own; return the commit."""
    environment = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (["-c", "init.defaultBranch=main", "init", "-q"], ["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run(["git", "-C", str(root), *words], check=True, env=environment)  # noqa: S607 - as a reader would
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def register(root: Path) -> Path:
    """Write the registration into a repository of its own and commit it; return its folder."""
    folder = root / "prereg" / "golden"
    folder.mkdir(parents=True)
    (folder / "PREREG.md").write_text("# golden\n\nEverything is identical on the look-alike.\n", encoding="ascii")
    entries = "\n\n".join(f"[[conditions]]\n{entry}" for entry in ENTRIES)
    (folder / "plan.toml").write_text(PLAN.lstrip() + entries + "\n", encoding="ascii")
    document = {"format": 1, "predictions": PREDICTIONS}
    (folder / "predictions.json").write_text(json.dumps(document, indent=1) + "\n", encoding="ascii")
    write_resolved(folder)
    commit(root, "prereg: golden")
    return folder


@dataclass(frozen=True)
class Owner:
    """Restarts the look-alike as if it were a server of our own."""

    fake: FakeThread

    def restart(self) -> None:
        """Replace the process."""
        self.fake.restart()

    def abort(self) -> None:
        """End nothing: a fake belongs to its context."""

    def declaration(self) -> dict[str, Any]:
        """Return what the operator knows."""
        return {"argv": ["fake"]}


def make(folder: Path) -> bool:
    """Run, seal and judge into a new folder; return whether the findings are sound and every other cell identical."""
    with tempfile.TemporaryDirectory() as scratch:
        order = chosen_order(register(Path(scratch)))
    with FakeThread(FakeSettings(slots=SLOTS, vocabulary=128, step_ms=2.0)) as fake:
        target = Target(address=Address(label="s", url=fake.url), owned=Owner(fake))
        seal = asyncio.run(capture(order, [target], folder, report=lambda _: None))
    findings, files = derived_files(folder)
    write_derived(folder, {name: files[name] for name in KEPT})
    expected = {"concurrent_greedy_c4": "vacuous", "wave_repeat": "identical"}
    expected |= {f"control_{name}": "divergent" for name in ("prompt", "seed", "temperature")}
    odd = {
        cell["condition"]: f"{cell['verdict']} {cell['reason']}"
        for cell in findings["cells"]
        if cell["verdict"] != expected.get(cell["condition"], "identical")
    }
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"seal {seal}, {size} bytes, {findings['conclusion']}, other than expected: {odd or 'none'}")
    return bool(findings["sound"]) and not odd and size <= SIZE_MAX


def main() -> int:
    """Make the golden run; return 0 where it came out as expected, else 1."""
    parser = argparse.ArgumentParser(description="Make the golden run that the hostile vectors are edits of.")
    parser.add_argument("--out", type=Path, default=GOLDEN, help="the folder to write, replaced (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=5, help="a busy machine may spoil a wave (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.tries):
            folder = Path(scratch) / str(number)
            if make(folder):
                shutil.rmtree(options.out, ignore_errors=True)
                shutil.copytree(folder, options.out)
                return 0
    print("error: no run came out as expected", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
