"""The history file: opened once, locked against a second writer, written line by line, taken up where it was left.

In go lines, out comes a file in which each line is numbered and names the digest of the one before. A line is whole, or
it is the last one and incomplete, which is how a killed process or a full disk leaves it; then it is cut. No line is
understood here.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Self

import msgspec

from audit.errors import UsageError
from audit.record import Line, to_bytes
from audit.stream import digest

__all__ = ["HISTORY", "History"]

HISTORY = "history.jsonl"


class History:
    """The history of one run folder, open and locked; every line is handed to the system before `append` returns.

    `count` lines stand in it, `cut` bytes of an incomplete last line stand behind them until the next one is written.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Lock an open file; the system unlocks it when this process ends, however it ends.

        Raises: UsageError where another process writes this run.
        """
        self.path = path
        self.count = self.cut = 0
        self.prev = ""
        self._descriptor = descriptor
        self._anchor_ns = time.monotonic_ns()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                f"{path.parent}: another process writes this run, or it cannot be locked: {error.strerror}",
                hint="wait until the other process has ended",
            ) from error

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make the file of a new run.

        Raises: OSError where it exists or cannot be made; UsageError.
        """
        path = folder / HISTORY
        return cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))

    @classmethod
    def take_up(cls, folder: Path) -> Self:
        """Open the file of a run that did not end, behind its last whole line.

        Raises: UsageError where it is missing, is a link, cannot be written, or another process writes it.
        """
        path = folder / HISTORY
        try:
            history = cls(path, os.open(path, os.O_RDWR | os.O_NOFOLLOW))
        except OSError as error:
            raise UsageError(f"{path}: cannot be taken up: {error.strerror}") from error
        whole = 0
        with path.open("rb") as file:
            for data in file:
                if not data.endswith(b"\n"):
                    history.cut = len(data)
                    break
                whole += len(data)
                history.count += 1
                history.prev = digest(data)
        os.lseek(history._descriptor, whole, os.SEEK_SET)
        return history

    def since_anchor(self, monotonic_ns: int) -> int:
        """Return a monotonic time in nanoseconds since this process's anchor."""
        return monotonic_ns - self._anchor_ns

    def append(self, line: Line) -> Line:
        """Append a line, linked to the one before it, in the place of an incomplete one.

        Returns: the line as it was written.
        Raises: UsageError where it cannot be written whole; what was written of it is cut when the run is taken up.
        """
        at_ns = self.since_anchor(time.monotonic_ns())
        linked = msgspec.structs.replace(line, n=self.count, prev=self.prev, at_ns=at_ns)
        data = to_bytes(linked)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
            if self.cut:
                os.ftruncate(self._descriptor, os.lseek(self._descriptor, 0, os.SEEK_CUR))
        except OSError as error:
            written = f"after {len(data) - len(left)} of {len(data)} bytes of a line"
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}, {written}") from error
        self.cut = 0
        self.prev = digest(data)
        self.count += 1
        return linked

    def sync(self) -> None:
        """Wait until the history is on the medium.

        Raises: UsageError where it cannot be brought there.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be brought to the medium: {error.strerror}") from error

    def close(self) -> None:
        """Bring the history to the medium and close it; a second call does nothing."""
        if self._descriptor >= 0:
            try:
                self.sync()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1
