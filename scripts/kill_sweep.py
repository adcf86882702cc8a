"""Kill a run with -9 at random moments, resume it, and compare what it found with a run that nobody disturbed.

    python -m scripts.kill_sweep [--moments 50] [--kills 3] [--seed N] [--keep DIR]

In: how many runs are disturbed, how often one is killed at most, and the seed of the moments, which is printed. Each
run is the command line in a process of its own against one look-alike server; it is killed, resumed with the command
that `--resume` is, killed again, and finished. Out: one line a run and a last line; exit 1 where a finished run does
not verify as the undisturbed one does, or differs from it in a cell or in any digest of a trial.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.analyse import trials
from audit.fake import FakeSettings, FakeThread
from audit.plan import Plan
from audit.report import derive
from audit.store import Run

JSON = Any
REPOSITORY = Path(__file__).resolve().parents[1]
STORY = "{block} is the number on the door of the archive; behind it lie the letters of a family that moved every year"
CONTROLS = [{"name": f"control_{name}", "prompts": ["a", "b"]} for name in ("prompt", "seed", "temperature")]
# Every kind of block: solo, several solo units, a wave, a wave that is repeated, many requests of one trial.
PLAN: dict[str, JSON] = {
    "name": "kill_sweep",
    "steps": 8,
    "n_probs": 5,
    "pace_per_second": 1000.0,
    "timeout_s": 30.0,
    "canary": {"prompt": "a"},
    "prompts": {
        "a": {"text": "Once upon a time there was"},
        "b": {"text": "def median(values):"},
        "s": {"text": STORY},
    },
    "conditions": [
        {"name": "repeat_greedy", "prompts": ["a"], "count": 3},
        {"name": "repeat_seeded", "prompts": ["a"]},
        {"name": "concurrent_greedy", "prompts": ["a"], "levels": [3], "again": 1},
        {"name": "cache", "prompts": ["s"], "opener": "b"},
        {"name": "prefill_vs_decode", "prompts": ["b"]},
        {"name": "stream_vs_whole", "prompts": ["a"]},
        *CONTROLS,
    ],
}
# Long enough that members of a wave overlap on a machine that others use too.
STEP_MS = 2.0
COLUMNS = [
    "name",
    "vacuous",
    "outcome",
    "exclusion",
    "logprob",
    "token",
    "reference_logprob",
    "reference_token",
    "steps",
]


@dataclass(frozen=True)
class Found:
    """What a sealed run says: exit code of the verifier, cells, one row a measured trial."""

    exit: int
    cells: list[JSON]
    trials: list[JSON]

    def differences(self, other: Found) -> list[str]:
        """Return what differs between two runs of one plan against equal servers.

        Members of a wave that did not overlap, because the machine was busy, are judged by neither: what was not
        judged in one of the runs is compared by its digests alone.
        """
        found = [f"verify exits {self.exit} and {other.exit}"] if self.exit != other.exit else []
        for kind, judged in (("cells", ("verdict", "usable")), ("trials", ("outcome", "exclusion"))):
            for one, two in zip(getattr(self, kind), getattr(other, kind), strict=True):
                left_out = judged if one["vacuous"] or two["vacuous"] else ()
                found += [
                    f"{kind}: {one[key]!r} and {two[key]!r} for {key} of {one['name']}"
                    for key in one
                    if key not in {*left_out, "vacuous"} and one[key] != two[key]
                ]
        return found

    @property
    def vacuous(self) -> int:
        """How many trials were not judged since they did not overlap."""
        return sum(trial["vacuous"] for trial in self.trials)


def look_at(folder: Path) -> Found:
    """Judge a sealed run with both programs."""
    document, _ = derive(folder)
    command = [sys.executable, "-I", "-S", str(REPOSITORY / "scripts" / "verify.py"), str(folder)]
    code = subprocess.run(command, capture_output=True, check=False, timeout=120).returncode
    cells = [
        {
            "name": cell["condition"],
            "verdict": cell["verdict"],
            "planned": cell["planned"],
            "usable": cell["usable"],
            "accounted": cell["usable"] + cell["excluded"]["vacuous"],
            "vacuous": cell["excluded"]["vacuous"],
        }
        for cell in document["cells"]
    ]
    table = trials(Run.open(folder))
    table = table.assign(name=table["trial"], vacuous=table["exclusion"] == "vacuous")[COLUMNS].astype(object)
    return Found(code, cells, table.where(table.notna(), None).to_dict("records"))


class Sweep:
    """One server, one plan, one undisturbed run, and as many disturbed ones as one asks for."""

    def __init__(self, folder: Path, url: str, *, seed: int) -> None:
        """Run the plan undisturbed."""
        self.folder, self.url, self.random = folder, url, random.Random(seed)  # noqa: S311 - no secret hangs on it
        self.plan = folder / "plan.json"
        self.plan.write_bytes(Plan.parse(PLAN).to_bytes())
        self.kills = self.unbegun = self.vacuous = 0
        begun = time.monotonic()
        if self._start(self.begin(folder / "undisturbed")).wait(timeout=600) != 0:
            raise SystemExit("error: the undisturbed run did not end")
        self.seconds = time.monotonic() - begun
        self.undisturbed = look_at(folder / "undisturbed")

    def begin(self, run: Path) -> list[str]:
        """Return the command that begins a run."""
        return ["run", "--server", f"s={self.url}", "--plan", str(self.plan), "--out", str(run)]

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "audit", *arguments],
            cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def disturb(self, name: str, kills: int) -> list[str]:
        """Run the plan, kill it `kills` times, resume it each time, and return what differs in the end."""
        run = self.folder / name
        arguments = self.begin(run)
        for _ in range(kills):
            child = self._start(arguments)
            try:
                child.wait(timeout=self.random.uniform(0, self.seconds))
                break  # it ended before its moment came
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                self.kills += 1
            if (run / "SHA256SUMS").exists():
                break
            if (run / "manifest.json").exists():
                arguments = ["run", "--resume", str(run), "--server", f"s={self.url}"]
            elif run.exists():
                # Nothing was sent yet, and nothing can be resumed.
                self.unbegun += 1
                shutil.rmtree(run)
        if not (run / "SHA256SUMS").exists() and (code := self._start(arguments).wait(timeout=600)) != 0:
            return [f"the last command exits with {code}"]
        found = look_at(run)
        self.vacuous += found.vacuous
        return self.undisturbed.differences(found)


def main() -> int:
    """Sweep."""
    parser = argparse.ArgumentParser(description="Kill a run at random moments, resume it, compare.")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--keep", type=Path, help="A folder for the runs that differ.")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch, FakeThread(FakeSettings(slots=4, step_ms=STEP_MS)) as fake:
        sweep = Sweep(Path(scratch), fake.url, seed=options.seed)
        alone = sweep.undisturbed
        print(f"undisturbed: {sweep.seconds:.1f} s, {len(alone.trials)} trials, exit {alone.exit}", flush=True)
        number = 0
        while sweep.kills < options.moments:
            differences = sweep.disturb(str(number), 1 + number % options.kills)
            failed += bool(differences)
            print(json.dumps({"run": number, "kills": sweep.kills, "differences": differences[:3]}), flush=True)
            if differences and options.keep is not None:
                shutil.copytree(Path(scratch) / str(number), options.keep / str(number))
            shutil.rmtree(Path(scratch) / str(number))
            number += 1
        print(f"{sweep.kills} kills in {number} runs, {sweep.unbegun} before the begin: {failed} differ")
        print(f"{sweep.vacuous} trials of waves were not judged, since they did not overlap")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
