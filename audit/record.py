"""The shapes of what a run folder holds: manifest and history lines, without behaviour.

docs/reference/record.md says what each field means. Lines are msgspec structs, told apart by `line`; they hold facts
only, and no field says that anything was identical or passed. This module reads and writes no file.
"""

from typing import Any, Literal, TypeVar

import msgspec

from audit.errors import EvidenceError
from audit.stream import FORMAT, canonical

L = TypeVar("L")

__all__ = [
    "AnyLine",
    "AnyManifest",
    "Attested",
    "Begin",
    "Complete",
    "End",
    "Failure",
    "Interrupt",
    "Invoke",
    "Joined",
    "Line",
    "Manifest",
    "Process",
    "PromptFact",
    "Registration",
    "Reply",
    "Resume",
    "RowsFact",
    "ServerEntry",
    "ServerLine",
    "Skip",
    "Snapshot",
    "Wave",
    "decode_line",
    "line_from_bytes",
    "to_bytes",
]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A record shape: frozen, by keyword, and strict about its fields; none can hold itself, so none is collected."""


class Process(_Shape, frozen=True, kw_only=True):
    """What tells one server process from the next."""

    start: str | None
    media_marker: str | None


class Attested(_Shape, frozen=True, kw_only=True):
    """What a server says about itself.

    `props` and `models` are digests of facts, `n_ctx` is the context of one slot.
    """

    build_info: str | None
    model: str | None
    models: str | None
    n_ctx: int | None
    process: Process
    props: str
    server_header: str | None
    slots: int
    vocabulary: int | None


class ServerEntry(_Shape, frozen=True, kw_only=True):
    """One server of the manifest."""

    label: str
    owned: bool
    attested: Attested
    declaration: str | None


class PromptFact(_Shape, frozen=True, kw_only=True):
    """Frozen token ids, and the text that the server makes of them."""

    ids: list[int]
    text: str


class Registration(_Shape, frozen=True, kw_only=True):
    """Which registration a run belongs to, and how far that can be trusted."""

    name: str
    digest: str
    files: dict[str, dict[str, str]]
    commit: str | None
    status: Literal["registered", "uncommitted", "changed", "overridden"]


class AnyManifest(_Shape, frozen=True, kw_only=True):
    """What the manifests of all kinds have: what was run, by which program, on which machine."""

    format: int
    plan: str
    registered: str
    registration: Registration | None
    program: dict[str, Any]
    dependencies: dict[str, str]
    python: str
    machine: dict[str, Any]


class Manifest(AnyManifest, frozen=True, kw_only=True):
    """The manifest of an audit: against which servers it was run."""

    kind: Literal["audit", "identity", "accuracy", "remedy"]
    servers: list[ServerEntry]
    prompts: dict[str, dict[str, str]]


class Line(_Shape, frozen=True, kw_only=True, tag_field="line"):
    """One line of the history: number, digest of the line before, monotonic nanoseconds since the process's anchor."""

    n: int = 0
    prev: str = ""
    at_ns: int = 0


class Begin(Line, frozen=True, kw_only=True, tag="begin"):
    """The first line, with the process's wall-clock anchor."""

    process: int
    wall_ns: int


class Resume(Line, frozen=True, kw_only=True, tag="resume"):
    """A later process takes the run up; `cut` bytes of an incomplete last line were dropped."""

    process: int
    wall_ns: int
    cut: int


class ServerLine(Line, frozen=True, kw_only=True, tag="server"):
    """Who a server is, at the start, after a restart, when it changed, at the end."""

    server: str
    phase: Literal["start", "restart", "change", "end"]
    attested: Attested
    declaration: str | None


class Snapshot(Line, frozen=True, kw_only=True, tag="snapshot"):
    """What a server is doing, asked around every unit; metrics are kept as the strings that the server printed."""

    server: str
    unit: str | None
    attempt: int
    when: Literal["start", "before", "after", "end"]
    health: int | None
    slots: list[tuple[int, bool, int | None]] | None
    metrics: dict[str, str | None] | None
    props: str | None
    process: Process


class Skip(Line, frozen=True, kw_only=True, tag="skip"):
    """A unit that was not sent, and the numbers that say why."""

    server: str
    unit: str
    reason: Literal["slots", "not owned", "no reference"]
    needed: int | None
    available: int | None


class Wave(Line, frozen=True, kw_only=True, tag="wave"):
    """A wave is about to be released: its members in order and each one's planned delay after the release."""

    server: str
    unit: str
    attempt: int
    members: list[str]
    delays_ns: list[int]


class Invoke(Line, frozen=True, kw_only=True, tag="invoke"):
    """A request is about to be sent; `request` is the digest of its body."""

    server: str
    trial: str
    unit: str
    attempt: int
    part: int
    request: str
    slot: int


class Failure(_Shape, frozen=True, kw_only=True):
    """Why a request has no reply; `body` is the digest of the kept raw body, if one arrived."""

    kind: Literal["connect", "timeout", "transport", "status", "refused", "stream_error"]
    message: str
    body: str | None


class RowsFact(_Shape, frozen=True, kw_only=True):
    """Where the rows of a reply are, their shape (steps, vocabulary), one digest a row."""

    file: str
    shape: tuple[int, int]
    digests: list[str]


class Joined(_Shape, frozen=True, kw_only=True):
    """The stream that many one-step replies make together."""

    logprob: str
    token: str
    steps: int
    holes: int


class Reply(_Shape, frozen=True, kw_only=True):
    """The facts of one reply.

    What the server did not say is None; times are in milliseconds as the server gave them.
    """

    logprob: str | None
    token: str
    steps: int
    holes: int
    rows: RowsFact | None
    joined: Joined | None
    settings: str | None
    prompt_echo: str | None
    model: str | None
    id_slot: int | None
    tokens_evaluated: int | None
    tokens_predicted: int | None
    cache_n: int | None
    prompt_n: int | None
    prompt_ms: float | None
    predicted_n: int | None
    predicted_ms: float | None
    draft_n: int | None
    truncated: bool | None
    stop_type: str | None
    above_zero: int
    saturated: int


class Complete(Line, frozen=True, kw_only=True, tag="complete"):
    """What became of a request: a reply or a failure, and when it was sent and answered."""

    server: str
    trial: str
    unit: str
    attempt: int
    part: int
    sent_ns: int
    first_byte_ns: int | None
    last_byte_ns: int | None
    status: int | None
    failure: Failure | None
    reply: Reply | None


class Interrupt(Line, frozen=True, kw_only=True, tag="interrupt"):
    """The run was stopped on purpose and can be taken up again."""

    reason: str


class End(Line, frozen=True, kw_only=True, tag="end"):
    """The run has done all it was asked to do."""

    reason: str


AnyLine = Begin | Resume | ServerLine | Snapshot | Skip | Wave | Invoke | Complete | Interrupt | End
_DECODER = msgspec.json.Decoder(AnyLine)


def to_bytes(shape: msgspec.Struct) -> bytes:
    """Return the canonical JSON of a record shape."""
    return canonical(msgspec.to_builtins(shape))


def line_from_bytes(data: bytes) -> AnyLine:
    """Read one history line.

    Raises: EvidenceError where it is not a line of this format.
    """
    return decode_line(_DECODER, data)


def decode_line(decoder: msgspec.json.Decoder[L], data: bytes, *, of: str = "") -> L:
    """Read one history line of any kind with the decoder of its lines; `of` names the kind in the error.

    Raises: EvidenceError where it is not a line of this format.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EvidenceError(f"a history line{of} of format {FORMAT} cannot be read: {error}: {data[:120]!r}") from error
