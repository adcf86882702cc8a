"""Write what `--help` says into docs/reference/command-line.md, one fenced block a verb.

In: the page, with a line `<!-- help VERB -->` before each block (no verb for the program itself, two words for a verb
of a verb), and the verbs of audit/cli. Out: the page with every block made anew; the text around the blocks is left
alone. A verb without a block, or a block without a verb, is an error.
tests/unit/test_docs_command_line.py fails where the page is not up to date.

    python scripts/command_line_docs.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from audit.cli import command_line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "command-line.md"
BLOCK = re.compile(r"(?m)^<!-- help ?([a-z_ -]*?) -->\n```text\n.*?^```$", re.DOTALL)
# Help is wrapped to the terminal; these make the same text everywhere.
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


def verbs() -> list[str]:
    """Return the names of all verbs, each followed by its own verbs, in the order of `determinism --help`."""
    return list(_verbs(get_command(command_line())))


def help_text(verb: str) -> str:
    """Return what `determinism VERB --help` prints, or `determinism --help` for the empty verb."""
    arguments = [*verb.split(), "--help"]
    shown = CliRunner().invoke(command_line(), arguments, prog_name="determinism", env=ENVIRONMENT)
    if shown.exit_code != 0:
        raise SystemExit(f"error: determinism {' '.join(arguments)} exits with {shown.exit_code}")
    return "\n".join(line.rstrip() for line in shown.stdout.rstrip().splitlines()) + "\n"


def renewed(page: str) -> str:
    """Return the page with every block made anew."""
    return BLOCK.sub(lambda match: _block(match[1]), page)


def missing(page: str) -> list[str]:
    """Return the verbs without a block, and the blocks without a verb; the program itself is the empty word."""
    return sorted({"", *verbs()} ^ {match[1] for match in BLOCK.finditer(page)})


def _verbs(command: Any, above: str = "") -> Iterator[str]:  # noqa: ANN401 - a click command
    for name, verb in getattr(command, "commands", {}).items():
        yield above + name
        yield from _verbs(verb, f"{above}{name} ")


def _block(verb: str) -> str:
    text = help_text(verb) if verb in {"", *verbs()} else ""
    return f"<!-- {f'help {verb}'.strip()} -->\n```text\n{text}```"


def main(words: Sequence[str]) -> int:
    """Renew the page, or only tell whether it is up to date; 0 where it is or now is, 1 where not."""
    parser = argparse.ArgumentParser(description="Write the help texts into docs/reference/command-line.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where the page is not up to date")
    check = parser.parse_args(words).check
    page = PAGE.read_text(encoding="ascii")
    if odd := missing(page):
        print(f"error: {PAGE.name}: verb and block do not match: {', '.join(map(repr, odd))}", file=sys.stderr)
        return 1
    new = renewed(page)
    if new != page and not check:
        PAGE.write_text(new, encoding="ascii")
    print("up to date" if new == page else "not up to date" if check else "written")
    return int(check and new != page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
