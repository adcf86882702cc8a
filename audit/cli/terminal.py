"""What reaches a terminal: data on stdout, conversation on stderr, and nothing that a terminal would obey.

In goes text, of which a part may be a server's, out comes the same text with every character that is not printable
written as an escape, and with every key that was read replaced. Conversation that nobody can hear any more is dropped:
a closed terminal ends no run.
"""

import contextlib
import os
import sys

import typer

__all__ = ["hide", "leave", "printable", "say", "show"]

_HIDDEN = "[key]"
_LENGTH_MIN = 4
_keys: set[str] = set()


def hide(key: str | None) -> None:
    """Never show this key, unless it is so short that it stands in any text."""
    if key is not None and len(key) >= _LENGTH_MIN:
        _keys.add(key)


def printable(text: str) -> str:
    """Return the text with each character escaped that is neither printable nor a line break, and without keys."""
    for key in _keys:
        text = text.replace(key, _HIDDEN)
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode("ascii") for char in text
    )


def say(text: str) -> None:
    """Write a line of conversation to stderr, where somebody still listens."""
    with contextlib.suppress(OSError):
        typer.echo(printable(text), err=True)


def show(text: str) -> None:
    """Write a line of data to stdout.

    Raises: OSError where nobody listens.
    """
    typer.echo(printable(text))


def leave() -> None:
    """Flush what is still to be written; what nobody can hear is dropped without another word at the end."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
