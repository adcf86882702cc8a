"""The corpus: which sequences of which model are compared, and which of them may set bounds.

In goes a canonical JSON index (`scripts/make_corpus.py` makes it), out comes a checked `Corpus`. Each model has every
group, each group its own distinct members and one prefill length, and each sequence a digest over all that it is.
Nothing is tokenized here. docs/reference/accuracy.md describes the file.
"""

from typing import Literal

import msgspec

from audit.errors import UsageError
from audit.stream import canonical, digest

__all__ = ["CALIBRATION", "FRESH", "GROUPS", "SPLITS", "Corpus", "Group", "Model", "Sequence", "Source"]

Group = Literal["original", "short", "long", "fresh"]
GROUPS: tuple[Group, ...] = ("original", "short", "long", "fresh")
# What a group is for: only calibration members set bounds, and only fresh ones give validation coverage.
SPLITS = {"original": "calibration", "short": "regression", "long": "regression", "fresh": "validation"}
CALIBRATION: Group = "original"
FRESH: Group = "fresh"
_FORMAT = 1


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, by keyword, and strict about its fields."""


class Source(_Shape, frozen=True, kw_only=True):
    """A text that sequences were cut from, and the licence that allows it."""

    name: str
    licence: str
    sha256: str


class Model(_Shape, frozen=True, kw_only=True):
    """One model: the digests of its quantized and of its decoded file, its vocabulary, its rows a sequence."""

    quantized: str
    decoded: str
    vocabulary: int
    rows: int


class Sequence(_Shape, frozen=True, kw_only=True):
    """One member of a group: what is prefilled, and the teacher ids that are forced after it."""

    id: str
    model: str
    group: Group
    split: str
    slot: int
    prefill: list[int]
    teacher: list[int]
    digest: str

    def expected_digest(self) -> str:
        """Return the digest over all other fields."""
        values = msgspec.to_builtins(self)
        del values["digest"]
        return digest(canonical(values))


class Corpus(_Shape, frozen=True, kw_only=True):
    """The index as a whole; `members` is how many sequences each group of each model has."""

    format: int
    kind: Literal["corpus"]
    name: str
    members: int
    sources: list[Source]
    models: dict[str, Model]
    sequences: list[Sequence]

    @classmethod
    def parse(cls, data: bytes, *, name: str) -> "Corpus":
        """Read an index strictly.

        Args:
            data: the bytes of the file.
            name: what an error calls it.

        Raises: UsageError that names the field or the sequence.
        """
        try:
            corpus = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{name} is no corpus: {error}") from error
        if corpus.format != _FORMAT:
            raise UsageError(f"{name} has format {corpus.format}, this program reads format {_FORMAT}")
        if canonical(msgspec.to_builtins(corpus)) != data:
            raise UsageError(f"{name} is not canonical JSON", hint="make it with scripts/make_corpus.py")
        problem = _problem(corpus)
        if problem is not None:
            raise UsageError(f"{name}: {problem}")
        return corpus

    def to_bytes(self) -> bytes:
        """Return the index as canonical JSON."""
        return canonical(msgspec.to_builtins(self))

    def members_of(self, model: str, group: str) -> list[Sequence]:
        """Return the sequences of one group of one model, by slot."""
        return [one for one in self.sequences if one.model == model and one.group == group]

    def longest(self, model: str) -> int:
        """Return the longest prefill of a model, in tokens."""
        return max(len(one.prefill) for one in self.sequences if one.model == model)


def _problem(corpus: Corpus) -> str | None:
    """Return the first thing that is wrong with an index, or None."""
    if corpus.members < 1 or not corpus.models or not corpus.sources:
        return "it needs members, models and sources"
    for sequence in corpus.sequences:
        problem = _sequence_problem(corpus, sequence)
        if problem is not None:
            return f"{sequence.model}: {sequence.id}: {problem}"
    for model in corpus.models:
        for group in GROUPS:
            members = corpus.members_of(model, group)
            if [one.slot for one in members] != list(range(corpus.members)):
                return f"{model}: {group} has {len(members)} members in slots other than 0 to {corpus.members - 1}"
            if len({len(one.prefill) for one in members}) != 1:
                return f"{model}: {group} has prefills of several lengths"
        mine = [one for one in corpus.sequences if one.model == model]
        for what in ("id", "prefill"):
            if len({str(getattr(one, what)) for one in mine}) < len(mine):
                return f"{model}: two sequences have the same {what}"
    return None


def _sequence_problem(corpus: Corpus, sequence: Sequence) -> str | None:
    model = corpus.models.get(sequence.model)
    if model is None:
        return "its model is not in the index"
    if sequence.id != f"{sequence.group}-{sequence.slot:02}":
        return f"it must be called {sequence.group}-{sequence.slot:02}"
    if sequence.split != SPLITS[sequence.group]:
        return f"its split is {sequence.split!r}, but {sequence.group} is {SPLITS[sequence.group]}"
    if not sequence.prefill or len(sequence.teacher) != model.rows:
        return f"it has {len(sequence.prefill)} prefill and {len(sequence.teacher)} teacher ids, not {model.rows}"
    if not all(0 <= token < model.vocabulary for token in [*sequence.prefill, *sequence.teacher]):
        return f"it has an id outside the vocabulary of {model.vocabulary}"
    if sequence.digest != sequence.expected_digest():
        return "its digest is not that of its fields"
    return None
