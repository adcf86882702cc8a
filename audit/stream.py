"""What one reply said, step by step, as canonical bytes and digests.

In goes a list of steps (token id, its logprob, the top-k), out come the bytes that are hashed and stored, and back.
This module also owns canonical JSON, because every digest of a record hangs on it; docs/reference/record.md is its
specification. It compares nothing and knows no server.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from audit.errors import EvidenceError

__all__ = ["FORMAT", "Step", "Stream", "canonical", "digest", "text_digest", "token_digest"]

FORMAT = 1
_DIALECT = "completion"
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    r"""Encode `value` as canonical JSON: sorted keys, no spaces, ASCII, floats as `repr`, one `\n`.

    The standard library's encoder is used although msgspec is 20 times faster: msgspec writes 36 % of random float32
    values in another form.

    Raises: ValueError for NaN and infinities, TypeError for what JSON cannot hold.
    """
    return _ENCODER.encode(value).encode("ascii") + b"\n"


def digest(data: bytes | memoryview) -> str:
    """Return `sha256:` and the 64 hex digits of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    """Return the digest of a text without its spaces.

    Some tokenizers drop spaces before punctuation when a server echoes a prompt, and keep them in /detokenize.
    """
    return digest(text.replace(" ", "").encode("utf-8", "surrogatepass"))


def token_digest(tokens: Sequence[int]) -> str:
    """Return the digest of a token stream: the canonical JSON of its list of ids."""
    return digest(canonical(list(tokens)))


class Step(NamedTuple):
    """One generated position.

    `logprob` is in nats, None at a hole; `top` holds (token id, logprob in nats or None) in the server's order.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float | None], ...]

    def whole(self, n_probs: int) -> bool:
        """Tell whether every logprob is there, and as many entries as were asked for, each id once."""
        known = self.logprob is not None and all(logprob is not None for _, logprob in self.top)
        return known and len({token for token, _ in self.top}) == len(self.top) >= n_probs


class Stream(NamedTuple):
    """The ordered steps of one reply, with the `n_probs` that they were asked with.

    `n_probs` is part of the identity: for equal logits another `n_probs` gives other logprobs, since the server
    sums the softmax over a partially sorted vector.
    """

    n_probs: int
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token stream."""
        return tuple(step.token for step in self.steps)

    @property
    def holes(self) -> int:
        """How many steps lack something although logprobs were asked for: missing data is equal to nothing."""
        return sum(not step.whole(self.n_probs) for step in self.steps) if self.n_probs else 0

    def header(self) -> str:
        """Return the header line, without its end."""
        return _ENCODER.encode({"dialect": _DIALECT, "format": FORMAT, "n_probs": self.n_probs})

    def to_bytes(self) -> bytes:
        """Return the canonical form: a header line, then one line a step."""
        lines = [self.header(), *(_ENCODER.encode(step) for step in self.steps)]
        return ("\n".join(lines) + "\n").encode("ascii")

    @property
    def logprob_digest(self) -> str:
        """The digest of the whole stream: equal only if every id and every logprob is."""
        return digest(self.to_bytes())

    @property
    def token_digest(self) -> str:
        """The digest of the ids alone."""
        return token_digest(self.tokens)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Stream":
        """Read a stream back from its canonical form.

        Raises: EvidenceError where the bytes are not exactly what `to_bytes` writes.
        """
        header, _, lines = data.partition(b"\n")
        try:
            stream = cls(int(json.loads(header)["n_probs"]), tuple(_READER.decode_lines(lines)))
            same = stream.header().encode("ascii") == header and _as_written(stream.steps) == lines
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise EvidenceError(f"a stream of {len(data)} bytes cannot be read: {error}") from error
        if not same:
            raise EvidenceError(f"a stream of {len(data)} bytes is not in canonical form")
        return stream


_READER = msgspec.json.Decoder(Step)
_WRITER = msgspec.json.Encoder()
# What msgspec writes otherwise than `repr`, with the same digits: numbers below 1e-4 and from 1e16 on.
_OTHERWISE = re.compile(rb"(?<![\d.])(?:0\.0000\d+|\d(?:\.\d+)?e-?\d+)")


def _as_written(steps: Sequence[Step]) -> bytes:
    """Return the lines that `to_bytes` writes for finite numbers, several times as fast: what reading compares with."""
    lines = _WRITER.encode_lines(steps)
    if b"e" in lines or b"0.0000" in lines:
        lines = _OTHERWISE.sub(lambda number: repr(float(number[0])).encode("ascii"), lines)
    return lines
