"""The history lines that a record of kind accuracy adds to those of `audit.record`, and its folder.

docs/reference/accuracy.md says what each field means. As in `audit.record` the shapes hold facts only, and no field
says that a row was within a bound. The manifest is that of an audit; a check names no server in it.
"""

from typing import Any, Literal

import msgspec

from audit.accuracy.metrics import Measures
from audit.accuracy.packed import unpack
from audit.record import AnyLine, Line, Manifest, decode_line
from audit.store import Folder

__all__ = [
    "AccuracyRun",
    "AnyAccuracyLine",
    "Captured",
    "Included",
    "Inputs",
    "Measured",
    "accuracy_line_from_bytes",
]


class Captured(Line, frozen=True, kw_only=True, tag="captured"):
    """What a capture of kind accuracy is of.

    `corpus` and `bounds` are digests of facts, `reproduces` of a packed capture. `source`
    says what its rows are: `logprobs` as a server reports them, or raw `logits`.
    """

    model: str
    group: str
    side: Literal["server", "reference"]
    source: Literal["logprobs", "logits"]
    corpus: str
    bounds: str | None
    reproduces: str | None


class Inputs(Line, frozen=True, kw_only=True, tag="inputs"):
    """The files that went in, each with name, sha256, size, mtime_ns and inode, before the work and again after it."""

    when: Literal["begin", "end"]
    files: list[dict[str, str | int]]


class Included(Line, frozen=True, kw_only=True, tag="included"):
    """A capture that a check is made of: its seal, and the packed document that holds all of it but rows."""

    seal: str
    capture: str


class Measured(Line, frozen=True, kw_only=True, tag="measured"):
    """The metrics of one group of one model in one mode: the digest of their file, and how many rows it has."""

    model: str
    group: str
    mode: Literal["serial", "batch"]
    metrics: str
    rows: int


AnyAccuracyLine = AnyLine | Captured | Inputs | Included | Measured
_DECODER = msgspec.json.Decoder(AnyAccuracyLine)


def accuracy_line_from_bytes(data: bytes) -> AnyAccuracyLine:
    """Read one history line of a record of kind accuracy.

    Raises: EvidenceError where it is not a line of this format.
    """
    return decode_line(_DECODER, data, of=" of a record of kind accuracy")


class AccuracyRun(Folder[Manifest, AnyAccuracyLine]):
    """The folder of a capture or a check."""

    kind = "accuracy"
    manifest_type = Manifest
    read_line = staticmethod(accuracy_line_from_bytes)

    def metrics(self, name: str) -> Measures:
        """Read metrics by the digest of their file."""
        return Measures.from_bytes(self.stored("metrics", name))

    def capture(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Read a capture that the record holds, all of it but rows, by the digest of its compressed bytes.

        Raises: EvidenceError where it cannot be read.
        """
        return unpack(self.stored("captures", name), f"{self.folder}/captures: {name}")
