"""What reaches a terminal is text: no escape, no bidirectional trick, no key; and nobody listening is no error."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.cli import terminal
from audit.cli.run import ProgressLine
from audit.execution import Progress


@given(text=st.text())
def test_nothing_is_left_that_a_terminal_would_obey(text: str) -> None:
    """Every character is printable or a line break, and printable text stays as it is."""
    shown = terminal.printable(text)
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert terminal.printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\rb\tc", "a\\rb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("two\nlines", "two\nlines"),
        ("\u00fcber", "\u00fcber"),
    ],
)
def test_escapes_are_shown_as_what_they_are(text: str, shown: str) -> None:
    """A reader sees that they were there."""
    assert terminal.printable(text) == shown


def test_a_key_that_was_read_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands in a text; no key hides nothing."""
    monkeypatch.setattr(terminal, "_keys", set())
    terminal.hide(None)
    terminal.hide("")
    terminal.hide("a")
    assert terminal.printable("sk-1") == "sk-1"
    terminal.hide("sk-1")
    assert terminal.printable("a sk-1 b sk-1") == "a [key] b [key]"


def test_conversation_that_nobody_hears_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed stderr ends nothing; a closed stdout is told to the caller, and leaving is quiet with both."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        terminal.say("hello")
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(BrokenPipeError):
            terminal.show("data")
        terminal.leave()


@pytest.mark.parametrize("step", [1, 3, 8, 20])
def test_progress_is_a_line_for_each_tenth_that_is_reached(step: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody watches a live line, a unit that counts for many passes a tenth too, and none is shown twice."""
    line = ProgressLine()
    done = range(0, 128, step)
    for number in done:
        line.show(Progress(server="s", condition="batch", done=number, total=128))
    shown = [int(text.split()[2].split("/")[0]) for text in capsys.readouterr().err.splitlines()]
    assert [number * 10 // 128 for number in shown] == sorted({number * 10 // 128 for number in done})
