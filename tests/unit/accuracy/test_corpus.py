"""An index is read strictly: every model every group, every member in its place, every digest right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.accuracy.corpus import GROUPS, SPLITS, Corpus
from audit.errors import UsageError
from audit.stream import canonical, digest
from tests.integration.accuracy_study import MEMBERS, MODEL, PREFILLS, small_corpus

JSON = Any


def edited(change: Callable[[JSON], object], *, again: bool = True) -> bytes:
    """Return the index with an edit, the digests of its sequences made again."""
    values = json.loads(small_corpus().to_bytes())
    change(values)
    for one in values["sequences"] if again else []:
        one["digest"] = digest(canonical({key: value for key, value in one.items() if key != "digest"}))
    return canonical(values)


def test_an_index_is_read_back_as_it_was_written() -> None:
    """Members by slot, one length a group, and only original may set bounds."""
    data = small_corpus().to_bytes()
    corpus = Corpus.parse(data, name="corpus.json")
    assert corpus.to_bytes() == data
    for group in GROUPS:
        members = corpus.members_of(MODEL, group)
        assert [one.slot for one in members] == list(range(MEMBERS))
        assert {len(one.prefill) for one in members} == {PREFILLS[group]}
    assert [group for group in GROUPS if SPLITS[group] == "calibration"] == ["original"]
    assert corpus.longest(MODEL) == 14


def same_prefill(values: JSON) -> None:
    """Let a fresh member be an original one."""
    members = {one["id"]: one for one in values["sequences"]}
    members["fresh-01"]["prefill"] = [*members["original-01"]["prefill"], 5, 5, 5]
    members["fresh-02"]["prefill"] = [*members["original-01"]["prefill"], 5, 5, 5]


def set_first(key: str, value: JSON) -> Callable[[JSON], object]:
    """Set a field of the first sequence, which is original-00."""
    return lambda values: values["sequences"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values["sequences"].pop(), "fresh has 3 members"),
        (lambda values: values["sequences"].pop(5), "short has 3 members"),
        (same_prefill, "two sequences have the same prefill"),
        (set_first("split", "validation"), "its split is 'validation', but original is calibration"),
        (set_first("group", "middle"), "Invalid enum value"),
        (set_first("group", "fresh"), "it must be called fresh-00"),
        (set_first("model", "other"), "its model is not in the index"),
        (set_first("slot", 9), "it must be called original-09"),
        (set_first("prefill", []), "it has 0 prefill"),
        (set_first("prefill", [1, 2]), "prefills of several lengths"),
        (set_first("teacher", [5]), "1 teacher ids, not 12"),
        (set_first("teacher", [512] * 12), "outside the vocabulary of 512"),
        (set_first("note", "x"), "unknown field"),
        (lambda values: values.update(models={}), "it needs members, models and sources"),
        (lambda values: values.update(sources=[]), "it needs members, models and sources"),
        (lambda values: values.update(format=2), "has format 2"),
        (lambda values: values.update(kind="plan"), "Invalid enum value"),
    ],
)
def test_an_index_that_is_not_whole_is_refused(change: Callable[[JSON], object], words: str) -> None:
    """The error names the sequence or the field, whatever digests were made again."""
    with pytest.raises(UsageError, match=words):
        Corpus.parse(edited(change), name="corpus.json")


def test_a_member_that_changed_under_its_digest_is_refused() -> None:
    """The digest is over all that a sequence is."""
    with pytest.raises(UsageError, match="its digest is not that of its fields"):
        Corpus.parse(edited(lambda values: values["sequences"][0]["teacher"].reverse(), again=False), name="x")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_index_is_refused(data: bytes) -> None:
    """With one line that names the file."""
    with pytest.raises(UsageError, match=r"corpus\.json is no corpus"):
        Corpus.parse(data, name="corpus.json")


def test_other_spacing_is_refused() -> None:
    """The digest of an index is over its bytes, so that there is only one way to write it."""
    with pytest.raises(UsageError, match="not canonical JSON"):
        Corpus.parse(small_corpus().to_bytes().replace(b",", b", "), name="x")


def test_the_registered_corpus_has_the_full_shape(repository: Path) -> None:
    """Four models, four groups of 64 distinct members, prefills of their own lengths."""
    corpus = Corpus.parse((repository / "prereg/accuracy/corpus.json").read_bytes(), name="corpus.json")
    assert (corpus.members, len(corpus.models)) == (64, 4)
    for model, entry in corpus.models.items():
        lengths = {group: {len(one.prefill) for one in corpus.members_of(model, group)} for group in GROUPS}
        assert lengths == {"original": {48}, "short": {8}, "long": {192}, "fresh": {64}}
        rows = sum(len(corpus.members_of(model, group)) * entry.rows for group in GROUPS)
        assert rows == 256 * {"gemma3-270m-q4_k_m": 5, "smollm2-135m-q4_1": 16}.get(model, 64)
    assert {source.licence for source in corpus.sources} == {"MIT"}
