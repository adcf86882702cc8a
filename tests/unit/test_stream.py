"""Canonical JSON is that of docs/reference/record.md; a stream's digests change with what it says and nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import EvidenceError
from audit.stream import Step, Stream, canonical, digest, token_digest

STREAM = Stream(
    2,
    (
        Step(7, -0.5, ((7, -0.5), (9, -1.25))),
        Step(8, None, ()),
        Step(9, -1e-07, ((9, -1e-07), (3, None))),
    ),
)
BYTES = (
    b'{"dialect":"completion","format":1,"n_probs":2}\n'
    b"[7,-0.5,[[7,-0.5],[9,-1.25]]]\n"
    b"[8,null,[]]\n"
    b"[9,-1e-07,[[9,-1e-07],[3,null]]]\n"
)
nats = st.floats(allow_nan=False, allow_infinity=False) | st.none()
tokens = st.integers(min_value=0, max_value=2**31)
streams = st.builds(
    Stream,
    st.integers(min_value=0, max_value=1000),
    st.lists(st.builds(Step, tokens, nats, st.lists(st.tuples(tokens, nats), max_size=4).map(tuple)), max_size=6).map(
        tuple
    ),
)


def golden(repository: Path) -> list[tuple[str, str]]:
    """Return the text and the double in hex of every golden value of the page."""
    page = (repository / "docs" / "reference" / "record.md").read_text(encoding="ascii")
    section = page.split("\n## Golden values\n", 1)[1]
    return re.findall(r"^    (\S+) +([0-9a-f]{16})$", section, flags=re.MULTILINE)


def test_the_golden_values_of_the_page_are_what_is_written(repository: Path) -> None:
    """Each of the forty doubles is written as its text, and the text reads back as it, sign of zero included."""
    values = golden(repository)
    assert len(values) == 40
    assert len(set(values)) == 40
    for text, double in values:
        (value,) = struct.unpack(">d", bytes.fromhex(double))
        assert canonical(value) == text.encode() + b"\n"
        assert struct.pack(">d", json.loads(text)).hex() == double


def test_canonical_json_is_sorted_dense_ascii_and_ends_with_a_newline() -> None:
    """Keys by code point, no spaces, escapes above ASCII with surrogate pairs, integers as such."""
    value = {"b": [1, 1.0, True, None], "B": "\u00e9\U0001f600\n", "a": {}}
    assert canonical(value) == b'{"B":"\\u00e9\\ud83d\\ude00\\n","a":{},"b":[1,1.0,true,null]}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_written(value: float) -> None:
    """NaN and infinities do not occur in a record."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical([value])


def test_a_digest_is_sha256_with_its_name() -> None:
    """The digest of a token stream is that of the list of ids."""
    assert digest(b"abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    assert token_digest([1, 20]) == digest(b"[1,20]\n")


def test_a_stream_is_written_one_step_a_line() -> None:
    """The bytes are a header and a line a step; the file's name is their SHA-256."""
    assert STREAM.to_bytes() == BYTES
    assert STREAM.logprob_digest == digest(BYTES)
    assert STREAM.token_digest == token_digest([7, 8, 9])
    assert STREAM.tokens == (7, 8, 9)


def test_steps_without_entry_are_holes_only_where_logprobs_were_asked_for() -> None:
    """A stream asked for with n_probs 0 has no entries and no holes."""
    assert Stream(2, (Step(7, None, ()),)).holes == 1
    assert Stream(0, (Step(7, None, ()),)).holes == 0


LACKING = {
    "no logprob of its own": Step(7, None, ((7, -0.5), (9, -1.25))),
    "a null in the top-k": Step(7, -0.5, ((7, -0.5), (9, None))),
    "a short top-k": Step(7, -0.5, ((7, -0.5),)),
    "no top-k": Step(7, 0.0, ()),
    "an id twice": Step(7, -0.5, ((7, -0.5), (7, -0.5))),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_step_that_lacks_anything_is_a_hole(what: str) -> None:
    """Missing, null, short and duplicate data is equal to nothing, so such a stream is not its own copy."""
    whole = Step(7, -0.5, ((7, -0.5), (9, -1.25)))
    assert (Stream(2, (whole,)).holes, Stream(2, (whole, LACKING[what], whole)).holes) == (0, 1)


CHANGES = {
    "n_probs": Stream(3, STREAM.steps),
    "a token": Stream(2, (STREAM.steps[0]._replace(token=6), *STREAM.steps[1:])),
    "a logprob": Stream(2, (STREAM.steps[0]._replace(logprob=-0.25), *STREAM.steps[1:])),
    "an id of the top-k": Stream(2, (STREAM.steps[0]._replace(top=((7, -0.5), (2, -1.25))), *STREAM.steps[1:])),
    "a logprob of the top-k": Stream(2, (STREAM.steps[0]._replace(top=((7, -0.5), (9, -1.0))), *STREAM.steps[1:])),
    "the order of the top-k": Stream(2, (STREAM.steps[0]._replace(top=((9, -1.25), (7, -0.5))), *STREAM.steps[1:])),
    "the order of steps": Stream(2, STREAM.steps[::-1]),
    "the number of steps": Stream(2, STREAM.steps[:2]),
    "a hole": Stream(2, (STREAM.steps[0], Step(8, -1.0, ((8, -1.0),)), STREAM.steps[2])),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_takes_part_in_the_digest_changes_it(what: str) -> None:
    """Everything that a reply said about a step, and n_probs, is part of a stream's identity."""
    assert CHANGES[what].logprob_digest != STREAM.logprob_digest


@pytest.mark.parametrize("step", range(3))
def test_one_ulp_anywhere_is_another_stream_with_the_same_tokens(step: int) -> None:
    """The smallest change of one float32 changes the logprob digest and leaves the token digest."""
    values = np.array([-0.5, -1.2345678, -1.1920929e-07], dtype=np.float32)
    moved = values.copy()
    moved[step] = np.nextafter(moved[step], np.float32(-np.inf), dtype=np.float32)
    one, other = (Stream(1, tuple(Step(5, float(x), ((5, float(x)),)) for x in numbers)) for numbers in (values, moved))
    assert one.logprob_digest != other.logprob_digest
    assert one.token_digest == other.token_digest


def test_zero_and_minus_zero_are_different_and_both_kept() -> None:
    """-0.0 is a logprob of its own."""
    plus, minus = (Stream(1, (Step(5, zero, ((5, zero),)),)) for zero in (0.0, -0.0))
    assert plus.logprob_digest != minus.logprob_digest
    assert repr(Stream.from_bytes(minus.to_bytes()).steps[0].logprob) == "-0.0"


def test_how_a_stream_is_held_in_memory_does_not_matter() -> None:
    """Lists instead of tuples, or a stream read back, have the same digests; so does the same number as a float32."""
    lists = Stream(2, tuple(Step(s.token, s.logprob, [list(entry) for entry in s.top]) for s in STREAM.steps))  # type: ignore[arg-type]
    assert lists.logprob_digest == STREAM.logprob_digest
    assert Stream.from_bytes(BYTES).logprob_digest == STREAM.logprob_digest
    assert token_digest((7, 8, 9)) == token_digest([7, 8, 9]) == STREAM.token_digest
    assert canonical(float(np.float32(0.1))) == canonical(0.10000000149011612)


@given(streams)
def test_every_stream_is_read_back_as_it_was_written(stream: Stream) -> None:
    """Reading inverts writing, to the bit."""
    data = stream.to_bytes()
    again = Stream.from_bytes(data)
    assert again == stream
    assert again.to_bytes() == data
    assert data.isascii()


@pytest.mark.parametrize(
    "line",
    [
        b"[7,-0.50,[]]\n",
        b"[7, -0.5,[]]\n",
        b"[7,-1,[]]\n",
        b"[7,-5e-1,[]]\n",
        b"[7.0,-0.5,[]]\n",
        b"[true,-0.5,[]]\n",
        b'["7",-0.5,[]]\n',
        b'[7,"-0.5",[]]\n',
        b"[7,-0.5,[[7,-1]]]\n",
        b"[7,-0.5,[[7.0,-1.0]]]\n",
        b"[7,-0.5,[[7,-1.0,0]]]\n",
        b"[7,-0.5,{}]\n",
        b"[7,-0.5]\n",
        b"[7,NaN,[]]\n",
        b"[7,1e999,[]]\n",
        b"[7,%s,[]]\n" % (b"1" * 400),
        b"[1e999,-0.5,[]]\n",
        b"[%s,-0.5,[]]\n" % (b"1" * 5000),
        b"[null,-0.5,[]]\n",
        b'{"a":1}\n',
        b"[7,-0.5,[]]\r\n",
        b"[7,-0.5,[]]",
        b"\n",
        b"[" * 100_000 + b"\n",
        b"[7,-0.5,[]]\xff\n",
        b"7\n",
    ],
)
def test_a_step_that_is_not_canonical_is_refused(line: bytes) -> None:
    """Only the bytes that writing gives are read; the error says that a stream is meant."""
    header = b'{"dialect":"completion","format":1,"n_probs":1}\n'
    assert Stream.from_bytes(header + b"[7,-0.5,[]]\n").tokens == (7,)
    with pytest.raises(EvidenceError, match="a stream of"):
        Stream.from_bytes(header + line)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\n",
        b'{"dialect":"completion","format":1}\n',
        b'{"dialect":"completion","format":2,"n_probs":1}\n',
        b'{"dialect":"other","format":1,"n_probs":1}\n',
        b'{"dialect":"completion","format":1,"n_probs":true}\n',
        b'{"dialect":"completion","format":1,"n_probs":1.0}\n',
        b'{"dialect":"completion","format":1,"n_probs":1,"more":0}\n',
        b'{"format":1,"dialect":"completion","n_probs":1}\n',
        b"[1]\n",
    ],
)
def test_a_header_that_is_not_canonical_is_refused(header: bytes) -> None:
    """Another dialect or format is not read as if it were this one."""
    with pytest.raises(EvidenceError, match="a stream of"):
        Stream.from_bytes(header + b"[7,-0.5,[]]\n")


def test_reading_writes_every_number_as_writing_does(repository: Path) -> None:
    """Two encoders agree on 8,000 float32 of all exponents, as many doubles, and the neighbours of where one differs.

    Reading refuses what it would write otherwise, so that one number written differently were a stream refused.
    """
    random = np.random.default_rng(7)
    singles = random.integers(0, 2**32, 8_000, dtype=np.uint32).view(np.float32)
    doubles = random.integers(0, 2**64, 8_000, dtype=np.uint64).view(np.float64)
    edges = [10.0**power for power in range(-30, 30)] + [float(text) for text, _ in golden(repository)]
    near = [one for edge in edges for one in (edge, math.nextafter(edge, 1e300), math.nextafter(edge, -1), 100 + edge)]
    for value in filter(math.isfinite, [*singles.tolist(), *doubles.tolist(), *near, *(-one for one in near)]):
        stream = Stream(1, (Step(7, value, ((0, value), (10_000, value))),))
        assert Stream.from_bytes(stream.to_bytes()) == stream


def test_steps_that_share_a_line_or_span_two_are_refused() -> None:
    """Together they hold as many steps as lines, and joined they read like the canonical ones."""
    header = BYTES.splitlines(keepends=True)[0]
    one, two = b"[7,-0.5,[[7,-0.5],[8,-1.0]]]\n", b"[9,-0.5,[[9,-0.5],[8,-1.0]]]\n"
    assert len(Stream.from_bytes(header + one + two).steps) == 2
    place = two.index(b",[8")
    for lines in (
        one.removesuffix(b"\n") + b"," + two[:place] + b"\n" + two[place + 1 :],
        one.removesuffix(b"\n") + b"," + two,
        one[:15] + b"\n" + one[15:] + two,
    ):
        with pytest.raises(EvidenceError):
            Stream.from_bytes(header + lines)
