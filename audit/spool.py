"""Replies as they came, kept until there is time to read them.

In go the chunks of bodies, out come `Parsed` replies. Decoding an event while a wave is under way would delay the
clock of every other member, so a streamed reply of a wave waits in a `Spool`: in memory up to a few megabytes, beyond
that in a file that nobody else sees.
"""

import tempfile
from dataclasses import dataclass

from audit.client import Exchange, Sink
from audit.errors import ReplyError
from audit.trial import Trial
from audit.wire import EventSink, Parsed, read_whole

__all__ = ["Sent", "Spool"]

_IN_MEMORY = 4 * 1024 * 1024
# Five times the largest reply that is asked for: 32 rows of 262,144 tokens at about 90 bytes each.
_BYTES_MAX = 4 * 1024**3
_CHUNK = 1024 * 1024


class Spool:
    """A sink that keeps bytes as they came; nothing is parsed."""

    def __init__(self, *, bytes_max: int = _BYTES_MAX) -> None:
        """Begin with nothing kept."""
        self._left = self._bytes_max = bytes_max
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by `close`

    def feed(self, chunk: bytes) -> None:
        """Keep the next chunk.

        Raises: ReplyError for a reply that does not end.
        """
        self._left -= len(chunk)
        if self._left < 0:
            raise ReplyError(f"the reply exceeds {self._bytes_max} bytes")
        self._file.write(chunk)

    def replay(self, sink: Sink) -> None:
        """Give everything to another sink, which may raise what it raises."""
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            sink.feed(chunk)

    def close(self) -> None:
        """Drop what was kept."""
        self._file.close()


@dataclass(frozen=True)
class Sent:
    """One request that was sent; `sink` reads a streamed reply, from `spool` where it was kept for later."""

    trial: Trial
    part: int
    exchange: Exchange
    sink: EventSink | None = None
    spool: Spool | None = None

    def read(self) -> Parsed:
        """Read the reply.

        Raises: ReplyError.
        """
        if self.sink is None:
            return read_whole(self.exchange.body)
        if self.spool is not None:
            self.spool.replay(self.sink)
        return self.sink.finish()

    def close(self) -> None:
        """Drop what was kept of the reply."""
        if self.spool is not None:
            self.spool.close()
