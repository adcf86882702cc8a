"""`determinism --help`, against `python -c "import typer"`.

python -m scripts.bench.help_text [--pairs 5] [--times 5]
"""

from __future__ import annotations

import sys

from scripts.bench.measure import Bench, Fact, Spent, command, paired, run_one


def _times(words: list[str], times: int) -> Spent:
    """Run a command several times, and return what one took."""
    spent = [command([sys.executable, *words]) for _ in range(times)]
    return Spent(
        wall_s=sum(one.wall_s for one in spent) / times,
        cpu_s=sum(one.cpu_s for one in spent) / times,
        peak_mb=max(one.peak_mb for one in spent),
    )


def measure(pairs: int, n: dict[str, int]) -> Fact:
    """Measure."""
    return paired(
        "help_text",
        lambda: _times(["-c", "import typer"], n["times"]),
        lambda: _times(["-c", "from audit.cli import main; main()", "--help"], n["times"]),
        pairs=pairs,
        n=n,
    )


BENCH = Bench(
    name="help_text",
    what="`determinism --help`",
    floor='`python -c "import typer"`',
    goal="<= 1.3 x",
    n={"times": 5},
    tiny={"times": 1},
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(run_one(BENCH))
