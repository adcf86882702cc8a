"""Run all benches, or some, and store what they found.

    python -m scripts.bench [--only NAME ...] [--pairs 5] [--tiny] [--note TEXT]

Out: docs/reference/performance.json, in which the facts of the benches that ran are replaced, and the table of
docs/reference/performance.md. With `--tiny` sizes are those of the tests and nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from audit.machine import machine
from scripts.bench.catalogue import BENCHES
from scripts.bench.measure import PAIRS, Fact
from scripts.bench.page import FACTS, write

__all__ = ["main"]


def stored_facts() -> dict[str, Any]:
    """Return what was stored before."""
    found: dict[str, Any] = json.loads(FACTS.read_text(encoding="ascii")) if FACTS.is_file() else {"facts": []}
    return found


def merged(before: dict[str, Any], facts: Sequence[Fact], note: str) -> dict[str, Any]:
    """Return the stored facts with new ones in the place of old ones, and the machine of now."""
    known = {fact["bench"]: fact for fact in before["facts"]}
    known.update({fact.bench: asdict(fact) for fact in facts})
    here = machine()
    return {
        "format": 1,
        "machine": {
            **{name: here.get(name) for name in ("cpu", "cores", "kernel", "memory_bytes")},
            "python": platform.python_version(),
        },
        "note": note,
        "facts": [known[bench.name] for bench in BENCHES if bench.name in known],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure, one bench after the other, and store after each."""
    parser = argparse.ArgumentParser(description="Run the benches.")
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"pairs of each (default {PAIRS})")
    parser.add_argument("--tiny", action="store_true", help="sizes as small as in the tests; store nothing")
    parser.add_argument("--note", default="", help="a sentence about the machine's state, shown above the table")
    options = parser.parse_args(words)
    for bench in BENCHES:
        if bench.name not in options.only:
            continue
        fact = bench.measure(options.pairs, dict(bench.tiny if options.tiny else bench.n))
        print(json.dumps(asdict(fact)), flush=True)
        if not options.tiny:
            write(merged(stored_facts(), [fact], options.note))
    return 0


if __name__ == "__main__":
    sys.exit(main())
