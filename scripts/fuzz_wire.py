"""Throw bytes at everything that reads a server's reply, and check what comes out.

    python -m scripts.fuzz_wire [--seconds 300] [--corpus DIR]

In: how long, and a folder for inputs that reached new code. The inputs are made by atheris (libFuzzer) where it is
installed (`python -m pip install 'determinism-audit[fuzz]'`), which follows the coverage of audit/wire.py. Out: how
many inputs were tried. An input that ends in anything but a reply or a named refusal, or whose reply does not hold
together, is written beside the corpus and ends the program with a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit import wire
from audit.errors import ReplyError
from audit.stream import Stream, canonical
from audit.wire import ABOVE_ZERO_NATS_MAX, Parsed

JSON = Any
VOCABULARY = 4
MESSAGE_MAX = 1_000
TOKENS = [2, 0, 3]
WHOLE: dict[str, JSON] = {
    "content": "xyz", "tokens": TOKENS, "id_slot": 1, "stop": True, "model": "m.gguf", "tokens_predicted": 3,
    "tokens_evaluated": 4, "generation_settings": {"seed": 7, "samplers": ["top_k"]}, "prompt": "abcd",
    "truncated": False, "stop_type": "limit",
    "timings": {"cache_n": 0, "prompt_n": 4, "prompt_ms": 1.5, "predicted_n": 3, "predicted_ms": 2.5, "draft_n": 0},
    "completion_probabilities": [
        {"id": token, "logprob": -0.5, "top_logprobs": [{"id": token, "logprob": -0.5}, {"id": 1, "logprob": -2.0}]}
        for token in TOKENS
    ],
}  # fmt: skip


def event(data: bytes) -> bytes:
    """Return one server-sent event."""
    return b"data: " + data + b"\n\n"


def chunks(whole: dict[str, JSON], *, vocabulary: int = 0) -> bytes:
    """Return the body of a streamed reply: an event a token, then the last; with whole rows where one asks."""
    body = b""
    for token, entry in zip(whole["tokens"], whole["completion_probabilities"], strict=True):
        top = [{"id": one, "logprob": -1.0 - one} for one in range(vocabulary)] or entry["top_logprobs"]
        said = {"stop": False, "tokens": [token], "completion_probabilities": [{**entry, "top_logprobs": top}]}
        body += event(json.dumps(said).encode())
    last = {key: value for key, value in whole.items() if key != "completion_probabilities"}
    return body + event(json.dumps({**last, "tokens": []}).encode())


def must(truth: object, promise: str) -> None:
    """Raise where a promise is broken."""
    if not truth:
        raise AssertionError(promise)


def _holds_together(parsed: Parsed) -> Parsed:
    """Check what every reply promises: ids for all steps, finite logprobs, holes marked, and bytes that read back."""
    rows, count = parsed.rows, len(parsed.tokens)
    if rows is not None:
        must(rows.shape == (count, VOCABULARY), "a row a token")
        must(all(map(math.isfinite, rows.ravel().tolist())), "finite rows")
    else:
        must([step.token for step in parsed.steps] == list(parsed.tokens), "a step a token")
    must(parsed.last.tokens_predicted in (None, count), "as many tokens as the server says")
    kept = Stream(5, parsed.steps)
    must(Stream.from_bytes(kept.to_bytes()) == kept, "bytes that read back")
    bare = sum(not step.top or step.logprob is None for step in parsed.steps)
    must(kept.holes >= bare, "each step without an entry or its own logprob is a hole")
    for step in parsed.steps:
        for logprob in (step.logprob, *(nats for _, nats in step.top)):
            must(logprob is None or logprob <= ABOVE_ZERO_NATS_MAX, "a logprob or nothing")
    canonical(parsed.last.generation_settings)
    return parsed


def _streamed(data: bytes, cut: int, vocabulary: int | None) -> Parsed:
    sink = wire.EventSink(vocabulary=vocabulary)
    for start in range(0, len(data), cut):
        sink.feed(data[start : start + cut])
    return _holds_together(sink.finish())


def questions() -> dict[str, Callable[[bytes, int], Parsed | None]]:
    """Return what is asked of an input, by name."""

    def document(data: bytes, _cut: int) -> None:
        canonical(wire.decode(data, what="x"))

    def error(data: bytes, _cut: int) -> None:
        must(len(wire.error_message(data)) <= MESSAGE_MAX, "a short message")

    return {
        "whole": lambda data, _cut: _holds_together(wire.read_whole(data)),
        "events": lambda data, cut: _streamed(data, cut, None),
        "rows": lambda data, cut: _streamed(data, cut, VOCABULARY),
        "error": error,
        "document": document,
    }


def ask(question: str, data: bytes, *, cut: int = 64) -> Parsed | None:
    """Ask one question of an input: the reply that holds together, or None for a named refusal.

    Raises: whatever else happens, which is a bug.
    """
    said = ""
    try:
        return questions()[question](data, cut)
    except ReplyError as refusal:
        said = refusal.message
    must(said and len(said) <= MESSAGE_MAX, "a refusal with a name")
    return None


def fuzz(seconds: int, corpus: Path) -> None:
    """Let atheris make inputs; it ends the process itself."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports():
        importlib.reload(wire)
    names = list(questions())
    corpus.mkdir(parents=True, exist_ok=True)
    whole, streamed = json.dumps(WHOLE).encode(), chunks(WHOLE)
    for number, seed in enumerate(
        (whole, streamed, chunks(WHOLE, vocabulary=VOCABULARY), b'{"error":{"message":"m"}}')
    ):
        for at in range(len(names)):
            (corpus / f"seed-{at}-{number}").write_bytes(bytes([at, 16]) + seed)

    def one(data: bytes) -> None:
        if len(data) > 1:
            ask(names[data[0] % len(names)], data[2:], cut=1 + data[1])

    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", str(corpus)], one
    )
    atheris.Fuzz()


def main() -> int:
    """Fuzz."""
    parser = argparse.ArgumentParser(description="Throw bytes at everything that reads a server's reply.")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, default=Path("results/local/fuzz-corpus"))
    options = parser.parse_args()
    try:
        fuzz(options.seconds, options.corpus)
    except ModuleNotFoundError as error:
        print(f"error: {error}; python -m pip install 'determinism-audit[fuzz]'", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
