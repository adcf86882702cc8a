"""The header of a GGUF file: the few keys that a comparison needs, read by skipping over the rest.

In goes a path, out come the values of the asked keys. The gguf package reads the same, but makes an array of every
string: half a minute for a vocabulary of 262,144 pieces. Source of the layout: ggml/docs/gguf.md, version 3 (and 2,
which is the same here). No weight is read.
"""

import struct
from pathlib import Path
from typing import IO, Any

from audit.errors import UsageError

__all__ = ["read_header"]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# The types of values by number: 8 is a string and 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_header(path: Path, keys: frozenset[str]) -> dict[str, Any]:
    """Return the values of those keys that the file has.

    Raises: UsageError where it is no GGUF file that can be read.
    """
    try:
        with path.open("rb") as file:
            magic, version = file.read(4), _scalar(file, "I")
            if magic != _MAGIC or version not in _VERSIONS:
                raise UsageError(f"{path.name} is no GGUF file of version {_VERSIONS[0]} or {_VERSIONS[1]}")
            _, count = _scalar(file, "Q"), _scalar(file, "Q")
            values = {}
            for _ in range(count):
                key = _string(file).decode("utf-8", "replace")
                value = _value(file, _scalar(file, "I"))
                if key in keys:
                    values[key] = value
                if len(values) == len(keys):
                    break
            return values
    except (OSError, struct.error, KeyError, MemoryError, OverflowError) as error:
        raise UsageError(f"{path.name} cannot be read as a GGUF file: {error}") from error


def _scalar(file: IO[bytes], code: str) -> Any:  # noqa: ANN401 - a number or a boolean
    layout = struct.Struct("<" + code)
    return layout.unpack(file.read(layout.size))[0]


def _string(file: IO[bytes]) -> bytes:
    return file.read(_scalar(file, "Q"))


def _value(file: IO[bytes], kind: int) -> Any:  # noqa: ANN401 - what the file holds
    if kind == _STRING:
        return _string(file).decode("utf-8", "replace")
    if kind != _ARRAY:
        return _scalar(file, _SCALARS[kind])
    inner, count = _scalar(file, "I"), _scalar(file, "Q")
    if inner in _SCALARS:
        layout = struct.Struct(f"<{count}{_SCALARS[inner]}")
        return list(layout.unpack(file.read(layout.size)))
    return [_value(file, inner) for _ in range(count)]
