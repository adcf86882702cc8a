"""Where a server differs from the one that a run began with: the names of what changed, with both values.

In go what a server said and declared at the begin and what it says now, out come sentences. A process may be
another: what only it changes is left out. Nothing is asked and nothing is decided here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from audit.record import Attested

__all__ = ["differences"]

_SHOWN_MAX = 60
Known = tuple[Attested, Any]
_MISSING = object()


def differences(before: Known, now: Known, *, fact: Callable[[str], Any]) -> list[str]:
    """Return what is not the same, most telling first.

    Args:
        before: what the server said of itself, and what was declared, when the run began.
        now: the same at this moment.
        fact: returns a fact by its digest.
    """
    return list(_between("", _plain(before, fact), _plain(now, fact)))


def _plain(known: Known, fact: Callable[[str], Any]) -> dict[str, Any]:
    """Return all that must stay as it was, in the order in which one wants to be told."""
    attested, declared = known
    said: dict[str, Any] = msgspec.structs.asdict(attested)
    del said["process"]
    said["props"] = fact(attested.props)
    said["models"] = fact(attested.models) if attested.models is not None else None
    first = ("build_info", "model", "slots", "n_ctx", "vocabulary", "server_header")
    return {**{name: said.pop(name) for name in first}, "declaration": _portless(declared), **said}


def _portless(declared: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a declaration without the port, which a server of ours gets anew each time."""
    argv = declared.get("argv") if isinstance(declared, dict) else None
    if not isinstance(argv, list) or "--port" not in argv[:-1]:
        return declared
    at = argv.index("--port")
    return {**declared, "argv": [*argv[:at], *argv[at + 2 :]]}


def _between(place: str, before: Any, now: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """Yield each difference of two JSON values with the path to it."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{place}.{key}" if place else str(key)
            yield from _between(inner, before.get(key, _MISSING), now.get(key, _MISSING))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, pair in enumerate(zip(before, now, strict=True)):
            yield from _between(f"{place}[{at}]", *pair)
    elif type(before) is not type(now) or before != now:
        yield f"{place} was {_shown(before)}, is {_shown(now)}"


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = "not there" if value is _MISSING else repr(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
