"""Files that go in: opened once, hashed, and compared again after the work.

In goes a path, out come the bytes through one descriptor, and what the system says of the file at the beginning and at
the end: size, time of change, inode, digest. A file that changed meanwhile is an error. Nothing is written.
"""

import hashlib
import os
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Self

from audit.accuracy.record import Inputs
from audit.errors import EvidenceError, UsageError

__all__ = ["InputFiles"]

Fact = dict[str, str | int]


class InputFiles:
    """The input files of one piece of work, used as a context manager that closes them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._stack = ExitStack()
        self._open: list[tuple[Path, BufferedReader, Fact]] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._stack.close()

    def add(self, path: Path) -> Fact:
        """Open a file and hash it.

        Raises: UsageError where it cannot be read.
        """
        try:
            file = self._stack.enter_context(path.open("rb"))
            fact = _fact(path, file)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        self._open.append((path, file, fact))
        return fact

    def read(self, path: Path) -> bytes:
        """Open a file, hash it, and return its bytes, which are those of the digest."""
        fact = self.add(path)
        file = self._open[-1][1]
        file.seek(0)
        data = file.read()
        if hashlib.sha256(data).hexdigest() != str(fact["sha256"]).removeprefix("sha256:"):
            raise EvidenceError(f"{path} changed while it was read")
        return data

    def begin(self) -> Inputs:
        """Return the line that says what went in."""
        return Inputs(when="begin", files=[fact for _, _, fact in self._open])

    def end(self) -> Inputs:
        """Return the line that says what the files are now.

        Raises: EvidenceError where one is another than at the beginning.
        """
        again = []
        for path, file, before in self._open:
            now = _fact(path, file)
            try:
                at_path = path.stat()
            except OSError as error:
                raise EvidenceError(f"{path} is gone since it was opened: {error.strerror}") from error
            if now != before or at_path.st_ino != before["inode"]:
                raise EvidenceError(f"{path} is not the file that was opened: it changed while it was in use")
            again.append(now)
        return Inputs(when="end", files=again)


def _fact(path: Path, file: BufferedReader) -> Fact:
    status = os.fstat(file.fileno())
    file.seek(0)
    return {
        "name": path.name,
        "sha256": "sha256:" + hashlib.file_digest(file, "sha256").hexdigest(),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "inode": status.st_ino,
    }
