"""Run a plan of very many trials on the look-alike and measure the memory of the run while it goes.

    python -m scripts.flat_memory [--trials 100000] [--seconds N] [--every 5]

In: how many trials the plan has, and after how many seconds the run is interrupted, if at all. The look-alike and the
run are processes of their own, started from the command line. Out: a line a sample (seconds, trials, resident MB), then
the peak, and the slope of a straight line through the samples behind the first tenth. Exit 1 where the peak is above
500 MB, or the line says that it would be at 100,000 trials.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from audit.plan import Plan

REPOSITORY = Path(__file__).resolve().parents[1]
LIMIT_MB = 500.0
FULL = 100_000
SLOTS = 32


def plan(trials: int) -> bytes:
    """Return the plan: nine tenths in waves, requests as short as they can be, since their number is what matters."""
    waves = trials * 9 // (10 * SLOTS)
    conditions = [
        {"name": "repeat_greedy", "prompts": ["a"], "count": trials - waves * SLOTS},
        {"name": "concurrent_greedy", "prompts": ["a"], "levels": [SLOTS], "count": waves},
    ]
    values = {
        "name": "flat_memory",
        "steps": 1,
        "n_probs": 1,
        "pace_per_second": 100_000.0,
        "canary": {"prompt": "a"},
        "prompts": {"a": {"text": "Once"}},
        "conditions": conditions,
    }
    return Plan.parse(values).to_bytes()


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command line in a process of its own, and end it."""
    command = [sys.executable, "-m", "audit", *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as one:
        try:
            yield one
        finally:
            if one.poll() is None:
                one.send_signal(signal.SIGTERM)
                one.wait(timeout=120)


def status_mb(pid: int, field: str) -> float:
    """Return a field of /proc/PID/status in MB: VmRSS is resident now, VmHWM was the most."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class Trials:
    """Counts the answered requests of a history that grows, reading each byte once."""

    def __init__(self, history: Path) -> None:
        """Begin before its first line."""
        self._history, self._at, self.count = history, 0, 0

    def read(self) -> int:
        """Return how many there are now."""
        if self._history.exists():
            with self._history.open("rb") as file:
                file.seek(self._at)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._at += len(whole)
            self.count += whole.count(b'"line":"complete"')
        return self.count


def measure(folder: Path, trials: int, seconds: float, every: float) -> tuple[list[tuple[int, float]], float, int]:
    """Return (trials, resident MB) samples, the peak in MB, and the exit code of the run."""
    (folder / "plan.json").write_bytes(plan(trials))
    samples: list[tuple[int, float]] = []
    peak = 0.0
    with child("fake", "--slots", str(SLOTS)) as fake:
        assert fake.stdout is not None  # noqa: S101 - it is what PIPE means
        server = fake.stdout.readline().strip()
        out = folder / "run"
        with child("run", "--server", server, "--plan", str(folder / "plan.json"), "--out", str(out)) as run:
            begun, counted = time.monotonic(), Trials(out / "history.jsonl")
            while run.poll() is None:
                time.sleep(every)
                spent, resident = time.monotonic() - begun, status_mb(run.pid, "VmRSS")
                if not resident:
                    break
                peak = max(peak, status_mb(run.pid, "VmHWM"))
                samples.append((counted.read(), resident))
                print(f"{spent:8.0f} s {samples[-1][0]:8d} trials {resident:8.1f} MB", flush=True)
                if seconds and spent > seconds:
                    run.send_signal(signal.SIGINT)
            return samples, peak, run.wait(timeout=600)


def main() -> int:
    """Measure, and say what was measured."""
    parser = argparse.ArgumentParser(description="Measure the memory of a long run.")
    parser.add_argument("--trials", type=int, default=FULL)
    parser.add_argument("--seconds", type=float, default=0.0, help="Interrupt the run after so long; 0: never.")
    parser.add_argument("--every", type=float, default=5.0, help="Seconds between two samples.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        samples, peak, code = measure(Path(scratch), options.trials, options.seconds, options.every)
    settled = np.array([sample for sample in samples if sample[0] > samples[-1][0] / 10], dtype=float)
    slope, begin = np.polyfit(settled[:, 0], settled[:, 1], 1)
    expected = begin + slope * FULL
    print(f"exit {code}, {samples[-1][0]} trials, peak {peak:.1f} MB, {slope * 1000:+.4f} MB per 1,000 trials")
    print(f"the line is at {expected:.1f} MB for {FULL} trials")
    return 1 if max(peak, expected) > LIMIT_MB or code not in (0, 130) else 0


if __name__ == "__main__":
    sys.exit(main())
