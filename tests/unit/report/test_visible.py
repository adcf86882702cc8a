"""What a record says is shown as visible text, and means nothing to a terminal, to Markdown or to a figure."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.report.figure import label_text
from audit.report.visible import code, markdown, plain, terminal
from tests.unit.report.reported import HOSTILE


@given(st.text())
def test_plain_text_holds_no_hidden_character(text: str) -> None:
    """No control, no direction mark, no separator of lines: each is written out."""
    assert {unicodedata.category(character) for character in plain(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == set()


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_ascii_stays_as_it_is(text: str) -> None:
    """What is visible already is not touched, up to the length that is shown."""
    assert plain(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb", "a\\nb"),
        ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"),
        ("caf\u00e9", "caf\u00e9"),
        (None, "None"),
        (10**5000, "a number too large to write"),
        ("x" * 2001, "x" * 2000 + "... (2001 characters)"),
    ],
    ids=["escape", "line", "reversal", "half", "letter", "none", "number", "long"],
)
def test_what_is_invisible_or_too_long_is_written_out(value: object, shown: str) -> None:
    """An escape, a line break, a reversal, half a pair, a number of 5,000 digits."""
    assert plain(value) == shown


@given(st.text())
def test_terminal_code_and_label_are_printable_ascii(text: str) -> None:
    """A terminal gets no command, a code span no end, a figure no missing glyph."""
    for shown in (terminal(text), code(text), label_text(text)):
        assert shown.isascii()
        assert shown.isprintable()
    assert "`" not in code(text)[1:-1]
    assert len(label_text(text)) <= 28


def test_markdown_of_hostile_text_is_text() -> None:
    """Nothing opens a tag, a link, a table cell, an emphasis or a heading."""
    shown = markdown(HOSTILE)
    assert "<" not in shown
    assert "[a](b)" not in shown
    assert shown.isascii()
    assert [at for at, character in enumerate(shown) if character in "|`*_[" and shown[at - 1] != "\\"] == []
    assert [markdown(text) for text in ("# x", "- x", "+ x", "1. x")] == ["\\# x", "\\- x", "\\+ x", "1\\. x"]
    assert [markdown(text) for text in ("1.5", "a - b", "e+5")] == ["1.5", "a - b", "e+5"]
