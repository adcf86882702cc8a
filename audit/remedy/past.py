"""What an earlier process of a remedy did: its history lines, walked through in order by the one that goes on.

In go the lines, out comes what each decision met then. A decision that meets another line than it would write is
refused: the build or the settings are others.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from audit.errors import UsageError
from audit.record import Begin, End, Interrupt, Resume
from audit.remedy.record import AnyRemedyLine, ArmLine, BuildLine, FailedLine, UntriedLine

__all__ = ["Past"]


class Past:
    """The lines that are not walked through yet; true while there are any."""

    def __init__(self, lines: Sequence[AnyRemedyLine] = ()) -> None:
        """Keep what was done, each with the seconds since the line before; `ended` where only the seal is missing."""
        self.ended = bool(lines) and isinstance(lines[-1], End)
        self._left: deque[tuple[BuildLine | UntriedLine | ArmLine | FailedLine, float]] = deque()
        before_ns = 0
        for line in lines:
            if not isinstance(line, Begin | Resume | Interrupt | End):
                self._left.append((line, (line.at_ns - before_ns) / 1e9))
            before_ns = line.at_ns

    def __bool__(self) -> bool:
        """Tell whether anything is left."""
        return bool(self._left)

    def untried(self, settings: list[str]) -> bool:
        """Tell whether there was no time for these settings next."""
        line, _ = self._left[0]
        return isinstance(line, UntriedLine) and (line.settings, line.reason) == (settings, "time")

    def screens(self, settings: list[str]) -> bool:
        """Tell whether these settings were screened next."""
        line, _ = self._left[0]
        return isinstance(line, ArmLine | FailedLine) and (line.settings, line.role) == (settings, "screen")

    def meet(self, due: BuildLine | UntriedLine) -> None:
        """Walk past a line that has to be the one that is due.

        Raises: UsageError.
        """
        found, _ = self._left.popleft()
        if msgspec.structs.replace(found, n=0, prev="", at_ns=0) != due:
            raise _another(found, due)

    def start(self, due: ArmLine) -> tuple[ArmLine, float] | None:
        """Walk past a start in the place of one that is due, of which name, role, settings and asked cells count.

        Returns: its line and how many seconds it took; None where it left no audit.
        Raises: UsageError.
        """
        found, took_s = self._left.popleft()
        if isinstance(found, FailedLine) and (found.role, found.settings) == (due.role, due.settings):
            return None
        same = [due.arm, due.role, due.settings, due.asked]
        if not isinstance(found, ArmLine) or [found.arm, found.role, found.settings, found.asked] != same:
            raise _another(found, due)
        return found, took_s

    def end(self) -> None:
        """See that nothing is left where nothing more is due.

        Raises: UsageError.
        """
        if self._left:
            raise _another(self._left[0][0], None)


def _another(found: AnyRemedyLine, due: AnyRemedyLine | None) -> UsageError:
    would = "end there" if due is None else f"go on with {_shown(due)}"
    return UsageError(
        f"the record goes on with {_shown(found)}, and by what is given now it would {would}",
        hint="give the build and the settings that it was begun with, in the same order; nothing was started",
    )


def _shown(line: AnyRemedyLine) -> str:
    """Return a line in a few words."""
    match line:
        case BuildLine():
            return f"the build {line.build}"
        case ArmLine() | FailedLine():
            return f"a start to {line.role} {' and '.join(line.settings) or 'without any setting'}"
        case UntriedLine():
            return f"{' and '.join(line.settings)} not tried: {line.words}"
    return f"line {line.n}"
