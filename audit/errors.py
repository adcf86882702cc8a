"""The whole error tree, so that a reader sees at a glance what can go wrong and who has to act.

    DeterminismError
    +-- UsageError       the user changes the command, the plan or a file (exit 2)
    |   +-- PlanError    a plan or registration that cannot be run as written
    +-- ServerError      the system under test, or a server we tried to start, misbehaved (exit 2)
    |   +-- ReplyError   one reply that cannot be read as what was asked for
    |       +-- RowsError  one with fewer rows than tokens
    +-- EvidenceError    stored facts contradict each other (exit 4)

Each error carries a message that says what happened, where and with which value, and optionally a hint that says
what to do next. Anything else that escapes is a bug of this package (exit 5). This module prints nothing and knows no
exit code but these attributes.
"""

__all__ = [
    "DeterminismError",
    "EvidenceError",
    "PlanError",
    "ReplyError",
    "RowsError",
    "ServerError",
    "UsageError",
]


class DeterminismError(Exception):
    """Any failure that this package foresees.

    Args:
        message: what happened, where, and the offending value, in one line.
        hint: what to do next, in one line, or None.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the message and the hint apart, so that a caller can render them on lines of their own."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DeterminismError):
    """The command, the plan, a flag or a file is wrong: the user changes it."""


class PlanError(UsageError):
    """A plan or a registration cannot be run as written; the message names the field."""


class ServerError(DeterminismError):
    """The system under test cannot be reached, is not what it was asked to be, or misbehaved."""


class ReplyError(ServerError):
    """One reply cannot be read as what was asked for; its raw body is kept by the caller."""


class RowsError(ReplyError):
    """A reply has fewer rows than tokens, so that nobody can say which row is missing."""


class EvidenceError(DeterminismError):
    """Stored facts contradict each other."""

    exit_code = 4
