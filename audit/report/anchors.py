"""The names that links lead to: of every cell, trial, prediction and finding of a report.

A server is `s1`, `s2`, ... in run order, so that no label of a record has to be a valid name; conditions and trial ids
are made of letters, digits and a few signs by their format, and whatever is not is written as its code point.
"""

import re
from collections.abc import Sequence

__all__ = ["Anchors"]

_FOREIGN = re.compile(r"[^A-Za-z0-9_./@-]")


class Anchors:
    """Makes the names of one report."""

    def __init__(self, servers: Sequence[str]) -> None:
        """Number the servers."""
        self._keys = {server: f"s{number}" for number, server in enumerate(servers, 1)}

    def cell(self, server: str, condition: str) -> str:
        """Return the name of a cell."""
        return f"{self._key(server)}/{_safe(condition)}"

    def trial(self, server: str, trial: str) -> str:
        """Return the name of a trial's mark on the map."""
        return f"{self._key(server)}/{_safe(trial)}"

    def finding(self, server: str, condition: str) -> str:
        """Return the name of a cell's witness."""
        return f"{self._key(server)}/{_safe(condition)}/witness"

    def prediction(self, name: str) -> str:
        """Return the name of a prediction."""
        return f"prediction/{_safe(name)}"

    def _key(self, server: str) -> str:
        return self._keys.get(server, f"s0-{_safe(server)}")


def _safe(name: str) -> str:
    return _FOREIGN.sub(lambda match: f"_{ord(match[0]):x}_", name)
