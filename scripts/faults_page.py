"""Write the tables of docs/reference/faults.md: every switch, and every fault run with what must be found.

In: the page, with the markers `<!-- NUMBERS -->` and so on, and the tables of scripts/fault_cases. Out: the page with
the lines between each pair of markers made anew. tests/unit/test_faults_page.py fails where it is not up to date.

    python -m scripts.faults_page [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from audit.fake import switches
from audit.fake.switches import GROUPS
from scripts.fault_cases import CASES, Case

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "faults.md"


def switch_rows(group: str) -> Iterator[str]:
    """Yield the table of a group's switches."""
    yield "| switch | what it does |"
    yield "|---|---|"
    for switch in switches():
        if switch.group == group:
            yield f"| `{switch.name}` | {switch.text} |"


def case_rows() -> Iterator[str]:
    """Yield the table of fault runs."""
    yield "| run | switch and plan | exit | what must be found | what catches it |"
    yield "|---|---|---|---|---|"
    for case in CASES:
        faults = ", ".join(_switch(case, name, value) for name, value in case.faults.items())
        yield f"| {case.name} | {faults or 'none'}; {case.plan} | {case.code} | {_found(case)} | {case.evidence} |"


def _switch(case: Case, name: str, value: object) -> str:
    if value is True:
        return f"`{name}`"
    where = f"`{value}`" if isinstance(value, str) else f"{value}"
    return f"`{name}` = {'after ' if case.after else ''}{where}"


def _found(case: Case) -> str:
    """Return in words what a case expects."""
    if case.error:
        return f"the run ends: {case.error}"
    by_verdict: dict[str, list[str]] = {}
    for condition, verdict in case.cells.items():
        by_verdict.setdefault(verdict, []).append(condition)
    parts = [f"{verdict}: {', '.join(conditions)}" for verdict, conditions in by_verdict.items()]
    if case.failed:
        kept = {True: ", its body kept", False: ", no body came", None: ", what arrived kept"}[case.failed.kept]
        parts.append(f"`{case.failed.kind}`: {case.failed.message}{kept}")
    if case.instrument:
        parts.append("instrument: " + ", ".join(f"{name} {status}" for name, status in case.instrument.items()))
    weak = sorted({word for words in case.qualifiers.values() for word in words})
    parts += [f"qualifier {word}" for word in weak]
    return "; ".join(parts) or "nothing"


def page_with(text: str) -> str:
    """Return the page with all tables made anew."""
    tables = {group: switch_rows(group) for group in GROUPS} | {"runs": case_rows()}
    for name, rows in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            message = f"error: {PAGE.name} must hold {begin.strip()} and {end} once each"
            raise SystemExit(message)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + "\n" + "\n".join(rows) + "\n\n" + end + after
    return text


def main(words: Sequence[str] | None = None) -> int:
    """Write or check the page; 1 where it is not up to date."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/reference/faults.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where the page is not up to date")
    check = parser.parse_args(words).check
    page = PAGE.read_text(encoding="ascii")
    new = page_with(page)
    if new != page and not check:
        PAGE.write_text(new, encoding="ascii")
    print("up to date" if new == page else "not up to date" if check else "written")
    return int(check and new != page)


if __name__ == "__main__":
    sys.exit(main())
