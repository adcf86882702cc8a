"""Write the table of docs/reference/performance.md from docs/reference/performance.json.

    python -m scripts.bench.page [--check]

In: the facts that `python -m scripts.bench` stored, and the catalogue. Out: the lines between `<!-- measured -->` and
`<!-- end of measured -->`. tests/unit/test_bench.py fails where they are not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from scripts.bench.catalogue import BENCHES
from scripts.bench.measure import REPOSITORY, Bench

__all__ = ["FACTS", "PAGE", "main", "page_with", "write"]

FACTS = REPOSITORY / "docs" / "reference" / "performance.json"
PAGE = FACTS.with_suffix(".md")
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
# Names of measures that say what they are in the table; `wall_s` and the like speak for themselves.
JSON = dict[str, Any]


def _number(value: float) -> str:
    """Return a number in as many digits as it deserves."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 - four digits need no point


def _ratios(fact: JSON) -> str:
    """Return each measure with its ratio, the least and greatest of the pairs', and both sides' medians."""
    parts = [
        f"{name}: **{one['ratio']:.2f} x** ({one['ratio_low']:.2f} to {one['ratio_high']:.2f}), "
        f"{_number(one['ours'])} against {_number(one['floor'])}"
        for name, one in fact["measures"].items()
    ]
    parts += [f"{name}: {_number(value)}" for name, value in fact["alone"].items()]
    return "; ".join(parts)


def _rows(stored: JSON) -> Iterator[str]:
    machine = stored["machine"]
    facts = {fact["bench"]: fact for fact in stored["facts"]}
    yield (
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, Linux "
        f"{machine['kernel']}, Python {machine['python']}. {stored['note']}".strip()
    )
    yield ""
    yield "| what | floor | goal | measured | n, pairs | command |"
    yield "|---|---|---|---|---|---|"
    for bench in BENCHES:
        yield _row(bench, facts.get(bench.name))


def _row(bench: Bench, fact: JSON | None) -> str:
    where = f"`python -m scripts.bench.{bench.name}`"
    if fact is None:
        return f"| {bench.what} | {bench.floor} | {bench.goal} | not measured | - | {where} |"
    sizes = ", ".join(f"{_number(size)} {name}" for name, size in fact["n"].items() if name != "tiny")
    return (
        f"| {bench.what} | {bench.floor} | {bench.goal} | {_ratios(fact)} | "
        f"{sizes}; {fact['pairs']} pairs in {fact['seconds']:.0f} s | {where} |"
    )


def page_with(page: str, stored: JSON) -> str:
    """Return a page with the table made anew.

    Raises: SystemExit where a marker is missing.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"{PAGE.name} needs one {BEGIN} and one {END}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n" + "\n".join(_rows(stored)) + f"\n{END}{rest.partition(END)[2]}"


def write(stored: JSON) -> None:
    """Store facts, and write the page anew."""
    text = json.dumps(stored, indent=1, sort_keys=True) + "\n"
    FACTS.write_text(text, encoding="ascii")
    # What is shown is what can be read back.
    PAGE.write_text(page_with(PAGE.read_text(encoding="ascii"), json.loads(text)), encoding="ascii")


def main(words: Sequence[str] | None = None) -> int:
    """Write the page, or with --check say whether it would change."""
    parser = argparse.ArgumentParser(description="Write the table of measured facts.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where the page is not up to date")
    stored = json.loads(FACTS.read_text(encoding="ascii"))
    page = PAGE.read_text(encoding="ascii")
    if parser.parse_args(words).check:
        same = page_with(page, stored) == page
        print("up to date" if same else "not up to date: python -m scripts.bench.page")
        return 0 if same else 1
    PAGE.write_text(page_with(page, stored), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
