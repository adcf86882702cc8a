"""Server-sent events out of the chunks of a body, so that memory holds one event.

In go chunks as they come, out comes the data of each event, as the text that it is. Nothing is decoded here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from audit.errors import ReplyError

__all__ = ["Data", "EventReader"]

# One event of a canary with a vocabulary of 262,144 is 26 MB; a line that never ends must not fill the memory.
EVENT_BYTES_MAX = 256 * 1024 * 1024
# The data of an event: within the line that it came in, or joined from several.
Data = bytes | memoryview

_NO_SPACE = re.compile(rb"\S")


@dataclass
class EventReader:
    """Splits server-sent events out of chunks as they come, so that memory holds one event.

    Comments, empty data, CRLF and events cut anywhere, even inside a character, are read alike.
    """

    on_data: Callable[[Data], None]
    _line: bytearray = field(default_factory=bytearray)
    _data: list[Data] = field(default_factory=list)

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk of the body.

        Raises: ReplyError where an event is longer than any can be, and what `on_data` raises.
        """
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._line += chunk[start:end]
            start = end + 1
            # A line is handed on as it stands, without a copy, and the next one begins anew.
            line, self._line = self._line, bytearray()
            self._take(line)
        self._line += chunk[start:]
        if len(self._line) + sum(map(len, self._data)) > EVENT_BYTES_MAX:
            raise ReplyError(f"one event of the stream exceeds {EVENT_BYTES_MAX} bytes")

    def finish(self) -> None:
        """Say that the body ended; a last event without its blank line still counts."""
        if self._line:
            self._take(self._line)
        self._take(bytearray())

    def _take(self, line: bytearray) -> None:
        if line.endswith(b"\r"):
            del line[-1:]
        if line.startswith(b"data:"):
            self._data.append(memoryview(line)[6 if line.startswith(b"data: ") else 5 :])
        elif line.startswith(b"error:"):  # older servers send the error as a field of its own
            self._data.append(b'{"error":' + line.removeprefix(b"error:").strip() + b"}")
        elif not line and self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data.clear()
            if _NO_SPACE.search(data):
                self.on_data(data)
