"""The shapes of a remedy's record: its manifest and its history lines, without behaviour.

docs/reference/remedy.md says what each field means. As in `audit.record` the shapes hold facts only: a line says what
was started and which sealed audit it left, never what came of it.
"""

from pathlib import Path
from typing import Literal

import msgspec

from audit.errors import EvidenceError
from audit.record import AnyManifest, Begin, End, Interrupt, Line, Resume, decode_line
from audit.remedy.plan import RemedyPlan
from audit.store import Folder, Run

__all__ = [
    "ARMS",
    "AnyRemedyLine",
    "ArmLine",
    "BuildLine",
    "FailedLine",
    "RemedyManifest",
    "RemedyRun",
    "Role",
    "Untried",
    "UntriedLine",
    "remedy_line_from_bytes",
]

ARMS = "arms"
Role = Literal["before", "screen", "confirm", "after"]
Untried = Literal["unknown flag", "unknown variable", "as without it", "time", "confirmed enough"]


class RemedyManifest(AnyManifest, frozen=True, kw_only=True):
    """The manifest of a remedy; `slots` and `threads` are those of a server without any setting."""

    kind: Literal["remedy"]
    model: str
    model_sha256: str
    slots: int
    threads: int


class BuildLine(Line, frozen=True, kw_only=True, tag="build"):
    """Which build is started: its name, and the digest of a fact with what it says that it understands.

    That fact is `{"help": TEXT}` for a program, `{"fields": [...]}` for the embedded build; `variables` are those of
    the catalogue that occur in its files.
    """

    build: str
    help: str
    variables: list[str]


class UntriedLine(Line, frozen=True, kw_only=True, tag="untried"):
    """Settings that were not tried together, and why; `confirmed enough` is about confirming only."""

    settings: list[str]
    reason: Untried
    words: str


class ArmLine(Line, frozen=True, kw_only=True, tag="arm"):
    """One start of the server: what was set, what was asked, and the seal of the audit that it left in its folder.

    `words` says how each setting is written, as it stands in `argv` or `environment`; `memory_bytes` is the largest
    resident memory of the server's process.
    """

    arm: str
    role: Role
    settings: list[str]
    words: list[str]
    asked: list[str]
    argv: list[str]
    environment: dict[str, str]
    seal: str
    memory_bytes: int | None


class FailedLine(Line, frozen=True, kw_only=True, tag="failed"):
    """A start that left no audit, and what was said."""

    role: Role
    settings: list[str]
    message: str


AnyRemedyLine = Begin | Resume | BuildLine | UntriedLine | ArmLine | FailedLine | Interrupt | End
_DECODER = msgspec.json.Decoder(AnyRemedyLine)


def remedy_line_from_bytes(data: bytes) -> AnyRemedyLine:
    """Read one history line of a remedy.

    Raises: EvidenceError where it is not a line of this format.
    """
    return decode_line(_DECODER, data, of=" of a remedy")


class RemedyRun(Folder[RemedyManifest, AnyRemedyLine]):
    """The folder of a remedy."""

    kind = "remedy"
    manifest_type = RemedyManifest
    read_line = staticmethod(remedy_line_from_bytes)

    @property
    def plan(self) -> RemedyPlan:
        """The plan that was executed.

        Raises: EvidenceError where it is another than the manifest names.
        """
        return RemedyPlan.from_bytes(self.plan_bytes())

    def arm(self, name: str) -> Run:
        """Open the audit of a start.

        Raises: EvidenceError where it is not there.
        """
        folder: Path = self.folder / ARMS / name
        if not folder.is_dir():
            raise EvidenceError(f"{folder} is named by the history and not there")
        return Run.open(folder)
