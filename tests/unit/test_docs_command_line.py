"""docs/reference/command-line.md shows what `--help` prints, word for word."""

from __future__ import annotations

import pytest

from scripts.command_line_docs import BLOCK, PAGE, help_text, main, missing, renewed, verbs


def test_every_verb_has_one_block() -> None:
    """The page has one block a verb and one for the program itself, in the order of `determinism --help`."""
    page = PAGE.read_text(encoding="ascii")
    assert missing(page) == []
    assert [match[1] for match in BLOCK.finditer(page)] == ["", *verbs()]


@pytest.mark.parametrize("verb", ["", *verbs()])
def test_the_page_shows_the_help_of_each_verb(verb: str) -> None:
    """A changed option makes the page stale; scripts/command_line_docs.py renews it."""
    blocks = {match[1]: match[0] for match in BLOCK.finditer(PAGE.read_text(encoding="ascii"))}
    assert blocks[verb].split("```text\n")[1].removesuffix("```") == help_text(verb)


def test_a_stale_block_is_renewed_and_the_text_around_it_is_kept() -> None:
    """Only what stands between the fences changes."""
    stale = "before\n<!-- help plan -->\n```text\nold\n```\nbetween\n<!-- help -->\n```text\n```\nafter\n"
    page = renewed(stale)
    assert page == stale.replace("old\n", help_text("plan")).replace("```text\n```", f"```text\n{help_text('')}```")
    assert renewed(page) == page


def test_a_block_of_no_verb_and_a_verb_without_block_are_named() -> None:
    """Both are odd, so that neither an old nor a new verb goes unnoticed."""
    assert missing("<!-- help gone -->\n```text\n```\n") == sorted(["", "gone", *verbs()])


def test_the_script_says_that_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """With --check nothing is written and the exit code is 0."""
    assert main(["--check"]) == 0
    assert capsys.readouterr().out == "up to date\n"
