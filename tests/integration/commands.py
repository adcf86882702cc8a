"""A command line, run in the process of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]
