"""Stopping: the first signal after the current trial, the second at once; before and after the run any signal at once.

In go SIGINT, SIGTERM and SIGHUP, out comes a wish that the run asks for between two trials, or the end of its task. A
signal that was ignored when the program began, as under nohup, stays ignored.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

__all__ = ["Stop"]

Result = TypeVar("Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WORDS = b"\nstopping after the current trial; once more stops at once\n"


class Stop:
    """Turns signals into a wish to stop; a context manager."""

    def __init__(self) -> None:
        """Begin with no wish."""
        self._asked = False
        self._cancel: Callable[[], object] | None = None
        self._before: dict[int, Any] = {}

    def asked(self) -> bool:
        """Tell whether to stop."""
        return self._asked

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` on an event loop.

        Raises: KeyboardInterrupt where it was stopped at once, and what `work` raises.
        """
        import asyncio

        async def watched() -> Result:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None  # noqa: S101 - a coroutine that runs has one, and mypy cannot see it
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await work
            finally:
                self._cancel = None

        try:
            return asyncio.run(watched())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, _number: int, _frame: object) -> None:
        if self._cancel is None:
            raise KeyboardInterrupt
        if self._asked:
            self._cancel()
            return
        self._asked = True
        # Not through sys.stderr: the signal may have come in the middle of a write to it.
        with contextlib.suppress(OSError):
            os.write(2, _WORDS)
