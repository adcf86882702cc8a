"""Run a whole accuracy study of one model: decode, capture, calibrate, check, export. One command, resumable.

In: a registration's folder with its corpus, a model of that corpus, and a folder to work in. Out: the sealed check with
all rows in the working folder, and beside it the copy without rows that is published. Each step is a `determinism`
command, printed before it runs. What is sealed already is not done again: a study that was stopped goes on with the
next capture when the same command is given again, and an unsealed capture is removed and made anew.

    python scripts/accuracy_study.py --model ID --work FOLDER [--registration prereg/accuracy] [--threads N]

It deliberately decides nothing: a refused capture or a check that fails ends it with that command's exit code.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from audit.accuracy.corpus import CALIBRATION, GROUPS
from audit.errors import UsageError
from audit.local.models import resolve_model

REPOSITORY = Path(__file__).resolve().parents[1]
BEYOND, MISSING = 1, 2
# A capture whose waves could not be proven, on a machine that had other work, is made again as a whole.
TRIES = 5


class FailedError(Exception):
    """A command ended with a code that is no verdict."""

    def __init__(self, code: int) -> None:
        """Keep the exit code."""
        super().__init__(f"exit {code}")
        self.code = code


def determinism(*words: object, accepted: tuple[int, ...] = (0,)) -> int:
    """Run one command and return its exit code.

    Raises: FailedError where it is none of `accepted`.
    """
    texts = [str(word) for word in words]
    print(f"$ determinism {' '.join(texts)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "audit", *texts], cwd=REPOSITORY, check=False).returncode
    if code not in accepted:
        raise FailedError(code)
    return code


class StudyRun:
    """One model's study in one working folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Take the options of the command line."""
        self.model: str = options.model
        self.work: Path = options.work.resolve()
        self.registration: Path = options.registration.resolve()
        self.corpus = self.registration / "corpus.json"
        self.threads = [] if options.threads is None else ["--threads", options.threads]
        self.plan = ["--plan", self.registration]
        self.bounds = self.work / "bounds.json"
        self.decoded = self.work / f"{self.model}-f32.gguf"
        self.begun_s = time.monotonic()

    def folder(self, side: str, group: str) -> Path:
        """Return the folder of one capture."""
        return self.work / f"{side}-{group}"

    def decode(self) -> None:
        """Make the reference's model, proven exact."""
        if not self.decoded.exists():
            determinism("accuracy", "decode", self.model, "--out", self.decoded)
        determinism("accuracy", "decode", self.model, "--out", self.decoded, "--check")

    def capture(self, side: str, group: str, *more: object) -> None:
        """Capture one group, unless it is sealed already; a refused capture is kept aside and made again."""
        folder = self.folder(side, group)
        if (folder / "SHA256SUMS").is_file():
            print(f"sealed already: {folder.name}", flush=True)
            return
        words = [self.corpus, "--model", self.model, "--group", group, "--out", folder, *self.plan, *self.threads]
        local = ["--reference", "--local", self.decoded] if side == "reference" else ["--local", self.model]
        for left in reversed(range(TRIES)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if not determinism("accuracy", "capture", *words, *local, *more, accepted=(0, MISSING)):
                break
            aside = self.work / f"refused-{len(list(self.work.glob('refused-*')))}-{folder.name}"
            folder.rename(aside)
            print(f"refused, kept as {aside.name}", flush=True)
            if not left or not (aside / "SHA256SUMS").is_file():
                raise FailedError(MISSING)
        print(f"{folder.name} took until {time.monotonic() - self.begun_s:.0f} s after the start", flush=True)

    def run(self) -> int:
        """Do all steps in the order that freezes bounds before what they are for; return the check's exit code."""
        self.work.mkdir(parents=True, exist_ok=True)
        self.decode()
        for group in GROUPS:
            self.capture("reference", group)
        self.capture("server", CALIBRATION)
        if not self.bounds.exists():
            both = [self.folder(side, CALIBRATION) for side in ("server", "reference")]
            determinism(
                "accuracy", "calibrate", self.corpus, *both, "--model", self.model, *self.plan, "--out", self.bounds
            )
        for group in GROUPS:
            if group != CALIBRATION:
                self.capture("server", group, "--bounds", self.bounds)
        check = self.work / "check"
        shutil.rmtree(check, ignore_errors=True)
        folders = [self.folder(side, group) for group in GROUPS for side in ("server", "reference")]
        words = [self.corpus, *folders, "--model", self.model, *self.plan, "--bounds", self.bounds, "--out", check]
        code = determinism("accuracy", "check", *words, accepted=(0, BEYOND))
        copy = self.work / "published"
        shutil.rmtree(copy, ignore_errors=True)
        determinism("export", check, "--digests", copy)
        print(f"the whole study took {time.monotonic() - self.begun_s:.0f} s; publish {copy}", flush=True)
        return code


def main() -> int:
    """Run the study; return the exit code of its check, or of the command that failed."""
    parser = argparse.ArgumentParser(description="Run a whole accuracy study of one model.")
    parser.add_argument("--model", required=True, help="a model of the corpus, known by this name")
    parser.add_argument("--work", type=Path, required=True, help="the folder to work in; kept, and resumed")
    parser.add_argument("--registration", type=Path, default=REPOSITORY / "prereg" / "accuracy")
    parser.add_argument("--threads", type=int, help="threads of the servers; default all cores")
    options = parser.parse_args()
    try:
        resolve_model(options.model)
        return StudyRun(options).run()
    except UsageError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    except FailedError as error:
        sys.stderr.write(f"error: the command above ended with exit {error.code}; give the same command again\n")
        return error.code


if __name__ == "__main__":
    sys.exit(main())
