"""Text of a record made fit to be shown: what is invisible, reverses or commands is written out, what is long is cut.

In goes any value that a record holds, out comes text. It is no escaping for a language: HTML, Markdown and the terminal
each do their own afterwards.
"""

import re
import unicodedata

__all__ = ["code", "markdown", "plain", "terminal"]

_LENGTH_MAX = 2000
# Controls, formats (they reverse or hide text), surrogates, private and unassigned, line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PRINTABLE = re.compile(r"[ -~]*")
# What Markdown or HTML reads anywhere, and what it reads at the beginning of a line.
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~<>&$]|^[-+]|^[0-9]+[.)](?=\s|$))")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(value: object) -> str:
    r"""Return a value as one line of visible text: `\x1b` for an escape, a note in the place of what is too long."""
    text = value if isinstance(value, str) else _text(value)
    if len(text) > _LENGTH_MAX:
        text = f"{text[:_LENGTH_MAX]}... ({len(text)} characters)"
    if _PRINTABLE.fullmatch(text):
        return text
    return "".join(_shown(character) for character in text)


def _text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # an integer beyond the interpreter's limit of digits
        return "a number too large to write"


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def markdown(value: object) -> str:
    """Return a value as visible text in which no character means anything to Markdown or HTML, in ASCII."""
    text = _MARKDOWN.sub(lambda match: _ENTITIES.get(match[0], f"{match[0][:-1]}\\{match[0][-1]}"), plain(value))
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def code(value: object) -> str:
    """Return a value as a Markdown code span that also stands in a table, in ASCII."""
    shown = terminal(value).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`" if shown else ""


def terminal(value: object) -> str:
    """Return a value as visible ASCII, so that no record can command a terminal."""
    return plain(value).encode("ascii", "backslashreplace").decode("ascii")
