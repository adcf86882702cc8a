"""A table inside a page, between two comments: made anew or compared.

In: a page, the words between the comments, and how the table is made. Out: the page with the table made anew, or with
`--check` exit 1 where that would change it. What the table says is for the script that makes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["renewed", "table_command"]


def renewed(text: str, name: str, table: str) -> str:
    """Return the page with what stands between `<!-- NAME -->` and `<!-- end of NAME -->` replaced.

    Raises: SystemExit where the page does not hold each of them once.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        message = f"the page must hold {begin} and {end} once each"
        raise SystemExit(message)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def table_command(page: Path, name: str, table: Callable[[], str], words: Sequence[str] | None = None) -> int:
    """Write or check the table of a page: the whole command line of a script that makes one."""
    parser = argparse.ArgumentParser(description=f"Write the {name} of {page.name} from the stored findings.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where the page is not up to date")
    check = parser.parse_args(words).check
    text = page.read_text(encoding="ascii")
    wanted = renewed(text, name, table())
    if check:
        print("up to date" if wanted == text else f"{page.name}: the {name} is not up to date: run without --check")
        return int(wanted != text)
    page.write_text(wanted, encoding="ascii")
    return 0
