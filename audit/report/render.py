"""Contexts become pages: HTML and Markdown by templates that ship with the package, in ASCII, the same bytes each time.

In goes a context, out come bytes. Whatever a context holds is made visible and escaped on its way into a page, so that
a record cannot bring markup, a command or an address with it; only drawings of figure.py and the page's own style and
script are taken as they are. jinja2 is loaded when the first page is made.
"""

import base64
import hashlib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from audit.report.visible import code, markdown, plain

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["html_page", "markdown_page"]

_TEMPLATES = Path(__file__).parent / "templates"


class _Table(NamedTuple):
    """A table for a template; numbers are told from words by column."""

    columns: list[str]
    numeric: dict[str, bool]
    rows: list[list[tuple[str, str]]]


def html_page(template: str, context: Mapping[str, Any]) -> bytes:
    """Render an HTML page that asks for nothing: style and script are in it, and its policy forbids the rest."""
    script = _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("ascii")).digest()).decode("ascii")
    page = {
        "script": Markup(script),  # noqa: S704 - a file of this package
        "script_hash": f"sha256-{digest}",
        "style": Markup(_source("style.css")),  # noqa: S704 - the same
        "shapes": Markup(_source("shapes.html")),  # noqa: S704 - the same
    }
    return _bytes(_environment(html=True).get_template(template).render({**context, **page}))


def markdown_page(template: str, context: Mapping[str, Any]) -> bytes:
    """Render a Markdown page."""
    text = _environment(html=False).get_template(template).render(context)
    return _bytes("\n".join(line.rstrip() for line in text.splitlines()))


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="ascii")


def _bytes(text: str) -> bytes:
    return text.strip().encode("ascii", "xmlcharrefreplace") + b"\n"


@cache
def _environment(*, html: bool) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only a page needs it

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES, encoding="ascii"),
        autoescape=html,  # noqa: S701 - Markdown is escaped by `finalize`
        finalize=_visible if html else _markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"table": _table, "thousands": _thousands, "code": lambda value: Markup(code(value))}  # noqa: S704 - code() leaves no markup
    return environment


def _visible(value: object) -> object:
    return value if isinstance(value, Markup) else plain(value)


def _markdown(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else markdown(value)


def _thousands(value: object) -> object:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def _table(frame: pd.DataFrame) -> _Table:
    """Return a table whose numbers are written in at most four digits, or whole."""
    numeric = {str(name): pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns}
    rows = [
        [(str(name), _number(value)) for name, value in zip(frame.columns, row, strict=True)]
        for row in frame.itertuples(index=False, name=None)
    ]
    return _Table([str(name) for name in frame.columns], numeric, rows)


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
