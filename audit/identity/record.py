"""The shapes of an identity record: its manifest and its history lines, without behaviour.

docs/reference/identity.md says what each field means. As in `audit.record` the shapes hold facts only, and no field
says that anything was identical. The lines that all kinds share are those of `audit.record`.
"""

from typing import Literal

import msgspec

from audit.record import AnyManifest, Begin, End, Interrupt, Line, RowsFact, decode_line

__all__ = [
    "AnyIdentityLine",
    "BuildEntry",
    "CaptureFailure",
    "CaptureLine",
    "CellEntry",
    "IdentityManifest",
    "Library",
    "NotRun",
    "ProcessLine",
    "RowsKind",
    "identity_line_from_bytes",
]

RowsKind = Literal["logits", "logprobs"]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record shape: frozen, by keyword, and strict about its fields."""


class BuildEntry(_Shape, frozen=True, kw_only=True):
    """One build: what was asked for and what it was resolved to.

    `commit` is that of a git revision, `archive` the digest of a wheel. `restarts` is False for a server that ran
    already.
    """

    label: str
    source: Literal["git", "binary", "pypi", "http"]
    name: str
    commit: str | None
    archive: str | None
    options: list[str]
    restarts: bool


class CellEntry(_Shape, frozen=True, kw_only=True):
    """One model file at one quantization; `prompts` are digests of prompt facts by name."""

    cell: str
    family: str
    quantization: str
    model_sha256: str
    vocabulary: int
    prompts: dict[str, str]


class NotRun(_Shape, frozen=True, kw_only=True):
    """A family that was not asked, and why."""

    family: str
    reason: str


class IdentityManifest(AnyManifest, frozen=True, kw_only=True):
    """The manifest of an identity record; `builds` begins with the oldest, `environment` holds names of variables."""

    kind: Literal["identity"]
    rows: RowsKind
    builds: list[BuildEntry]
    cells: list[CellEntry]
    not_run: list[NotRun]
    environment: dict[str, list[str]]


class Library(_Shape, frozen=True, kw_only=True):
    """A library that a process had mapped."""

    name: str
    sha256: str | None


class CaptureFailure(_Shape, frozen=True, kw_only=True):
    """Why there are no rows; `rows` means that fewer came than tokens."""

    kind: Literal["start", "crash", "timeout", "reply", "rows", "dump", "forced", "no reference"]
    message: str


class ProcessLine(Line, frozen=True, kw_only=True, tag="process"):
    """A process of a build began or ended; `path` is the digest of a fact with what it said of its code path."""

    build: str
    cell: str
    round: int
    phase: Literal["start", "end"]
    executable: str | None = None
    libraries: list[Library] = msgspec.field(default_factory=list)
    path: str | None = None
    failure: CaptureFailure | None = None


class CaptureLine(Line, frozen=True, kw_only=True, tag="capture"):
    """What a build answered to one prompt: rows with the tokens that they lead to, or why there are none."""

    build: str
    cell: str
    round: int
    form: Literal["free", "forced"]
    prompt: str
    tokens: list[int]
    rows: RowsFact | None
    failure: CaptureFailure | None


AnyIdentityLine = Begin | ProcessLine | CaptureLine | Interrupt | End
_DECODER = msgspec.json.Decoder(AnyIdentityLine)


def identity_line_from_bytes(data: bytes) -> AnyIdentityLine:
    """Read one history line of an identity record.

    Raises: EvidenceError where it is not a line of this format.
    """
    return decode_line(_DECODER, data, of=" of an identity record")
