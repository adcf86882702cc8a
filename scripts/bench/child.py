"""The process that is measured: prepares, does its work, and prints what that took.

    python -m scripts.bench.child MODULE ROLE ARGUMENTS

In: a bench's module, one of its functions, and the function's arguments as JSON. The function prepares and returns the
work; the work may return more numbers by name. Out: one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

__all__ = ["main"]


def peak_mb() -> float:
    """Return the most memory that this process had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def main(words: list[str]) -> int:
    """Do one half of a pair."""
    module, role, arguments = words
    work = getattr(importlib.import_module(f"scripts.bench.{module}"), role)(**json.loads(arguments))
    begun, used = time.perf_counter(), time.process_time()
    value = work()
    spent = {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - used, "peak_mb": peak_mb()}
    print(json.dumps({**spent, "value": value or {}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
