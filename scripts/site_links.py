"""A hook of MkDocs: links that leave docs/ lead to the same file in the repository.

In: the Markdown of a page of docs/. Out: the same, in which a relative link to a file outside of docs/ (the README, a
stored run, a script) is an address in the repository, since the site holds only docs/. Whether that file exists is
tested by tests/unit/test_docs.py on the pages as they are.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

REPOSITORY = "https://github.com/determinism-audit/determinism/blob/main/"
LINK = re.compile(r"(?<=\]\()(\.\./[^)\s]+)(?=\))")


def outside(link: str, page: str) -> str:
    """Return a link of `page` (relative to docs/) as it is, or as an address where it leads out of docs/."""
    path, separator, anchor = link.partition("#")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if not target.startswith("../"):
        return link
    return f"{REPOSITORY}{target.removeprefix('../')}{separator}{anchor}"


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - a page of MkDocs
    """Rewrite the links of a page."""
    return LINK.sub(lambda match: outside(match[1], page.file.src_uri), markdown)
