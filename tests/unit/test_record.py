"""Every shape of the record is written with exactly the keys of docs/reference/record.md, and read back strictly."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from audit import record
from audit.errors import EvidenceError
from audit.record import line_from_bytes, to_bytes
from audit.stream import digest

SOME = digest(b"")
PROCESS = record.Process(start="17", media_marker=None)
ATTESTED = record.Attested(
    build_info="b1",
    model="m.gguf",
    models=SOME,
    n_ctx=1024,
    process=PROCESS,
    props=SOME,
    server_header="llama.cpp",
    slots=8,
    vocabulary=512,
)
ROWS = record.RowsFact(file=SOME, shape=(2, 512), digests=[SOME, SOME])
JOINED = record.Joined(logprob=SOME, token=SOME, steps=2, holes=0)
REPLY = record.Reply(
    logprob=SOME,
    token=SOME,
    steps=2,
    holes=0,
    rows=ROWS,
    joined=JOINED,
    settings=SOME,
    prompt_echo=SOME,
    model="m.gguf",
    id_slot=3,
    tokens_evaluated=20,
    tokens_predicted=2,
    cache_n=0,
    prompt_n=20,
    prompt_ms=1.5,
    predicted_n=2,
    predicted_ms=0.5,
    draft_n=None,
    truncated=False,
    stop_type="limit",
    above_zero=0,
    saturated=1,
)
NOTHING_SAID = msgspec.convert(
    {
        field.name: None if field.name not in {"token", "steps", "holes", "above_zero", "saturated"} else 0
        for field in msgspec.structs.fields(record.Reply)
    }
    | {"token": SOME},
    record.Reply,
)
LINK: dict[str, Any] = {"n": 4, "prev": SOME, "at_ns": 10**15}
UNIT: dict[str, Any] = {"server": "a", "unit": "u/w0", "attempt": 1}
METRICS: dict[str, str | None] = {"n_decode_total": "17", "requests_deferred": None}
TIMES: dict[str, Any] = {"sent_ns": 1, "first_byte_ns": 2, "last_byte_ns": 3, "status": 200}
LINES = {
    "begin": record.Begin(**LINK, process=0, wall_ns=10**18),
    "resume": record.Resume(**LINK, process=1, wall_ns=10**18, cut=12),
    "server": record.ServerLine(**LINK, server="a", phase="restart", attested=ATTESTED, declaration=SOME),
    "snapshot": record.Snapshot(
        **LINK,
        **UNIT,
        when="before",
        health=None,
        slots=[(0, False, None), (1, True, 20)],
        metrics=METRICS,
        props=SOME,
        process=PROCESS,
    ),
    "skip": record.Skip(**LINK, server="a", unit="u/w0", reason="slots", needed=8, available=2),
    "wave": record.Wave(**LINK, **UNIT, members=["u/w0/0", "u/w0/1"], delays_ns=[2_000_000, 0]),
    "invoke": record.Invoke(**LINK, **UNIT, trial="u/w0/0", part=0, request=SOME, slot=-1),
    "complete": record.Complete(**LINK, **UNIT, trial="u/w0/0", part=0, **TIMES, failure=None, reply=REPLY),
    "interrupt": record.Interrupt(**LINK, reason="stopped by the user"),
    "end": record.End(**LINK, reason="finished"),
}
FAILURE = record.Failure(kind="timeout", message="no answer", body=None)
UNANSWERED: dict[str, Any] = {"sent_ns": 1, "first_byte_ns": None, "last_byte_ns": None, "status": None}
OTHERS = {
    "an unoffered snapshot": msgspec.structs.replace(LINES["snapshot"], slots=None, metrics=None, unit=None),
    "a failure": record.Complete(**LINK, **UNIT, trial="t", part=0, **UNANSWERED, failure=FAILURE, reply=None),
    "a taciturn reply": record.Complete(**LINK, **UNIT, trial="t", part=0, **TIMES, failure=None, reply=NOTHING_SAID),
}
# The keys of each line beside line, n, prev and at_ns, as the page lists them.
KEYS = {
    "begin": "process wall_ns",
    "resume": "process wall_ns cut",
    "server": "server phase attested declaration",
    "snapshot": "server unit attempt when health slots metrics props process",
    "skip": "server unit reason needed available",
    "wave": "server unit attempt members delays_ns",
    "invoke": "server trial unit attempt part request slot",
    "complete": "server trial unit attempt part sent_ns first_byte_ns last_byte_ns status failure reply",
    "interrupt": "reason",
    "end": "reason",
}
REPLY_KEYS = (
    "logprob token steps holes rows joined settings prompt_echo model id_slot tokens_evaluated tokens_predicted "
    "cache_n prompt_n prompt_ms predicted_n predicted_ms draft_n truncated stop_type above_zero saturated"
)


def decoded(line: record.Line) -> dict[str, Any]:
    """Return a line as plain JSON."""
    value: dict[str, Any] = json.loads(to_bytes(line))
    return value


def encoded(value: dict[str, Any]) -> bytes:
    """Return plain JSON as a line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("line", [*LINES.values(), *OTHERS.values()], ids=[*LINES, *OTHERS])
def test_every_line_is_read_back_as_it_was_written(line: record.Line) -> None:
    """Reading inverts writing, and the bytes are one canonical line."""
    data = to_bytes(line)
    assert line_from_bytes(data) == line
    assert data == encoded(json.loads(data))
    assert data.count(b"\n") == 1


@pytest.mark.parametrize("kind", LINES)
def test_a_line_has_exactly_the_keys_of_the_format(kind: str) -> None:
    """No more and no fewer than docs/reference/record.md lists."""
    value = decoded(LINES[kind])
    assert value["line"] == kind
    assert set(value) == {"line", "n", "prev", "at_ns", *KEYS[kind].split()}


def test_a_reply_has_exactly_the_keys_of_the_format() -> None:
    """What the server did not say is null and not left out."""
    full, empty = decoded(LINES["complete"])["reply"], decoded(OTHERS["a taciturn reply"])["reply"]
    assert set(full) == set(empty) == set(REPLY_KEYS.split())
    assert empty["id_slot"] is empty["rows"] is None


def test_no_line_says_that_anything_was_identical() -> None:
    """Facts only: no key of any line is a judgement."""
    text = " ".join([*KEYS.values(), REPLY_KEYS, *(field for line in LINES.values() for field in decoded(line))])
    assert not {"identical", "passed", "diverged", "verdict", "sound"} & set(text.split())


def nested(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401 - any JSON value
    """Return the path of every object of a JSON value whose keys are fixed."""
    found = [path] if isinstance(value, dict) and path[-1:] != ("metrics",) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [inner for key, item in items for inner in nested(item, (*path, key))]


@pytest.mark.parametrize("kind", LINES)
def test_an_unknown_or_missing_field_is_refused_at_any_depth(kind: str) -> None:
    """A field that this format does not have, or lacks, makes the line unreadable, in nested objects too."""
    for path in nested(decoded(LINES[kind])):
        value = decoded(LINES[kind])
        place: Any = value
        for key in path:
            place = place[key]
        place["novel"] = 1
        with pytest.raises(EvidenceError, match="unknown field `novel`"):
            line_from_bytes(encoded(value))
        del place["novel"]
        for key in set(place) - {"line", "n", "prev", "at_ns"}:
            kept = place.pop(key)
            with pytest.raises(EvidenceError, match=f"missing required field `{key}`"):
                line_from_bytes(encoded(value))
            place[key] = kept


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("server", "phase", "begin"),
        ("snapshot", "when", "during"),
        ("snapshot", "slots", [[0, 0, None]]),
        ("snapshot", "metrics", {"n_decode_total": 17}),
        ("skip", "reason", "mood"),
        ("invoke", "slot", 1.5),
        ("invoke", "attempt", True),
        ("complete", "status", "200"),
        ("end", "line", "passed"),
        ("end", "line", 3),
        ("begin", "n", "0"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(kind: str, field: str, value: object) -> None:
    """A word or a type that the format does not know is named as unreadable."""
    with pytest.raises(EvidenceError, match="a history line of format 1 cannot be read"):
        line_from_bytes(encoded(decoded(LINES[kind]) | {field: value}))


@pytest.mark.parametrize("data", [b"", b"\n", b"[]\n", b"{}\n", b'{"line":"end"', b"\xff\n", b"[" * 100_000])
def test_what_is_no_line_is_refused(data: bytes) -> None:
    """Whatever stands in the history, it is a line or an EvidenceError that shows how it begins."""
    with pytest.raises(EvidenceError, match="cannot be read"):
        line_from_bytes(data)


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    """The manifest and its parts survive, and an unknown field is refused."""
    registration = record.Registration(
        name="x", digest=SOME, files={"plan.json": {"sha256": SOME, "blob": "0"}}, commit=None, status="uncommitted"
    )
    manifest = record.Manifest(
        format=1,
        kind="audit",
        plan=SOME,
        registered=SOME,
        registration=registration,
        program={"name": "determinism-audit", "version": "0", "commit": None, "dirty": None},
        dependencies={"numpy": "2"},
        python="CPython 3.11",
        machine={"cpu": None},
        servers=[record.ServerEntry(label="a", owned=True, attested=ATTESTED, declaration=None)],
        prompts={"a": {"p": SOME}},
    )
    data = to_bytes(manifest)
    assert msgspec.json.decode(data, type=record.Manifest) == manifest
    assert set(json.loads(data)) == set(
        "format kind plan registered registration program dependencies python machine servers prompts".split()  # noqa: SIM905 - as the page
    )
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(data.replace(b'"format":1', b'"format":1,"novel":1'), type=record.Manifest)


def test_shapes_cannot_be_changed() -> None:
    """A fact that was made is not edited."""
    with pytest.raises(AttributeError):
        LINES["end"].reason = "other"  # type: ignore[attr-defined]
