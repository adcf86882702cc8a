"""Verify stored audit runs, sharing no code with the program that made them.

    python3 -I -S scripts/verify.py RUN [RUN ...] [--json] [--assert] [--expect sha256:...]
        [--level digests] [--repo DIR] [--statement]

In: run folders, as docs/reference/record.md describes them. Out: a line a check, the cells, the predictions, one last
sentence. It needs Python 3.9 and its standard library, opens files only for reading, and reaches no network.

What it proves. Every byte is what the seal says; the history is one unbroken chain that begins at the manifest; every
request that the plan asks for, and no other, was recorded, in the order, with the seeds and with the very bytes that
the registered digest dictates; every token digest and count follows from the stored streams; and each verdict and
prediction of findings.json is what docs/reference/verdicts.md makes of these facts, computed here by other methods:
trials are sorted into classes by digest, and bounds are found by bisection on the binomial sum. With --repo also that
the registration was committed before the program that ran it. It proves nothing about who typed the facts: compare the
seal's digest with a deposited one (--expect).

It deliberately repairs nothing, guesses nothing, and reads no file that the run does not list.

Exit codes: 0 sound; 1 only with --assert: a prediction is refuted; 2 no such folder, not a run, of a kind that is not
known here, or unsealed; 3 inconclusive (with --assert also: a prediction is); 4 the record contradicts itself or is
refused as input; 5 a bug in this file. Of several runs the worst, in the order 5, 4, 2, 3, 1, 0.
"""

from __future__ import annotations

import argparse
import bisect
import functools
import hashlib
import io
import itertools
import json
import math
import operator
import os
import re
import struct
import subprocess
import sys
import traceback
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

if sys.version_info < (3, 9):
    sys.stderr.write("error: verify.py needs Python 3.9 or newer, this is %d.%d\n" % sys.version_info[:2])
    sys.exit(2)

JSON = Any  # what json.loads returns
T = TypeVar("T")
SEVERITY = (5, 4, 2, 3, 1, 0)

# 1. The checks. Each has a name, a count and a sentence; mutation tests put a name into DISABLED. ---------------------

# A failed one of these is a contradiction, or where nothing can be read after it a refusal: exit 4.
CONTRADICTIONS = {
    "format": "documents of a format that is known here",
    "json": "documents and lines that are JSON, with no key twice and every number finite",
    "canonical": "documents and lines that are canonical JSON to the byte",
    "shape": "documents, lines and steps with exactly the fields and types of the format",
    "paths": "paths that stay in the folder, plain files and no links",
    "files": "files, each in one list and each where its list says",
    "bytes": "files whose bytes have the listed SHA-256",
    "expect": "seal that is the deposited one",
    "manifest": "statements of the manifest about plan, servers and files",
    "registration": "statements about registered files: SHA-256, git blob, registered digest",
    "repository": "statements of git: ancestor, blobs, a commit of its own",
    "prompts": "frozen prompts against the plan",
    "chain": "history lines, each numbered and naming the digest of the one before",
    "clock": "times that do not run backwards",
    "lines": "history lines at a place where they may stand",
    "order": "units in the order that the registered digest dictates, all of them",
    "attempts": "attempts that were due: numbered, none after a success",
    "pairs": "invoke and complete lines that belong together, overlapping only within a wave",
    "skips": "skipped units with a reason that holds",
    "requests": "request bodies, equal to the byte to what the plan asks for",
    "store": "files named by the record and stored, stored and named",
    "streams": "replies whose digests and counts follow from their stream",
    "rows": "replies whose digests and counts follow from their rows",
    "findings": "fields of findings.json, computed again",
}
# A failed one of these decides over verdicts, as docs/reference/verdicts.md says; it contradicts nothing.
JUDGEMENTS = {
    "idle": "units before and after which the server was idle",
    "accounting": "units whose tokens are all that the server counted",
    "same server": "units before and after which it was the same server",
    "canary": "trials of a server whose canaries agree",
    "prompt echo": "replies that echo the prompt that was sent",
    "other baseline": "trials that are not another prompt's baseline",
    "cache": "trials that found the prompt cache as their condition asks",
    "slot": "trials answered by the slot that was asked for",
    "windows": "trials whose processing windows overlap as their condition asks",
    "slots": "trials of waves that filled the slots",
    "busy": "trials of waves that kept the slots busy",
    "queue": "trials of waves whose surplus waited",
    "process": "trials that were the first of a new process",
    "neighbour": "trials beside a slot that held the neighbour",
    "ids": "forced trials whose tokens are the reference's",
    "prefix": "trials whose prefixes grow by one token",
    "greedy": "greedy replies in which no other token was more probable",
    "settings": "replies whose echoed settings are the ones sent",
    "counts": "replies whose token counts agree with prompt and steps",
    "length": "trials of at least 8 steps on both sides",
    "solo slot": "wave trials on a slot that agrees with the baseline when alone",
}
# What records of the kinds accuracy and remedy add to the first list.
COMPARISONS = {
    "corpus": "statements of the corpus: members, splits, digests of sequences",
    "captures": "captures that are complete, of one build a side, and under the plan of the check",
    "inputs": "input files that were the same before and after",
    "bounds": "bounds that follow from calibration rows and were known to each capture that had to know them",
    "metrics": "metrics that are complete, and follow from the rows where these are here",
    "starts": "starts of a server that left the sealed audit that is named, asked as their role says",
}
DISABLED: set[str] = set()


class RefusedError(Exception):
    """The record cannot be read as one (check, message): exit 4."""


class ForeignError(Exception):
    """There is no sealed run of a known kind to verify: exit 2."""


class Ledger:
    """Counts of every check of one run, and what was found wrong."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)  # a Counter takes twice as long to count
        self.failures: Counter[str] = Counter()
        self.unchecked: Counter[str] = Counter()
        self.contradictions: list[tuple[str, str]] = []

    def judge(self, name: str, truth: JSON) -> bool:
        """Count a check and return whether it held: all that is needed where it only decides over a verdict."""
        self.counts[name] += 1
        if truth or name in DISABLED:
            return True
        self.failures[name] += 1
        return False

    def hold(self, name: str, truth: JSON, message: str = "", *values: object) -> None:
        """Count a check; where it fails, note a contradiction in the words of `message`, filled with `values`."""
        if not self.judge(name, truth):
            self.contradictions.append((name, message.format(*values)))

    def need(self, name: str, truth: JSON, message: str, *values: object) -> None:
        """Count a check without which nothing further can be read."""
        if not self.judge(name, truth):
            raise RefusedError(name, message.format(*values))

    def given(self, name: str, value: T | None, message: str, *values: object) -> T:
        """Count a check that something is there, and return it; to disable it does not help."""
        self.need(name, value is not None, message, *values)
        if value is None:
            raise RefusedError(name, "not there")
        return value


# 2. Strict reading: JSON, canonical text, shapes, digests. ------------------------------------------------------------

LIMIT = 2**63
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _pairs(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is beyond every double")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_whole, parse_float=_real, parse_constant=_constant)


def _written(text: str) -> float:
    value = float(text)
    if repr(value) != text:
        raise ValueError(f"{text[:20]} would be written otherwise")
    return value


PLAIN = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_written, parse_constant=_constant)
MINUS_ZERO = re.compile(r"-0[],}\n]")


def encode(value: JSON) -> bytes:
    """Return the canonical JSON of `value`."""
    return (ENCODER.encode(value) + "\n").encode("ascii")


def decode(data: bytes, where: str, ledger: Ledger, *, canonical: bool = True) -> JSON:
    """Read one JSON document strictly."""
    value, again, problem = None, b"", ""
    try:
        value = DECODER.decode(data.decode("ascii" if canonical else "utf-8"))
        again = encode(value)
    except (ValueError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
    ledger.need("json", not problem, "{}: {}", where, problem)
    ledger.need("canonical", again == data or not canonical, "{}: not in canonical form", where)
    return value


def plain(data: bytes) -> JSON:
    """Return the value of a line that is canonical if the keys of its objects are in order; None: `decode` has to tell.

    No key stands twice in it, and neither white space nor a backslash nor DEL anywhere, so that each string is as it
    would be written; so is each float, and each integer but minus zero. The length of integers is left to the shape.
    """
    try:
        text = data.decode("ascii")
        value, end = PLAIN.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    other = " " in text or "\t" in text or "\r" in text or "\\" in text or "\x7f" in text or MINUS_ZERO.search(text)
    return value if not other and text.find("\n") == end == len(text) - 1 else None


def misfit(value: JSON, shape: JSON) -> str | None:
    """Return where in `value` the first thing stands that does not fit `shape` (a path, often empty), or None.

    A shape is a type, None, a pattern, a frozenset of strings, a tuple of alternatives, a dict
    of exactly these keys ({str: S}: any keys), a list [S] of any length, or a list of as many shapes as elements.
    """
    kind, inner = type(shape), []
    if kind is type:
        fits = type(value) is shape and (shape is not int or -LIMIT < value < LIMIT)
    elif kind is tuple:
        founds = [misfit(value, one) for one in shape]
        return None if None in founds else max(filter(None, founds), key=len, default="")
    elif kind is dict:
        fits = type(value) is dict
        if fits and str in shape:
            inner = [(f".{key}", one, shape[str]) for key, one in value.items()]
        elif fits and value.keys() != shape.keys():
            return f" (keys {', '.join(sorted(value.keys() ^ shape.keys()))})"
        elif fits:
            inner = [(f".{key}", value[key], one) for key, one in shape.items()]
    elif kind is list:
        fits = type(value) is list and len(shape) in (1, len(value))
        if fits:
            inner = [(f"[{at}]", one, shape[at % len(shape)]) for at, one in enumerate(value)]
    elif kind is frozenset:
        fits = type(value) is str and value in shape
    else:
        fits = value is None if shape is None else type(value) is str and shape.fullmatch(value)
    for path, one, its in inner:
        found = misfit(one, its)
        if found is not None:
            return path + found
    return None if fits else ""


def fitting(*shapes: JSON) -> Callable[..., bool]:
    """Return a test of as many values, which holds where `misfit` finds nothing and the keys of objects are in order.

    It is one expression, made of nothing but the shapes, and many times as fast: for the lines of a history.
    """
    known: dict[str, JSON] = {}
    names = [f"value_{place}" for place in range(len(shapes))]
    words = [f"({expression(name, shape, known)})" for name, shape in zip(names, shapes)]
    test: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {' and '.join(words)}", known)  # noqa: S307 - see above
    return test


def expression(name: str, shape: JSON, known: dict[str, JSON]) -> str:
    """Return in Python whether the value of that name fits a shape; what this refers to is put into `known`."""
    kind, its = type(shape), f"its_{len(known)}"
    if kind is tuple:
        return " or ".join(f"({expression(name, one, known)})" for one in shape)
    if shape is None:
        return f"{name} is None"
    if shape is int:
        return f"type({name}) is int and {-LIMIT} < {name} < {LIMIT}"
    if kind is type and shape not in (dict, list):
        return f"type({name}) is {shape.__name__}"
    if kind is re.Pattern:
        known[its] = shape.fullmatch
        return f"type({name}) is str and {its}({name}) is not None"
    if kind is frozenset:
        known[its] = shape
        return f"type({name}) is str and {name} in {its}"
    if kind is list:
        known[its] = fitting(*shape)
        each = f"all(map({its}, {name}))" if len(shape) == 1 else f"len({name}) == {len(shape)} and {its}(*{name})"
        return f"type({name}) is list and {each}"
    if kind is dict and str not in shape:
        keys = sorted(shape)
        known[its] = fitting(*map(shape.get, keys))
        return f"type({name}) is dict and [*{name}] == {keys} and {its}(*{name}.values())"
    return "False"  # an object of any keys is left to `misfit`


def require(value: JSON, shape: JSON, where: str, ledger: Ledger) -> JSON:
    """Return `value` if it has `shape`."""
    found = misfit(value, shape)
    ledger.need("shape", found is None, "{}: unexpected value or field at {}", where, found or "the top")
    return value


def known_format(value: JSON, where: str, ledger: Ledger) -> None:
    """Refuse a document of a format that is not read here, naming both."""
    found = value.get("format") if type(value) is dict else None
    ledger.need("format", type(found) is int and found == 1, "{}: format {!r}, this verifier reads 1", where, found)


def document(run: Run, path: str, shape: JSON = None, *, canonical: bool = True) -> JSON:
    """Return a document of a folder, whose format is known here, if it has a shape that is given."""
    value = decode(run.read(path), path, run.ledger, canonical=canonical)
    known_format(value, path, run.ledger)
    return value if shape is None else require(value, shape, path, run.ledger)


def bare(data: bytes) -> str:
    """Return the 64 hex digits of a SHA-256."""
    return hashlib.sha256(data).hexdigest()


def digest(data: bytes) -> str:
    """Return the digest of some bytes."""
    return "sha256:" + bare(data)


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
HEX = re.compile(r"[0-9a-f]{64}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
STEP = [int, (None, float), [[int, (None, float)]]]
KINDS: dict[str, JSON] = {"int": int, "str": str, "bool": bool, "number": (int, float), "mark": (str, int, float)}
KINDS.update({"digest": DIGEST, "name": NAME, "commit": COMMIT, "flags": (None, str, [str]), "size": [int, int]})
KINDS.update({"slot": [int, bool, (None, int)], "labels": (frozenset({"*"}), [str])})


def shape_of(text: str) -> JSON:
    """Return a shape by its text: a kind, `S?` (or null), `[S]`, `{S}` (any keys), or `=word|word` (~: a space)."""
    if text.endswith("?"):
        return None, shape_of(text[:-1])
    if text[0] in "[{":
        inner = shape_of(text[1:-1])
        return [inner] if text[0] == "[" else {str: inner}
    return frozenset(text[1:].replace("~", " ").split("|")) if text[0] == "=" else KINDS[text]


def fields(text: str) -> dict[str, JSON]:
    """Return the shape of an object by its text: `key:shape` each."""
    return {key: shape_of(shape) for key, shape in (word.split(":") for word in text.split())}


# Objects by name, the inner ones first; their fields as in docs/reference/record.md.
for kind_name, kind_text in {
    "process": "start:mark? media_marker:str?",
    "attested": "build_info:str? model:str? server_header:str? props:digest? models:digest? n_ctx:int? slots:int "
    "vocabulary:int process:process",
    "copied": "sha256:digest blob:commit",
    "registration": "name:name digest:digest commit:commit? files:{copied} "
    "status:=registered|uncommitted|changed|overridden",
    "program": "name:str version:str commit:commit? dirty:bool?",
    "machine": "cpu:str? cores:int? kernel:str? memory_bytes:int? cpu_flags:flags",
    "server": "label:str owned:bool declaration:digest? attested:attested",
    "manifest": "format:int plan:digest registered:digest python:str registration:registration? program:program "
    "dependencies:{str} machine:machine prompts:{{digest}} servers:[server] kind:=audit|accuracy",
    "turn": "role:str content:str",
    "prompt": "text:str? tokens:int? steps:int? ids:[int]? chat:[turn]?",
    "sampling": "temperature:number top_k:int top_p:number min_p:number",
    "canary": "prompt:name steps:int",
    "condition": "name:name count:int again:int opener:name? minimum:int? prompts:[name] levels:[int] "
    "neighbours:[name]",
    "plan": "format:int name:str steps:int n_probs:int attempts:int pace_per_second:number timeout_s:number "
    "control_temperature:number kind:=audit sampling:sampling canary:canary prompts:{prompt} conditions:[condition]",
    "metrics": "n_busy_slots_per_decode:str? n_decode_total:str? prompt_tokens_cached_total:str? "
    "prompt_tokens_total:str? requests_deferred:str? requests_processing:str? tokens_predicted_total:str?",
    "failure": "message:str body:digest? kind:=connect|timeout|transport|status|refused|stream_error",
    "rows": "file:digest shape:size digests:[digest]",
    "joined": "logprob:digest token:digest steps:int holes:int",
    "reply": "logprob:digest? token:digest steps:int holes:int settings:digest? prompt_echo:digest? model:str? "
    "id_slot:int? tokens_evaluated:int? tokens_predicted:int? cache_n:int? prompt_n:int? prompt_ms:number? "
    "predicted_n:int? predicted_ms:number? draft_n:int? truncated:bool? stop_type:str? above_zero:int saturated:int "
    "rows:rows? joined:joined?",
    "rule": "value:number op:=<|<=|==|>=|>",
    "prediction": "id:str statement:str minimum:int conditions:[str] servers:labels unit:=cell|pooled "
    "measure:=logprob_identical|token_identical|waves_identical holds:rule refuted:rule requires:[str]",
    "predictions": "format:int predictions:[prediction]",
    "head": "dialect:=completion format:int n_probs:int",
}.items():
    KINDS[kind_name] = fields(kind_text)
REQUESTED = "server:str trial:str unit:str attempt:int part:int "
LINES = {
    "begin": "process:int wall_ns:int",
    "resume": "process:int wall_ns:int cut:int",
    "server": "server:str declaration:digest? attested:attested phase:=start|restart|change|end",
    "snapshot": "server:str unit:str? attempt:int props:digest? health:int? when:=start|before|after|end "
    "process:process metrics:metrics? slots:[slot]?",
    "skip": "server:str unit:str needed:int? available:int? reason:=slots|not~owned|no~reference",
    "wave": "server:str unit:str attempt:int members:[str] delays_ns:[int]",
    "invoke": REQUESTED + "request:digest slot:int",
    "complete": REQUESTED
    + "sent_ns:int? first_byte_ns:int? last_byte_ns:int? status:int? failure:failure? reply:reply?",
    "interrupt": "reason:str",
    "end": "reason:=finished",
}
SHAPES = {kind: fields("line:str n:int prev:digest at_ns:int " + text) for kind, text in LINES.items()}

# 3. The folder: lists, files, bytes; the store of streams, rows and facts. --------------------------------------------

EVIDENCE = re.compile(
    r"manifest\.json|plan\.json|history\.jsonl|registration/[A-Za-z0-9_][A-Za-z0-9_.-]*"
    r"|streams/H\.jsonl|rows/H\.f32|metrics/H\.jsonl|facts/H\.json|bodies/H"
    r"|captures/H\.json\.gz"
    r"|arms/[0-9]{4}-[a-z0-9_-]+/(?:manifest\.json|plan\.json|history\.jsonl|SUMS|streams/H\.jsonl|rows/H\.f32"
    r"|facts/H\.json|bodies/H)".replace("H", HEX.pattern).replace("SUMS", "SHA256SUMS")
)
DERIVED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
SUFFIXES = {
    "streams": ".jsonl",
    "rows": ".f32",
    "metrics": ".jsonl",
    "facts": ".json",
    "captures": ".json.gz",
    "bodies": "",
}
LISTS = ("SHA256SUMS", "DERIVED.SHA256SUMS", "omitted.json")
STORES = tuple(folder + "/" for folder in SUFFIXES)
MAY_BE_OMITTED = (*(store for store in STORES if store not in ("metrics/", "captures/")), "registration/", "plan.json")
SENTINEL = -3.4028234663852886e38


class Stream(NamedTuple):
    """What one stored stream holds."""

    n_probs: int
    ids: list[int]
    told: list[JSON]  # what a reply says of it: digest of the ids, steps, holes, above zero, saturated
    float32: tuple[int, int]  # logprobs that are float32 values, of all
    ordered: list[int]  # of each step whose entries are a top-k the largest id
    filled: int  # how many steps have entries, and every logprob
    better: set[int]  # ids that were more probable than the one taken


class Run:
    """One run folder: its lists and the parts of its store that are here to be read."""

    def __init__(self, root: Path, ledger: Ledger, level: str) -> None:
        self.root, self.ledger, self.level, self.seal_digest = root, ledger, level, ""
        self.seal: dict[str, str] = {}
        self.omitted: dict[str, str] = {}
        self.streams: dict[str, Stream] = {}
        self.named: set[str] = set()
        self.unread: set[tuple[str, str]] = set()
        self.echoes: dict[tuple[str, str], str | None] = {}
        self.manifest: JSON = None
        self.plan: JSON = None
        self.predictions: JSON = None
        self.order: list[Unit] = []
        self.units: dict[str, Unit] = {}
        self.trials: dict[str, Trial] = {}
        self.servers: dict[str, Server] = {}

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of this folder."""
        return (self.root / path).read_bytes()

    def open(self, path: str) -> IO[bytes]:
        """Open a file of this folder, which may be larger than the memory."""
        return (self.root / path).open("rb")

    def named_file(self, folder: str, wanted: str | None) -> str | None:
        """Note that the record names a file by digest; return its path where it is here to be read, else None."""
        if wanted is None:
            return None
        path = f"{folder}/{wanted[7:]}{SUFFIXES[folder]}"
        if path not in self.named:
            self.named.add(path)
            self.ledger.hold("store", path in self.seal, "{} is named by the record and not sealed", path)
        return path if path in self.seal and path not in self.omitted else None

    def fact(self, wanted: str | None) -> JSON:
        """Return a fact by its digest; None where there is none or this copy leaves it out."""
        path = self.named_file("facts", wanted)
        return read_lines(f"{self.root}/{path}")[0] if path else None

    def inflated(self, wanted: str) -> JSON:
        """Return a capture by its digest, which stands compressed in the store."""
        path = self.named_file("captures", wanted)
        self.ledger.need("captures", path, "the capture {} is not here", wanted)
        one = zlib.decompressobj(31)
        try:
            data = one.decompress(self.read(path or ""), 1 << 28)
        except zlib.error:
            data = b""
        self.ledger.need("captures", one.eof and not one.unused_data, "{} is not one compressed document", path)
        return decode(data, f"{path}", self.ledger)

    def stream(self, wanted: str | None) -> Stream | None:
        """Return what is known of a stream by its digest; None where there is none or it was not read."""
        path = self.named_file("streams", wanted)
        return self.streams.get(path) if path else None

    def steps(self, wanted: str) -> list[JSON]:
        """Return the steps of a stream that is known to be here."""
        return read_lines(f"{self.root}/streams/{wanted[7:]}.jsonl")[1:]

    def prompt(self, server: str, key: str) -> JSON:
        """Return a server's frozen prompt, or None where this copy leaves it out."""
        return self.fact(self.manifest["prompts"][server][key])

    def echo(self, server: str, key: str) -> str | None:
        """Return the digest of what a reply echoes of a prompt, or None where this copy leaves the prompt out."""
        if (server, key) not in self.echoes:
            self.echoes[server, key] = self.echo_of(server, key)
        elif self.echoes[server, key] is not None:
            self.ledger.judge("shape", truth=True)  # counted as often as it is asked
        return self.echoes[server, key]

    def echo_of(self, server: str, key: str) -> str | None:
        """Compute what `echo` returns."""
        prompt = self.prompt(server, key)
        if prompt is None:
            return None
        text = prompt["text"]
        whole = not re.search("[\ud800-\udfff]", text)
        self.ledger.need("shape", whole, "half a surrogate pair in {}", ascii(text)[:80])
        return digest(text.replace(" ", "").encode())  # some echoes drop the spaces before punctuation

    def teacher(self, server: Server, trial: Trial) -> JSON:
        """Return the ids that a trial forces or appends: its reference's; None where they are not here."""
        stream = self.stream(server.replies.get(trial.reference, {}).get("logprob"))
        return None if stream is None else stream.ids


@functools.lru_cache(maxsize=256)
def read_lines(path: str) -> list[JSON]:
    """Return the documents, one a line, of a file whose bytes were checked before."""
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def read_sums(data: bytes, name: str, pattern: re.Pattern[str], ledger: Ledger) -> dict[str, str]:
    """Return {path: hex} of a list of sums."""
    sums: dict[str, str] = {}
    lines = data.decode("ascii", "replace").split("\n")
    ledger.need("shape", lines.pop() == "" and lines, "{}: is empty or does not end with a newline", name)
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})  (.*)", line)
        ledger.need("shape", match, "{}: {!r} is no line `hex  path`", name, line[:200])
        wanted, path = match.groups() if match else ("", "")
        inside = pattern.fullmatch(path) and ".." not in path.split("/") and path not in LISTS
        ledger.need("paths", inside, "{}: {!r} is no path of the format", name, path[:200])
        ledger.need("files", not sums or path > next(reversed(sums)), "{}: {} is not in sorted order", name, path)
        sums[path] = wanted
    return sums


def list_files(root: Path, ledger: Ledger) -> set[str]:
    """Return the paths of all files below a folder; a link or a special file is refused."""
    paths, folders = set(), [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = folder + entry.name
                plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
                ledger.need("paths", plain, "{!r} is a link or no file", path)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path + "/")
                else:
                    paths.add(path)
    return paths


def open_folder(run: Run, expected: str | None) -> None:
    """Read the lists, and digest every file that they name."""
    ledger, here = run.ledger, list_files(run.root, run.ledger)
    data = run.read("SHA256SUMS")
    run.seal_digest = digest(data)
    if expected is not None:
        ledger.hold("expect", run.seal_digest == expected, "the seal is {}, expected {}", run.seal_digest, expected)
    run.seal = read_sums(data, "SHA256SUMS", EVIDENCE, ledger)
    derived: dict[str, str] = {}
    if "DERIVED.SHA256SUMS" in here:
        derived = read_sums(run.read("DERIVED.SHA256SUMS"), "DERIVED.SHA256SUMS", DERIVED, ledger)
    if "omitted.json" in here:
        omitted = document(run, "omitted.json")
        # A plan without its prompts' words may stand in for plan.json, which its digest then cannot prove.
        run.plan = omitted.pop("plan", None)
        run.omitted = require(omitted, fields("format:int files:{digest}"), "omitted.json", ledger)["files"]
        replaced = (run.plan is not None) == ("plan.json" in run.omitted)
        ledger.need("files", replaced, "omitted.json: plan.json is left out without another, or the reverse")
    for path, wanted in run.omitted.items():
        within = re.sub(r"^arms/[^/]+/", "", path)
        right = within.startswith(MAY_BE_OMITTED[:-1]) or path == "plan.json"
        right = right and run.seal.get(path) == wanted[7:] and path not in here
        ledger.need("files", right, "omitted.json: {!r} may not be left out, or is here, or is not sealed so", path)
        ledger.unchecked[f"files left out, {path.split('/')[0]}"] += 1
    lists = {path for path in here if re.fullmatch(r"arms/[^/]+/DERIVED\.SHA256SUMS", path)}
    for path in sorted(lists):  # what was derived from a start of a remedy
        own = read_sums(run.read(path), path, DERIVED, ledger)
        derived.update({path.replace("DERIVED.SHA256SUMS", name): wanted for name, wanted in own.items()})
    for path in sorted({*run.seal, *derived} - {*run.omitted}):
        ledger.need("files", path in here, "{} is listed and not here", path)
        ledger.need("files", not (path in run.seal and path in derived), "{} is in both lists", path)
    strangers = sorted(here - {*run.seal, *derived, *lists, *LISTS})
    ledger.need("files", not strangers, "{!r} is in no list", strangers[:1])
    for required in ("manifest.json", "plan.json", "history.jsonl"):
        ledger.need("files", required in run.seal, "{} is not sealed", required)
    for path, wanted in [*derived.items(), *run.seal.items()]:
        if path not in run.omitted:
            digest_file(run, path, wanted)


def digest_file(run: Run, path: str, wanted: str) -> None:
    """Digest one file and read what its folder holds."""
    ledger = run.ledger
    folder, _, name = path.rpartition("/") if path in run.seal else ("", "", path)
    if folder in SUFFIXES:
        ledger.need("bytes", name[:64] == wanted, "SHA256SUMS: {} has another digest than its name", path)
        if run.level == "digests" and folder in ("streams", "rows"):
            ledger.unchecked[f"files not read, {folder}"] += 1
            return
    if folder in ("facts", "streams"):
        data = run.read(path)
        found = bare(data)
    else:
        whole, data = hashlib.sha256(), b""
        with run.open(path) as file:
            for chunk in iter(functools.partial(file.read, 1 << 20), b""):
                whole.update(chunk)
        found = whole.hexdigest()
    ledger.hold("bytes", found == wanted, "{} has SHA-256 {}, listed is {}", path, found, wanted)
    if folder == "facts":
        decode(data, path, ledger)
    elif folder == "streams":
        run.streams[path] = read_stream(data, path, ledger)


def read_stream(data: bytes, where: str, ledger: Ledger) -> Stream:
    """Read one stream strictly and count what it holds: each token's own logprob counts, and each of its top-k."""
    lines = data.split(b"\n")
    ledger.need("canonical", lines.pop() == b"" and lines, "{}: does not end with a newline", where)
    head = decode(lines[0] + b"\n", f"{where} line 0", ledger)
    known_format(head, where, ledger)
    require(head, KINDS["head"], where, ledger)
    ids: list[int] = []
    values: list[float] = []
    ordered: list[int] = []
    better: set[int] = set()
    asked, holes, filled = head["n_probs"], 0, 0
    for number, line in enumerate(lines[1:]):
        step = decode(line + b"\n", f"{where} step {number}", ledger)
        token, own, entries = require(step, STEP, f"{where} step {number}", ledger)
        ids.append(token)
        given = [logprob for _, logprob in [[token, own], *entries] if logprob is not None]
        values += given
        better.update(other for other, logprob in entries if None not in (own, logprob) and logprob > own)
        known = len(given) == len(entries) + 1
        if known and entries:
            filled += 1
            ordered += [max(token, *dict(entries))] if is_top_k(token, own, entries, asked) else []
        # What is missing, null, short or there twice is equal to nothing.
        holes += asked > 0 and not (known and len(dict(entries)) == len(entries) >= asked)
    exact = sum(map(float.__eq__, values, array("f", values)))
    above = sum(value > 0.0 for value in values)
    saturated = sum(value in (0.0, SENTINEL) for value in values)
    told = [digest(encode(ids)), len(ids), holes, above, saturated]
    ledger.hold("streams", max(values, default=0.0) <= 1e-3, "{}: a logprob far above zero", where)
    return Stream(asked, ids, told, (exact, len(values)), ordered, filled, better)


def is_top_k(token: int, own: float, entries: list[JSON], count: int) -> bool:
    """Tell whether the entries of a step are as many as asked, each id once and none negative, falling from the first.

    Its own token has the logprob of its entry, or stands behind the last.
    """
    named, numbers = dict(entries), [logprob for _, logprob in entries]
    fits = named[token] == own if token in named else own <= numbers[-1]
    falling = all(one >= two for one, two in zip(numbers, numbers[1:]))
    return len(named) == len(entries) == count and min(token, *named) >= 0 and falling and fits


# 4. Manifest, plan and registration. ----------------------------------------------------------------------------------

REGISTERED = ("PREREG.md", "plan.json", "plan.toml", "predictions.json")


def check_manifest(run: Run) -> None:
    """Check what the manifest says of plan and servers."""
    ledger, manifest = run.ledger, require(run.manifest, KINDS["manifest"], "manifest.json", run.ledger)
    ledger.hold("manifest", manifest["plan"] == "sha256:" + run.seal["plan.json"], "its plan is not plan.json")
    labels = [server["label"] for server in manifest["servers"]]
    ledger.need("manifest", len(set(labels)) == len(labels), "servers: one twice: {}", labels)
    ledger.need("manifest", set(labels) == set(manifest["prompts"]), "prompts are of other servers: {}", labels)


def settle_registration(run: Run) -> None:
    """Check that the registered digest follows from the registered files, or from the plan where there are none."""
    ledger, manifest = run.ledger, run.manifest
    registration = manifest["registration"]
    registered = manifest["plan"] if registration is None else check_registration(run, registration)
    sealed = {path for path in run.seal if path.startswith("registration/")}
    files = registration["files"] if registration else {}
    ledger.hold("manifest", sealed == {f"registration/{name}" for name in files}, "registered files: {}", sealed)
    ledger.hold("manifest", manifest["registered"] == registered, "registered digest: it follows {}", registered)


def load(run: Run) -> None:
    """Read manifest, plan and registration, unfold the plan, and check what they say of each other."""
    ledger, manifest = run.ledger, run.manifest
    check_manifest(run)
    plan = run.plan if "plan.json" in run.omitted else decode(run.read("plan.json"), "plan.json", ledger)
    known_format(plan, "plan.json", ledger)
    run.plan = require(plan, KINDS["plan"], "plan.json", ledger)
    settle_registration(run)
    ledger.need("manifest", manifest["servers"], "servers: none")
    run.order = unfold(run.plan, manifest["registered"], ledger)
    for place, unit in enumerate(run.order):
        unit.place, run.units[unit.id] = place, unit
        run.trials.update({trial.id: trial for trial in unit.trials})
    ledger.need("order", len(run.units) == len(run.order), "plan.json: an id twice: two entries ask for the same block")
    for server in manifest["servers"]:
        run.servers[server["label"]] = Server(server)
        for wanted in (server["declaration"], server["attested"]["props"], server["attested"]["models"]):
            run.named_file("facts", wanted)
        check_prompts(run, server["label"])


def check_registration(run: Run, registration: JSON) -> str:
    """Check the copied files of a registration; return the registered digest that they, or the plan, dictate."""
    ledger, files = run.ledger, registration["files"]
    ledger.need("registration", set(REGISTERED) <= set(files), "not all of {}", ", ".join(REGISTERED))
    for name, said in files.items():
        path = f"registration/{name}"
        ledger.need("registration", path in run.seal, "{} is not sealed", path)
        ledger.hold("registration", said["sha256"] == "sha256:" + run.seal[path], "{} has another SHA-256", path)
        if path in run.omitted:
            ledger.unchecked["registered files against their git blob"] += 1
            continue
        data = run.read(path)
        algorithm = "sha1" if len(said["blob"]) == 40 else "sha256"
        blob = hashlib.new(algorithm, b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        ledger.hold("registration", blob == said["blob"], "{} is git blob {}, said is {}", path, blob, said["blob"])
    lines = [f"{run.seal['registration/' + name]}  {name}\n" for name in sorted(REGISTERED)]
    registered = digest("".join(lines).encode())
    ledger.hold("registration", registration["digest"] == registered, "the registered digest is {}", registered)
    overridden = registration["status"] == "overridden"
    same = run.seal["registration/plan.json"] == run.seal["plan.json"]
    ledger.hold("registration", same or overridden, "another plan than the registered one was executed")
    if "registration/predictions.json" in run.omitted:
        ledger.unchecked["predictions"] += 1
    else:
        named = {"audit": "predictions", "identity": "claims", "accuracy": "expectations"}[run.manifest["kind"]]
        predictions = document(run, "registration/predictions.json", KINDS[named], canonical=False)
        run.predictions = predictions["predictions"]
        ids = [prediction["id"] for prediction in run.predictions]
        ledger.need("registration", len(set(ids)) == len(ids), "an id of a prediction stands twice: {}", ids)
    return run.manifest["plan"] if overridden else registered


def check_repository(run: Run, repository: str) -> str:
    """Ask git whether the registration is older than the program; return what was found, in words."""
    registration, commit = run.manifest["registration"], run.manifest["program"]["commit"]
    if registration is None or registration["commit"] is None or commit is None:
        return "not checked (no registration, or without a commit)"
    first, folder = registration["commit"], f"prereg/{registration['name']}/"

    def git(*words: str) -> tuple[int, str]:
        command = ["git", "--no-replace-objects", "-C", repository, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    for wanted in (first, commit):
        if git("cat-file", "-e", wanted + "^{commit}")[0] != 0:
            return f"not checked (the repository has no commit {wanted})"
    code = git("merge-base", "--is-ancestor", first, commit)[0]
    if code not in (0, 1):
        return "not checked (git cannot tell)"
    run.ledger.hold("repository", code == 0, "the registration's commit is no ancestor of the program's")
    _, touched = git("diff-tree", "--root", "-m", "-r", "--no-commit-id", "--name-only", first)
    strangers = [path for path in touched.splitlines() if not path.startswith(folder)]
    alone = touched and not strangers
    run.ledger.hold("repository", alone, "the registration's commit touches {}", strangers[:3] or "nothing")
    if registration["status"] != "changed":
        for name, said in registration["files"].items():
            for at in (first, commit):
                _, blob = git("rev-parse", "--verify", f"{at}:{folder}{name}")
                same = blob.strip() == said["blob"]
                run.ledger.hold("repository", same, "{}{} is {} at {}", folder, name, blob.strip() or "missing", at)
    return "checked"


def time_stamp(run: Run, repository: str) -> str:
    """Return the command that checks a third party's time stamp of the registered digest, where one lies there."""
    registration = run.manifest["registration"]
    if registration is None:
        return "none (no registration)"
    digits, folder = registration["digest"][7:], Path(repository, "prereg")
    commands = {".ots": "ots verify -d {0} {1}", ".tsr": "openssl ts -verify -digest {0} -in {1} -CAfile CA.pem"}
    found = {folder / (registration["name"] + ending): command for ending, command in commands.items()}
    known = [command.format(digits, path.as_posix()) for path, command in found.items() if path.is_file()]
    return "not checked here, check it with: " + "; ".join(known) if known else "none, so that order is self-attested"


def check_prompts(run: Run, label: str) -> None:
    """Check that a server has the prompts that the plan names, and what can be said of their ids and text."""
    ledger, stored, registered = run.ledger, run.manifest["prompts"][label], run.manifest["registered"]
    wanted = {trial.key: trial for trial in run.trials.values()}
    for name, prompt in run.plan["prompts"].items():
        if "{block}" not in words_of(prompt):
            wanted.setdefault(name, Trial(id="", prompt=name, key=name))
    for key, trial in wanted.items():
        ledger.need("prompts", key in stored or not trial.id, "{}: no frozen prompt {}", label, key)
    for key in stored:
        ledger.need("prompts", key in wanted, "{}: {!r} is no prompt of the plan", label, key)
        fact = run.prompt(label, key)
        if fact is None:
            ledger.unchecked["prompts"] += 1
            continue
        require(fact, fields("ids:[int] text:str"), f"prompt {key} of {label}", ledger)
        prompt = run.plan["prompts"][wanted[key].prompt]
        ids, tokens = prompt["ids"], prompt["tokens"]
        ledger.hold("prompts", ids is None or fact["ids"] == ids[:tokens], "{}: {} has other ids", label, key)
        fits = len(fact["ids"]) <= (len(fact["ids"]) if tokens is None else tokens)
        ledger.hold("prompts", fits and fact["ids"], "{}: {} is empty or longer than {} ids", label, key, tokens)
        block = bare(f"{registered}block{wanted[key].block}".encode())
        filled = (("{registered}", registered[7:23]), ("{block}", block[:16]))
        for word, value in filled if ids is None and tokens is None else ():
            seen = word not in words_of(prompt) or value in fact["text"]
            ledger.hold("prompts", seen, "{}: {} does not hold the digits of {}", label, key, word)


def words_of(prompt: JSON) -> str:
    """Return all text of a prompt of the plan."""
    turns = prompt["chat"] or []
    return "\n".join([prompt["text"] or "", *(turn["role"] + "\n" + turn["content"] for turn in turns)])


# 5. How the plan unfolds: blocks, units, order, seeds, request bodies. ------------------------------------------------

LEVELLED = ("concurrent_greedy", "concurrent_seeded", "oversubscribed")
SEEDED = ("concurrent_seeded", "repeat_seeded", "control_seed", "control_temperature")
# The order of the cells.
CATALOGUE = (
    *("repeat_greedy", "repeat_seeded", "first_request", "other_slot", "concurrent_greedy", "concurrent_seeded"),
    *("oversubscribed", "wave_repeat", "cross_batch_together", "cross_batch_staggered", "cache_cold", "cache_warm1"),
    *("cache_warm2", "cache_prefix", "idle_neighbour", "prefill_vs_decode", "stream_vs_whole", "without_logprobs"),
    *("restart", "control_prompt", "control_seed", "control_temperature"),
)
FAMILIES = frozenset(CATALOGUE) - {"wave_repeat", "cache_cold", "cache_warm1", "cache_warm2"} | {"cache"}
# Beyond these a plan is refused before it fills the memory.
REQUESTS_MAX, LEVEL_MAX = 1_500_000, 1_024


# A million objects with a dictionary each would be half a gigabyte; Python 3.9 has no other way.
SLOTS: JSON = {"slots": True} if sys.version_info >= (3, 10) else {}


@dataclass(**SLOTS)
class Trial:
    """One trial: what is sent, and what its stream is compared with."""

    id: str
    prompt: str
    block: str = ""
    unit: str = ""
    family: str = ""
    condition: str = ""
    entry: int = -1
    reference: str = ""
    slot: int = 0
    steps: int = 0
    support: bool = False
    cache: bool = False
    half: bool = False
    forced: bool = False
    prefixes: bool = False
    parts: int = 1
    # What follows from all trials:
    key: str = ""
    seeded: bool = False
    group: str = ""


@dataclass(**SLOTS)
class Unit:
    """One solo trial or one wave."""

    id: str
    block: str
    family: str
    trials: list[Trial]
    place: int = 0

    @property
    def wave(self) -> bool:
        """Tell whether its trials are released together."""
        return self.id != self.trials[0].id


Block = list[Unit]  # units that are never separated


@functools.lru_cache(maxsize=1024)
def base(condition: str) -> str:
    """Return a condition without its level."""
    return re.sub(r"_c[0-9]+$", "", condition)


def solo(name: str, block: str, family: str, prompt: str, **more: JSON) -> Unit:
    """Return the unit of one trial, with what is particular about it."""
    more = {"condition": family, **more}
    return Unit(name, block, family, [Trial(name, prompt, block, name, family, **more)])


def unfold(plan: JSON, registered: str, ledger: Ledger) -> Block:
    """Return the units of a plan in the order in which they are executed, alike on every server."""

    def known(name: str) -> str:
        ledger.need("shape", name in plan["prompts"], "plan.json: there is no prompt {!r}", name)
        return name

    for name, prompt in plan["prompts"].items():
        given = sum(prompt[key] is not None for key in ("text", "chat", "ids"))
        ledger.need("shape", NAME.fullmatch(name) and given == 1, "plan.json: prompt {!r} is not one of three", name)
    firsts = sum(entry["name"] == "first_request" for entry in plan["conditions"])
    ledger.need("shape", firsts < 2, "plan.json: {} entries of first_request", firsts)
    blocks: list[Block] = []
    count = 0
    for number, entry in enumerate(plan["conditions"]):
        ledger.need("shape", entry["name"] in FAMILIES, "plan.json: condition {!r} is not known", entry["name"])
        for name in [*entry["prompts"], *entry["neighbours"], *filter(None, [entry["opener"]])]:
            known(name)
        for level in entry["levels"]:
            ledger.need("shape", 0 < level <= LEVEL_MAX, "plan.json: level {} of {}", level, entry["name"])
        for block in blocks_of(plan, number, ledger):
            count += sum(trial.parts for unit in block for trial in unit.trials)
            ledger.need("shape", count < REQUESTS_MAX, "plan.json: more than {} requests", REQUESTS_MAX)
            blocks.append(block)
    ends, canary = ("canary/first", "canary/last"), plan["canary"]
    canaries = [[solo(name, name, "canary", known(canary["prompt"]), steps=canary["steps"])] for name in ends]
    measured = [trial for block in blocks for unit in block for trial in unit.trials]
    references = dict.fromkeys(trial.reference for trial in measured if trial.reference.startswith("baseline/"))
    baselines = [[solo(name, name, "baseline", name.split("/", 2)[2])] for name in references]
    first, last = ([one for one in blocks if one[0].family == name] for name in ("first_request", "restart"))
    middle = mixed([one for one in blocks if one[0].family not in ("first_request", "restart")], registered)
    units = list(itertools.chain(*first, canaries[0], *baselines, *middle, canaries[1], *last))
    trials = {trial.id: trial for unit in units for trial in unit.trials}
    for trial in trials.values():
        trial.steps = trial.steps or steps_of(plan, trial.prompt)
        several = "{block}" in words_of(plan["prompts"][trial.prompt])
        trial.key = f"{trial.prompt}@{trial.block}" if several else trial.prompt
        root = trial
        while root.reference:
            root = trials[root.reference]
        trial.seeded = root.id.startswith("baseline/seeded/")
        trial.group = trial.id if trial.support or trial.family == "control_seed" else root.id
    return units


def mixed(middle: list[Block], registered: str) -> list[Block]:
    """Return the middle in order: sorted by digest, the repeats at equal distances among the others."""
    rank = {block[0].block: bare(f"{registered}order{block[0].block}".encode()) for block in middle}
    middle = sorted(middle, key=lambda block: rank[block[0].block])
    others = [block for block in middle if not block[0].family.startswith("repeat_")]
    repeats = [block for block in middle if block[0].family.startswith("repeat_")]
    repeats.sort(key=lambda block: int(block[0].block.rpartition("/")[2]))
    places = [((2 * j + 1) * len(others) // (2 * len(repeats)), 0, j, block) for j, block in enumerate(repeats)]
    places += [(index, 1, 0, block) for index, block in enumerate(others)]
    return [place[3] for place in sorted(places, key=lambda place: place[:3])]


def blocks_of(plan: JSON, number: int, ledger: Ledger) -> Iterator[Block]:
    """Yield the blocks of one entry of the plan, in plan order."""
    entry = plan["conditions"][number]
    family, levels, slots = entry["name"], [0], [0]
    if family in LEVELLED:
        levels = entry["levels"]
    elif family == "other_slot":
        ledger.need("shape", entry["levels"], "plan.json: other_slot without a level")
        slots = list(range(1, entry["levels"][0]))
    for level, prompt, slot in itertools.product(levels, entry["prompts"], slots):
        for i in range(entry["count"]):
            parts = [f"{family}_c{level}" if level else family, prompt, *([str(slot)] if slot else []), str(i)]
            name = "/".join(parts)
            if level or family.startswith("cross_batch_"):
                block = wave_block(plan, entry, name, prompt, level, again=i < entry["again"])
            elif family in ("cache", "cache_prefix", "idle_neighbour", "prefill_vs_decode"):
                block = chained_block(plan, entry, name, prompt, ledger)
            else:
                block = [solo(name, name, family, prompt, reference=reference_of(family, prompt), slot=slot)]
            trials = [trial for unit in block for trial in unit.trials]
            for trial in trials:
                trial.entry = number
            if family == "control_prompt":
                names = entry["prompts"]
                trials[0].prompt = names[(names.index(prompt) + 1) % len(names)]
                trials[0].steps = steps_of(plan, prompt)
            yield block


def reference_of(family: str, prompt: str) -> str:
    """Return the baseline that the trials of a family are compared with."""
    return sys.intern(f"baseline/{'seeded' if family in SEEDED else 'greedy'}/{prompt}")


def wave_block(plan: JSON, entry: JSON, name: str, prompt: str, level: int, *, again: bool) -> Block:
    """Return a block of one wave, or of two where the entry asks for the same wave again."""
    family, condition, block = entry["name"], name.split("/", 1)[0], []
    members = [prompt] * level or [prompt, *(other for other in entry["neighbours"] if other != prompt)]
    for wave in ("w0", "w1") if again and family.startswith("concurrent_") else ("w0",):
        unit = Unit(f"{name}/{wave}", name, family, [])
        for member, sent in enumerate(members):
            trial = Trial(f"{unit.id}/{member}", sent, name, unit.id, family, condition)
            trial.slot, trial.reference = -1 if family == "oversubscribed" else member, reference_of(family, prompt)
            if wave == "w1":
                trial.condition, trial.reference = "wave_repeat", f"{name}/w0/{member}"
            if sent != prompt:
                trial.support, trial.reference, trial.steps = True, "", steps_of(plan, prompt) + 16
            unit.trials.append(trial)
        block.append(unit)
    return block


def chained_block(plan: JSON, entry: JSON, name: str, prompt: str, ledger: Ledger) -> Block:
    """Return a block of several solo trials in a fixed order."""
    family, own, greedy, block = entry["name"], f"{name}/baseline", f"baseline/greedy/{prompt}", []

    def add(suffix: str, reference: str = "", condition: str = family, **more: JSON) -> None:
        more = {"prompt": prompt, "reference": reference, "condition": condition, "support": not reference, **more}
        block.append(solo(f"{name}/{suffix}", name, family, **more))

    if family.startswith("cache"):
        ledger.need("shape", entry["opener"] is not None, "plan.json: {} without an opener", family)
        add("opener", prompt=entry["opener"], steps=1)
    if family == "cache":
        for suffix in ("cold", "warm1", "warm2"):
            add(suffix, own, f"cache_{suffix}", cache=True)
    elif family == "cache_prefix":
        add("primer", steps=1, cache=True, half=True)
        add("prefix", own, cache=True)
    elif family == "idle_neighbour":
        others = [other for other in entry["neighbours"] if other != prompt]
        ledger.need("shape", others, "plan.json: idle_neighbour of {} without a neighbour", prompt)
        add("neighbour", prompt=others[0], slot=1, cache=True)
        add("member", greedy)
    else:
        add("forced", greedy, forced=True)
        add("prefixes", greedy, prefixes=True, parts=steps_of(plan, prompt), steps=1)
    if family.startswith("cache"):
        add("baseline", "", "baseline", support=False)
        add("repeat", own, "repeat_greedy")
    return block


def steps_of(plan: JSON, prompt: str) -> int:
    """Return how many steps a prompt is asked for."""
    own = plan["prompts"][prompt]["steps"]
    return int(plan["steps"] if own is None else own)


# What every request holds. The rest of its body follows from the trial.
REQUEST = json.loads(
    '{"dry_allowed_length": 2, "dry_base": 1.75, "dry_multiplier": 0.0, "dry_penalty_last_n": 0, "stop": [],'
    '"dynatemp_exponent": 1.0, "dynatemp_range": 0.0, "frequency_penalty": 0.0, "ignore_eos": true, "logit_bias": [],'
    '"min_keep": 0, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0, "n_keep": 0, "repeat_last_n": 0,'
    '"post_sampling_probs": false, "presence_penalty": 0.0, "repeat_penalty": 1.0, "return_tokens": true,'
    '"samplers": ["top_k", "top_p", "min_p", "temperature"], "timings_per_token": false, "top_n_sigma": -1.0,'
    '"typical_p": 1.0, "xtc_probability": 0.0, "xtc_threshold": 0.1}'
)
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def request_of(run: Run, server: Server, trial: Trial, part: int) -> tuple[dict[str, JSON], bool]:
    """Return the body that the plan dictates, and whether it is complete: prompts or streams may have been left out."""
    plan, prompt, grammar = run.plan, run.prompt(server.label, trial.key), ""
    ids = None if prompt is None else prompt["ids"]
    complete = ids is not None
    if trial.half and ids is not None:
        ids = ids[: len(ids) // 2]
    if trial.forced or trial.prefixes:
        teacher = run.teacher(server, trial)
        complete = complete and teacher is not None
        if teacher is not None and trial.forced:
            grammar = "root ::= " + " ".join(f"<[{token}]>" for token in teacher)
        elif teacher is not None and ids is not None:
            ids = ids + teacher[:part]
    seed = int(bare(f"{run.manifest['registered']}seed{trial.group}".encode())[:8], 16)
    body = {**REQUEST, **(plan["sampling"] if trial.seeded else GREEDY)}
    body.update(cache_prompt=trial.cache, grammar=grammar, id_slot=trial.slot, n_predict=trial.steps, prompt=ids)
    body.update(n_probs=n_probs_of(run, server, trial), seed=seed % (2**32 - 1))
    body["stream"] = trial.family in ("canary", "stream_vs_whole", "rows", "bare")
    if trial.family == "control_temperature":
        body["temperature"] = plan["control_temperature"]
    return body, complete


def n_probs_of(run: Run, server: Server, trial: Trial) -> int:
    """Return how many logprobs a step a trial asks for."""
    if trial.family in ("canary", "rows"):
        return int(server.attested["vocabulary"])
    return 0 if trial.family in ("without_logprobs", "bare") else int(run.plan["n_probs"])


# 6. The history, line by line. ----------------------------------------------------------------------------------------

Key = tuple[str, int]  # trial and part


class Kept:
    """Some values of a line, read by key like a dict in a fraction of its memory."""

    __slots__ = ("places", "values")

    def __init__(self, line: dict[str, JSON], what: str) -> None:
        self.places, self.values = PLACES[what], VALUES[what](line)

    def __getitem__(self, name: str) -> JSON:
        return self.values[self.places[name]]

    get = __getitem__


class Answer:
    """A complete line and its reply in one: the times of its own, and what very many replies have alike, kept once."""

    __slots__ = ("alike", "last_byte_ns", "predicted_ms", "prompt_ms", "sent_ns")

    def __init__(self, line: dict[str, JSON], known: dict[JSON, JSON]) -> None:
        reply: JSON = line["reply"] or {}
        self.last_byte_ns, self.sent_ns = line["last_byte_ns"], line["sent_ns"]
        self.prompt_ms, self.predicted_ms = reply.get("prompt_ms"), reply.get("predicted_ms")
        self.alike: JSON = VALUES["reply"](reply) if reply else None
        if reply and reply["rows"] is None and reply["joined"] is None:  # else it has no hash
            self.alike = known.setdefault(self.alike, self.alike)

    def __getitem__(self, name: str) -> JSON:
        place = ALIKE.get(name)
        return getattr(self, name) if place is None else self.alike[place]

    get = __getitem__

    @property
    def reply(self) -> JSON:
        """The reply: itself, or None where the request failed."""
        return None if self.alike is None else self


KEPT: dict[str, JSON] = {"metrics": tuple(KINDS["metrics"]), "snapshot": ("metrics", "n", "process", "props", "slots")}
KEPT["reply"] = tuple(name for name in KINDS["reply"] if name not in Answer.__slots__)
PLACES = {what: {name: place for place, name in enumerate(names)} for what, names in KEPT.items()}
VALUES = {what: operator.itemgetter(*names) for what, names in KEPT.items()}
ALIKE = PLACES["reply"]
ASKED = operator.itemgetter("server", "trial", "unit", "attempt", "part")


@dataclass(**SLOTS)
class Attempt:
    """One try at a unit: its lines."""

    unit: Unit
    number: int
    process: int
    since: int  # the number of its first line
    before: JSON = None
    after: JSON = None
    earlier: JSON = None  # the server's snapshot before `before`
    wave: bool = False
    invokes: dict[Key, int] = field(default_factory=dict)  # the number of each invoke line
    completes: dict[Key, Answer] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)

    def replies(self, trial: Trial) -> list[JSON]:
        """Return the replies of a trial, part by part; a shorter list where one is missing or failed."""
        lines = [self.completes.get((trial.id, part)) for part in range(trial.parts)]
        return [line for line in lines if line is not None and line.alike is not None]

    def complete(self, trial: Trial) -> bool:
        """Tell whether every part of a trial has a reply."""
        return len(self.replies(trial)) == trial.parts


class Server:
    """What the history says of one server."""

    def __init__(self, said: JSON) -> None:
        self.label, self.owned, self.attested = said["label"], said["owned"], said["attested"]
        self.declaration = said["declaration"]
        self.lines: list[JSON] = []
        self.trusted: list[bool] = []  # of each of these lines: it is the same server as at the first
        self.resumed = self.unexplained = False
        self.invoked: list[int] = []
        self.attempts: dict[str, list[Attempt]] = {}
        self.skips: dict[str, JSON] = {}
        self.current: Attempt | None = None
        self.again: set[str] = set()  # blocks that the latest process began and did not finish
        self.replies: dict[str, JSON] = {}  # of each trial its latest
        self.next = 0
        self.latest: JSON = None  # its latest snapshot
        self.told: dict[str, list[bool]] = {"greedy": [], "settings": [], "counts": []}  # of each reply
        self.files: set[str] = set()
        self.canaries: set[str] = set()  # of all complete canaries the rows


def delays(unit: Unit, server: Server) -> list[float] | None:
    """Return when the members of a wave are to start, in nanoseconds after its release; None: who knows."""
    first, count = unit.trials[0], len(unit.trials)
    if unit.family in ("cross_batch_together", "batch"):
        return [2e6, *[0.0] * (count - 1)]
    if unit.family == "cross_batch_staggered":
        reply = server.replies.get(first.reference)
        if reply is None or None in (reply["prompt_ms"], reply["predicted_ms"]):
            return None
        prompt, predicted = reply["prompt_ms"] * 1e6, reply["predicted_ms"] * 1e6
        return [0.0, *(prompt + predicted * member / count for member in range(1, count))]
    return [0.0] * count


class Walk:
    """Reads the history once, from its first line to its last, and fills the servers of a run."""

    shapes: JSON = SHAPES

    def __init__(self, run: Run) -> None:
        self.run, self.ledger = run, run.ledger
        self.process, self.clock, self.ended, self.n = 0, 0, False, 0
        self.broken = False  # whether a process ended without finishing, which may leave files that no line names
        self.open: dict[Key, JSON] = {}
        self.waiting: defaultdict[str, int] = defaultdict(int)  # of each unit the requests that are open
        self.bodies: dict[Key, tuple[str, dict[str, JSON], bool]] = {}
        self.asked: dict[JSON, tuple[str, dict[str, JSON], bool]] = {}
        self.echoed: dict[tuple[str, str | None], bool] = {}
        self.known: dict[JSON, JSON] = {}
        self.fitting = {kind: fitting(shape) for kind, shape in self.shapes.items()}
        self.blocks: dict[str, list[Unit]] = {}
        for unit in run.order:
            self.blocks.setdefault(unit.block, []).append(unit)

    def walk(self) -> None:
        """Read every line; then check that nothing is left open, every unit was met and every stored file is named."""
        ledger = self.ledger
        with self.run.open("history.jsonl") as file:
            ends = bool(file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) + 1 and file.read() == b"\n")
            ledger.need("canonical", ends, "history.jsonl does not end with a newline")
            file.seek(0)
            self.walk_lines(file)
        ledger.hold("lines", self.ended, "history.jsonl: no end line, and yet it is sealed")
        ledger.hold("pairs", not self.open, "{} invokes have no complete", len(self.open))
        for server in self.run.servers.values():
            self.close(server.current)
            torn = [block for block, units in self.blocks.items() if len(units) > 1 and self.scattered(server, block)]
            ledger.hold("attempts", not torn, "{}: blocks of which only a part was tried again: {}", server.label, torn)
            missing = [unit.id for unit in self.run.order[server.next :]]
            ledger.hold("order", not missing, "{}: {} units not tried: {}", server.label, len(missing), missing[:1])
            ledger.need("lines", server.lines, "{}: no server line", server.label)
        for path in self.run.seal:
            if path.startswith(STORES) and not self.broken:
                ledger.hold("store", path in self.run.named, "{} is stored and no line names it", path)

    def walk_lines(self, lines: Iterable[bytes]) -> None:
        """Read every line, one at a time: together they may be larger than the memory."""
        ledger, previous = self.ledger, "sha256:" + self.run.seal["manifest.json"]
        for n, raw in enumerate(lines):
            where, self.n = f"history.jsonl line {n}", n
            line = self.read(raw, where)
            kind = line["line"]
            chained = line["n"] == n and line["prev"] == previous
            found = line["n"], line["prev"], previous
            ledger.hold("chain", chained, "{}: n is {}, and prev {} should be {}", where, *found)
            previous = digest(raw)
            first_or_end = (kind == "begin") == (n == 0) and not self.ended
            ledger.need("lines", first_or_end, "{}: a {} line cannot stand here", where, kind)
            if kind in ("begin", "resume"):
                self.clock = line["at_ns"]
            ledger.hold("clock", line["at_ns"] >= self.clock, "{}: its time is before the line above", where)
            self.clock = line["at_ns"]
            server = self.run.servers.get(line.get("server", ""))
            ledger.need("lines", server or "server" not in line, "{}: an unknown server", where)
            if kind == "begin":
                ledger.hold("lines", line["process"] == 0, "line 0: process {}", line["process"])
            elif kind == "interrupt":
                self.broken = True
            elif kind == "end":
                self.ended = True
            else:
                getattr(self, "on_" + kind)(line, server)

    def read(self, raw: bytes, where: str) -> JSON:
        """Return a line, read strictly: at once where it is plain and fits, else by steps that say what is wrong."""
        ledger, line = self.ledger, plain(raw)
        kind = line.get("line") if type(line) is dict else None
        if type(kind) is str and kind in self.fitting and self.fitting[kind](line):
            for name in ("json", "canonical", "shape", "shape"):
                ledger.judge(name, truth=True)
            return line
        line = decode(raw, where, ledger)
        kind = str(line.get("line")) if type(line) is dict else ""
        ledger.need("shape", kind in self.shapes, "{}: unknown kind {!r}", where, kind)
        return require(line, self.shapes[kind], where, ledger)

    def keep(self, line: dict[str, JSON]) -> JSON:
        """Return a snapshot as it is kept."""
        slots, process = line["slots"], tuple(line["process"].values())
        rows = tuple(map(tuple, slots)) if slots else slots
        line["slots"] = self.known.setdefault(rows, rows) if slots else slots
        line["process"] = self.known.setdefault(process, line["process"])
        line["metrics"] = Kept(line["metrics"], "metrics") if line["metrics"] else None
        line["props"] = self.known.setdefault(line["props"], line["props"])
        return Kept(line, "snapshot")

    def on_resume(self, line: JSON, _: Server) -> None:
        """Start the next process: what was open stays unknown, and unfinished blocks are due again."""
        self.ledger.hold("lines", line["process"] == self.process + 1, "line {}: process {}", self.n, line["process"])
        self.process, self.broken = line["process"], True
        self.open.clear()
        self.waiting.clear()
        for server in self.run.servers.values():
            server.resumed, server.current, server.again = True, None, set()
            for name in {*server.attempts, *server.skips}:
                tried, unit = server.attempts.get(name), self.run.units[name]
                done = tried and tried[-1].after and all(map(tried[-1].complete, unit.trials))
                if not done or self.scattered(server, unit.block):
                    server.again.add(unit.block)
            around = [unit.block for unit in self.run.order[max(server.next - 1, 0) : server.next + 1]]
            server.again.update(block for block in around if around.count(block) > 1)

    def scattered(self, server: Server, block: str) -> bool:
        """Tell whether the last attempts at the units of a block are not those of one process, in order."""
        units = self.blocks[block]
        last = [server.attempts[unit.id][-1] for unit in units if server.attempts.get(unit.id)]
        since = [attempt.since for attempt in last]
        return len({attempt.process for attempt in last}) > 1 or since != sorted(since)

    def on_server(self, line: JSON, server: Server) -> None:
        """Note who the server says it is, and whether that may differ from before."""
        said, ledger = line["attested"], self.ledger
        first, last = ((server.lines or [line])[place]["attested"] for place in (0, -1))
        if not server.lines:
            known = {**server.attested, "process": said["process"]}
            same = said == known and line["declaration"] == server.declaration
            ledger.hold("manifest", same, "{}: its first server line says otherwise", server.label)
            ledger.hold("lines", line["phase"] == "start", "{}: its first server line is no start", server.label)
        keys = ("build_info", "model", "models", "slots", "n_ctx", "vocabulary", "props")
        explained = said["process"] == last["process"] or line["phase"] == "restart" or server.resumed
        server.unexplained = server.unexplained or not explained
        server.trusted.append(all(said[key] == first[key] for key in keys) and not server.unexplained)
        server.lines.append(line)
        server.resumed = False
        for wanted in (said["props"], said["models"], line["declaration"]):
            self.run.named_file("facts", wanted)

    def on_snapshot(self, line: JSON, server: Server) -> None:
        """Note a snapshot, and to which attempt it belongs."""
        self.run.named_file("facts", line["props"])
        kept = self.keep(line)
        when, earlier, server.latest = line["when"], server.latest, kept
        inside = when in ("before", "after")
        self.ledger.need("lines", (line["unit"] is not None) == inside, "line {}: unit and {} do not fit", self.n, when)
        if not inside:
            return
        attempt = self.attempt(line, server)
        fresh = attempt.after is None and (when == "after" or not (attempt.before or attempt.invokes))
        self.ledger.hold("lines", fresh and not self.open, "line {}: a snapshot {} cannot stand here", self.n, when)
        setattr(attempt, when, kept)
        attempt.earlier = earlier if when == "before" else attempt.earlier

    def close(self, attempt: Attempt | None) -> None:
        """Check that an attempt that ends here sent what its unit asks for, and no less."""
        sent: dict[str, list[JSON]] = {}
        for (name, _), line in attempt.completes.items() if attempt else ():
            sent.setdefault(name, []).append(line)
        for trial in attempt.unit.trials if attempt else ():
            lines = sent.get(trial.id, [])
            whole = len(lines) == trial.parts or (lines and lines[-1].reply is None)
            self.ledger.hold("pairs", whole, "{} sent {} of {} requests", trial.id, len(lines), trial.parts)

    def on_skip(self, line: JSON, server: Server) -> None:
        """Check that a unit was skipped for a reason that holds."""
        unit, reason = self.unit(line), line["reason"]
        self.arrive(server, unit)
        server.skips[unit.id] = line
        if reason == "slots":
            block = [trial.slot for other in self.blocks[unit.block] for trial in other.trials]
            right = line["available"] == server.attested["slots"] < (line["needed"] or 0) <= max(block) + 1
        elif reason == "not owned":
            right = not server.owned and unit.family in ("first_request", "restart")
        else:
            right = not any(trial.reference in server.replies for trial in unit.trials)
        self.ledger.hold("skips", right, "line {}: {} skipped for {}", self.n, unit.id, reason)

    def on_wave(self, line: JSON, server: Server) -> None:
        """Check that a wave has its members."""
        attempt, unit = self.attempt(line, server), self.unit(line)
        whole = unit.wave and line["members"] == [trial.id for trial in unit.trials]
        self.ledger.hold("order", whole, "line {}: the members of {} are others", self.n, unit.id)
        due, said = delays(unit, server), line["delays_ns"]
        if due is None:
            self.ledger.unchecked["delays of waves whose reference has no reply"] += 1
        else:
            near = [abs(expected - delay) < 1_000 for expected, delay in zip(due, said)]
            whole = near.count(True) == len(due) == len(said)
            self.ledger.hold("order", whole, "line {}: delays {}, due {}", self.n, said, due)
        fresh = not (attempt.wave or attempt.invokes or attempt.after)
        self.ledger.hold("lines", fresh, "line {}: a wave cannot stand here", self.n)
        attempt.wave = True

    def on_invoke(self, line: JSON, server: Server) -> None:
        """Check that a request is the one that the plan dictates, to the byte."""
        unit, attempt, ledger = self.unit(line), self.attempt(line, server), self.ledger
        server.invoked.append(self.n)
        trial = self.run.trials.get(line["trial"])
        trial = trial if trial and trial.unit == unit.id else None
        trial = ledger.given("order", trial, "line {}: {!r} is no trial of its unit", self.n, line["trial"])
        due, key = 0, (trial.id, line["part"])  # the plan's own string, which is kept once
        while (trial.id, due) in attempt.invokes:
            due += 1
        right = line["part"] == due < trial.parts and line["slot"] == trial.slot
        ledger.hold("order", right, "line {}: part {} or slot {} is not due", self.n, line["part"], line["slot"])
        alone = not self.open or (unit.wave and self.waiting.keys() == {unit.id})
        placed = attempt.wave == unit.wave and server.lines and attempt.after is None
        ledger.hold("pairs", alone and placed and key not in self.open, "line {}: an invoke cannot stand here", self.n)
        attempt.invokes[key], self.open[key], line["key"] = line["n"], line, key
        self.waiting[unit.id] += 1
        self.run.named_file("facts", line["request"])
        wanted, _, complete = self.bodies[key] = self.request(server, trial, line["part"])
        if not complete:
            ledger.unchecked["requests"] += 1
            return
        ledger.hold("requests", line["request"] == wanted, "line {}: {} should be {}", self.n, line["request"], wanted)

    def request(self, server: Server, trial: Trial, part: int) -> tuple[str, dict[str, JSON], bool]:
        """Return digest and body of the request that the plan dictates, and whether it is complete."""
        if trial.forced or trial.prefixes:
            body, complete = request_of(self.run, server, trial, part)
            return digest(encode(body)) if complete else "", body, complete
        alike = trial.family, trial.key, trial.group, trial.slot, trial.steps, trial.seeded, trial.cache, trial.half
        if (server.label, alike) not in self.asked:
            body, complete = request_of(self.run, server, trial, part)
            self.asked[server.label, alike] = digest(encode(body)) if complete else "", body, complete
        return self.asked[server.label, alike]

    def on_complete(self, line: JSON, server: Server) -> None:
        """Check that a complete belongs to an open invoke, and its reply to the store."""
        key, ledger = (line["trial"], line["part"]), self.ledger
        invoke = self.open.pop(key, None)
        same = invoke and ASKED(line) == ASKED(invoke)
        ledger.need("pairs", same, "line {}: a complete without its invoke", self.n)
        self.waiting[line["unit"]] -= 1
        if not self.waiting[line["unit"]]:
            del self.waiting[line["unit"]]
        times = [invoke["at_ns"], line["sent_ns"], line["first_byte_ns"], line["last_byte_ns"], line["at_ns"]]
        known = [time for time in times if time is not None]
        ledger.hold("clock", known == sorted(known), "line {}: its times are not in order", self.n)
        failure, reply = line["failure"], line["reply"]
        ledger.need("pairs", (failure is None) != (reply is None), "line {}: neither failed nor replied", self.n)
        attempt = self.attempt(line, server)
        if reply is not None:
            for name in ("logprob", "token", "settings", "prompt_echo", "model", "stop_type"):
                reply[name] = self.known.setdefault(reply[name], reply[name])  # equal strings are one object
        attempt.completes[invoke["key"]] = answer = Answer(line, self.known)
        if failure is not None:
            self.run.named_file("bodies", failure["body"])
            return
        ledger.hold("clock", None not in times, "line {}: a reply without its times", self.n)
        ledger.hold("pairs", line["status"] == 200, "line {}: a reply of status {}", self.n, line["status"])
        self.reply(line, reply, server, attempt, answer)

    def reply(self, line: JSON, reply: JSON, server: Server, attempt: Attempt, answer: Answer) -> None:
        """Check a reply's digests and counts against the store, and its echo against the request."""
        run, ledger, trial = self.run, self.ledger, self.run.trials[line["trial"]]
        if trial.family in ("canary", "rows"):
            check_rows(run, server, reply, f"line {self.n}")
            server.canaries.add(reply["rows"]["file"])
        else:
            ledger.need("streams", reply["logprob"] and not reply["rows"], "line {}: no stream, or rows", self.n)
            server.replies[trial.id] = answer
            check_stream(run, reply, n_probs_of(run, server, trial), f"line {self.n}")
            server.files.add(reply["logprob"])
        whole = trial.prefixes and attempt.complete(trial)
        joined = reply["joined"]
        ledger.hold("streams", bool(joined) == whole, "line {}: joined, or not, against the rule", self.n)
        if joined and whole:
            server.files.add(joined["logprob"])
            check_joined(run, attempt.replies(trial), joined, f"line {self.n}")
        wanted, body, complete = self.bodies.pop((trial.id, line["part"]))
        own = reply["prompt_echo"] in (None, run.echo(server.label, trial.key))
        if not complete:
            run.unread.add((server.label, "counts"))
        elif own or trial.prefixes:  # what answers another prompt has that one's counts
            server.told["counts"].append(ledger.judge("counts", counts_agree(body, reply)))
        settings = run.fact(reply["settings"])
        if settings is None and reply["settings"] is not None:
            ledger.unchecked["echoed settings"] += 1
            run.unread.update({(server.label, "settings"), (server.label, "greedy")})
            return
        if not complete:
            body = {key: value for key, value in body.items() if key != "grammar"}
        both = wanted, reply["settings"]
        if not complete or both not in self.echoed:
            self.echoed[both] = echo_agrees(body, settings)
        server.told["settings"].append(ledger.judge("settings", self.echoed[both]))
        said = settings if type(settings) is dict else {}
        if reply["logprob"] and body["temperature"] == 0 and body["n_probs"] > 0 and not trial.forced:
            stream = run.stream(reply["logprob"])
            if stream is None:
                run.unread.add((server.label, "greedy"))
            else:
                server.told["greedy"].append(ledger.judge("greedy", stream.better <= biased(said)))
        drafted = (reply["draft_n"] or 0) > 0 or said.get("speculative.types") not in (None, "none")
        if drafted or said.get("post_sampling_probs") is True:
            attempt.unsupported.add(trial.id)

    def whole(self, attempt: Attempt) -> bool:
        """Tell whether an attempt is one after which there is no other."""
        return all(map(attempt.complete, attempt.unit.trials))

    def unit(self, line: JSON) -> Unit:
        """Return the unit that a line names."""
        unit = self.run.units.get(line["unit"])
        return self.ledger.given("order", unit, "line {}: {!r} is no unit of the plan", self.n, line["unit"])

    def arrive(self, server: Server, unit: Unit) -> None:
        """Check that a unit that is met for the first time is the next one."""
        due = self.run.order[server.next : server.next + 1] if unit.place > server.next else []
        self.ledger.hold("order", not due, "line {}: {} before {}", self.n, unit.id, due and due[0].id)
        server.next = max(server.next, unit.place + 1)

    def attempt(self, line: JSON, server: Server) -> Attempt:
        """Return the attempt that a line belongs to; where it opens one, check that it is due."""
        unit, ledger, number = self.unit(line), self.ledger, line["attempt"]
        tried = server.attempts.setdefault(unit.id, [])
        if tried and server.current is tried[-1] and tried[-1].number == number:
            return tried[-1]
        ledger.hold("pairs", not self.open, "line {}: a request of another attempt is not answered", self.n)
        self.close(server.current)
        if not tried and unit.id not in server.skips:
            self.arrive(server, unit)
        # A number whose requests were never sent may be used again.
        due = {tried[-1].number + 1, tried[-1].number + bool(tried[-1].invokes)} if tried else {0}
        ledger.hold("attempts", number in due, "line {}: attempt {} of {}, due is {}", self.n, number, unit.id, due)
        here = [old for old in tried if old.process == self.process]
        enough = len(here) >= self.run.plan["attempts"] or any(self.whole(old) for old in here)
        if tried and tried[-1].process != self.process:
            enough = unit.family not in ("canary", "baseline") and unit.block not in server.again
        ledger.hold("attempts", not enough, "line {}: {} is tried again though it was not due", self.n, unit.id)
        server.current = Attempt(unit, number, self.process, self.n)
        tried.append(server.current)
        return server.current


# 7. A reply against the store and against its request. ----------------------------------------------------------------


def check_stream(run: Run, reply: JSON, n_probs: int, where: str) -> None:
    """Check the digests and counts of a reply against the bytes of its stream."""
    stream = run.stream(reply["logprob"])
    if stream is None:
        run.ledger.unchecked["replies against their streams"] += 1
        return
    said = [reply[key] for key in ("token", "steps", "holes", "above_zero", "saturated")]
    run.ledger.hold("streams", said == stream.told, "{}: its stream gives {}, said is {}", where, stream.told, said)
    run.ledger.hold("streams", stream.n_probs == n_probs, "{}: a stream of {} logprobs", where, stream.n_probs)


def check_joined(run: Run, replies: list[JSON], joined: JSON, where: str) -> None:
    """Check that a joined stream is the one-step replies in order."""
    stream, parts = run.stream(joined["logprob"]), [run.stream(reply["logprob"]) for reply in replies]
    if stream is None or None in parts:
        run.ledger.unchecked["joined streams"] += 1
        return
    same = [joined[key] for key in ("token", "steps", "holes")] == stream.told[:3]
    same = same and all(part is not None and part.n_probs == stream.n_probs for part in parts)
    steps = [step for reply in replies for step in run.steps(reply["logprob"])]
    same = same and run.steps(joined["logprob"]) == steps
    run.ledger.hold("streams", same, "{}: the joined stream is not its parts in order", where)


def floats(data: bytes) -> array[float]:
    """Return little-endian float32 values."""
    values = array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def check_rows(run: Run, server: Server, reply: JSON, where: str) -> None:
    """Check the digests and counts of a reply against the bytes of its rows."""
    ledger, rows = run.ledger, reply["rows"]
    ledger.need("rows", rows and reply["logprob"] is None, "{}: a canary without rows, or with a stream", where)
    width = server.attested["vocabulary"]
    shaped = rows["shape"] == [reply["steps"], width] and len(rows["digests"]) == reply["steps"]
    ledger.need("rows", shaped and width > 0, "{}: rows of shape {}", where, rows["shape"])
    path = run.named_file("rows", rows["file"])
    if path is None or run.level == "digests":
        ledger.unchecked["replies against their rows"] += 1
        return
    data, size = run.read(path), 4 * width
    digests = [digest(data[start : start + size]) for start in range(0, len(data), size)]
    same = digests == rows["digests"] and len(data) == size * reply["steps"]
    ledger.need("rows", same, "{}: the bytes are other rows", where)
    values = floats(data)
    saturated = values.count(0.0) + values.count(SENTINEL)
    counts = [sum(value > 0.0 for value in values), saturated]
    ledger.hold("rows", max(values) <= array("f", [1e-3])[0], "{}: a logprob far above zero", where)
    said = [reply["above_zero"], reply["saturated"]]
    ledger.hold("rows", said == counts, "{}: above zero and saturated {}, said is {}", where, counts, said)


def echo_agrees(body: JSON, settings: JSON) -> bool:
    """Tell whether the settings that a server echoes are those of the request, as far as it echoes them."""
    if type(settings) is not dict:
        return False
    asked = {**body, "max_tokens": body["n_predict"]}
    return all(key == "logit_bias" or key not in settings or alike(asked[key], settings[key]) for key in asked)


def counts_agree(body: JSON, reply: JSON) -> bool:
    """Tell whether the counts of a reply are those of the prompt that was sent, of each other and of its steps."""
    length, parts, made = reply["tokens_evaluated"], (reply["cache_n"], reply["prompt_n"]), reply["steps"]
    whole = None in (length, *parts) or sum(parts) == length
    own = reply["predicted_n"] in (None, made) and reply["tokens_predicted"] in (None, made)
    return bool(whole and own and length in (None, len(body["prompt"])) and made <= body["n_predict"])


def biased(settings: JSON) -> set[int]:
    """Return the ids whose logits the server says it changed before sampling."""
    named = settings.get("logit_bias")
    found = [entry.get("token") for entry in named if type(entry) is dict] if type(named) is list else []
    return {token for token in found if type(token) is int}


def alike(sent: JSON, echoed: JSON) -> bool:
    """Compare what was sent with its echo: numbers as float32, two integers exactly."""
    kinds = {type(sent), type(echoed)}
    if kinds in ({float}, {int, float}):
        return bool(array("f", [sent]) == array("f", [echoed]))
    if kinds == {list}:
        return len(sent) == len(echoed) and all(map(alike, sent, echoed))
    return len(kinds) == 1 and bool(sent == echoed)


# 8. Evidence of a unit, proof of a trial, fate of a trial. ------------------------------------------------------------

MS = 1e6  # nanoseconds
COUNTERS = ("prompt_tokens_total", "tokens_predicted_total")
EXCLUDED = ("cross-talk", "failed", "set aside", "short", "tainted", "unsupported", "vacuous")


class Window(NamedTuple):
    """When the server worked on a request: nanoseconds of the monotonic clock."""

    begin: float
    end: float
    prompt: float
    predicted: float


class Fate:
    """What became of one measured trial."""

    __slots__ = ("outcome", "reason", "state", "trial", "weak")

    def __init__(self, trial: Trial, state: str, reason: str = "", weak: bool = False, outcome: str = "") -> None:  # noqa: FBT001, FBT002
        self.trial, self.state, self.reason, self.weak, self.outcome = trial, state, reason, weak, outcome


def usable_of(fates: list[Fate]) -> list[Fate]:
    """Return the usable ones."""
    return [fate for fate in fates if fate.state == "usable"]


def printed(text: str) -> float | None:
    """Return the number that a server printed, or None where it is none."""
    number = DECIMAL.fullmatch(text)
    return None if number is None else float(number[0])


def window(line: Answer | None) -> Window | None:
    """Return the processing window of a complete line, or None where it cannot be known."""
    if line is None or None in (line.prompt_ms, line.predicted_ms, line.last_byte_ns):
        return None
    end, spent = float(line.last_byte_ns), (line.prompt_ms + line.predicted_ms) * MS
    if end - spent < line.sent_ns:
        return None  # the server cannot have begun before it was asked
    return Window(end - spent, end, line.prompt_ms * MS, line.predicted_ms * MS)


def classes(results: dict[str, JSON], level: str) -> dict[str, int]:
    """Sort trials by digest and number the classes of equal ones."""
    numbers, number, before = {}, 0, None
    for value, name in sorted((result[level] or "", name) for name, result in results.items()):
        number += value != before
        before, numbers[name] = value, number
    return numbers


class Judge:
    """Judges the units and trials of one server."""

    def __init__(self, run: Run, server: Server) -> None:
        self.run, self.server, self.ledger = run, server, run.ledger
        self.last: dict[str, Attempt] = {}
        self.results: dict[str, JSON] = {}  # of each complete trial the reply, or what its one-step replies joined to
        self.found: dict[str, dict[str, tuple[str, bool]]] = {}  # what was judged before, of each unit or trial
        for unit in run.order:
            tried, skip = server.attempts.get(unit.id), server.skips.get(unit.id)
            if not tried or (skip and skip["n"] > tried[-1].since):
                continue
            self.last[unit.id] = tried[-1]
            for trial in filter(tried[-1].complete, unit.trials):
                result = tried[-1].replies(trial)[-1]
                result = result["joined"] if trial.prefixes else result
                if result:
                    self.results[trial.id] = result
        self.numbers = [line["n"] for line in server.lines]
        self.unsteady: set[str] = set()  # references that do not repeat solo
        self.logprob, self.token = classes(self.results, "logprob"), classes(self.results, "token")
        self.ends = all(f"canary/{name}" in self.results for name in ("first", "last"))
        baselines = (trial for trial in run.trials.values() if trial.condition == "baseline")
        self.baselines = [trial for trial in baselines if trial.id in self.results]
        self.owners: dict[str, list[Trial]] = {}
        for trial in self.baselines:
            self.owners.setdefault(self.results[trial.id]["logprob"], []).append(trial)
        self.references = {trial.reference for trial in run.trials.values()}
        self.fates = [self.fate(trial) for trial in run.trials.values() if trial.reference]
        self.set_aside()

    def fact_of(self, trial: Trial) -> str:
        """Return the digest of the prompt fact of a trial."""
        return str(self.run.manifest["prompts"][self.server.label][trial.key])

    def evidence(self, name: str) -> tuple[str, bool]:
        """Return why a unit is tainted (empty: it is not), and whether the evidence is weak."""
        return self.once("unit", name, self.taint)

    def taint(self, name: str) -> tuple[str, bool]:
        """Judge what `evidence` returns."""
        checks = {"idle": self.idle, "accounting": self.accounting, "same server": self.same_server}
        status = {check: judged(self.last[name]) for check, judged in checks.items()}
        items = [(check, value != "failed") for check, value in status.items()]
        return self.failing(*items, weak="weak" in status.values())

    def once(self, what: str, name: str, judged: Callable[[str], tuple[str, bool]]) -> tuple[str, bool]:
        """Judge at the first time, and remember: the checks of a unit count once."""
        found = self.found.setdefault(what, {})
        if name not in found:
            found[name] = judged(name)
        return found[name]

    def of_trial(self, what: str, trial: Trial, judged: Callable[[str], tuple[str, bool]]) -> tuple[str, bool]:
        """Judge a trial, and remember it where others refer to it."""
        return self.once(what, trial.id, judged) if trial.id in self.references else judged(trial.id)

    def idle(self, attempt: Attempt) -> str:
        """Judge whether nothing was going on before and after."""
        shots = [attempt.before, attempt.after]
        if None in shots:
            return "failed"
        slots = [shot["slots"] for shot in shots]
        metrics = [shot["metrics"] for shot in shots]
        texts = [(one or {}).get(key) for one in metrics for key in ("requests_processing", "requests_deferred")]
        busy = any(slot[1] for rows in slots for slot in rows or [])
        numbered = [list(range(self.server.attested["slots"])), None]
        strange = any((rows and [slot[0] for slot in rows]) not in numbered for rows in slots)
        hidden = 1 in (slots.count(None), metrics.count(None))
        if busy or strange or hidden or any(printed(text) != 0 for text in texts if text is not None):
            return "failed"
        return "weak" if None in slots or None in texts else "held"

    def accounting(self, attempt: Attempt) -> str:
        """Judge whether the server counted our own tokens and no others."""
        replies = [line.reply for line in attempt.completes.values()]
        if len(replies) < len(attempt.invokes) or None in replies or not attempt.before or not attempt.after:
            return "failed"
        before, after = attempt.before["metrics"], attempt.after["metrics"]
        if self.fallen(attempt.earlier, attempt.before):
            return "failed"
        if before is None or after is None:
            return "weak"
        status = "held"
        for counter, key in zip(COUNTERS, ("prompt_n", "predicted_n")):
            texts, own = [before[counter], after[counter]], [reply[key] for reply in replies]
            values = [printed(text) for text in texts if text is not None]
            if None in values:
                return "failed"
            if None in texts or None in own or max(value or 0.0 for value in values) > 999_999:
                status = "weak"
            elif (values[1] or 0.0) - (values[0] or 0.0) != sum(own):
                return "failed"
        return status

    def fallen(self, earlier: JSON, before: JSON) -> bool:
        """Tell whether a counter of tokens is lower than it was in an earlier snapshot of the same process."""
        if earlier is None or earlier["process"] != before["process"]:
            return False
        for counter in COUNTERS:
            texts = [(shot["metrics"] or {}).get(counter) for shot in (earlier, before)]
            old, new = (None if text is None else printed(text) for text in texts)
            if old is not None and new is not None and new < old:
                return True
        return False

    def same_server(self, attempt: Attempt) -> str:
        """Judge whether the server was before and after the one that its latest server line names."""
        for shot in (attempt.before, attempt.after):
            if shot is None:
                return "failed"
            place = bisect.bisect(self.numbers, shot["n"]) - 1
            said = self.server.lines[place]["attested"] if place >= 0 else {"props": None, "process": None}
            same = shot["props"] == said["props"] and shot["process"] == said["process"]
            if place < 0 or not same or not self.server.trusted[place]:
                return "failed"
        return "held"

    def basic(self, name: str) -> tuple[str, bool]:
        """Return which item fails that every trial must prove (empty: none): cache off, slot as asked."""
        trial = self.run.trials[name]
        replies = self.last[trial.unit].replies(trial)
        off = all(reply["cache_n"] == 0 and reply["prompt_n"] == reply["tokens_evaluated"] for reply in replies)
        pinned = all(reply["id_slot"] == trial.slot for reply in replies)
        return self.failing(("cache", trial.cache or off), ("slot", trial.slot < 0 or pinned))

    def failing(self, *items: tuple[str, JSON], weak: bool = False) -> tuple[str, bool]:
        """Count the items of a proof; return the first that fails (or nothing), and whether the proof is weak."""
        failed = [name for name, truth in items if not self.ledger.judge(name, truth)]
        return failed[0] if failed else "", weak

    def proof(self, trial: Trial) -> tuple[str, bool]:
        """Return which item of a trial's proof fails (empty: none), and whether the proof is weak."""
        failed, condition = self.of_trial("trial", trial, self.basic)[0], base(trial.condition)
        if failed:
            return failed, False
        if condition == "oversubscribed":
            return self.once("wave", trial.unit, self.crowded)
        if condition.startswith("concurrent_") or condition == "wave_repeat":
            own = self.once("wave", trial.unit, self.together)
            if condition != "wave_repeat":
                return own
            other = self.once("wave", self.run.trials[trial.reference].unit, self.together)
            return other[0] or own[0], other[1] or own[1]
        if condition.startswith("cross_batch_"):
            return self.crossed(trial)
        if condition.startswith("cache_"):
            return self.cached(trial)
        if condition in ("first_request", "restart"):
            return self.fresh(trial)
        if condition == "idle_neighbour":
            return self.beside(trial)
        if condition == "other_slot":
            return self.failing(("slot", trial.slot != 0))
        if condition == "prefill_vs_decode":
            lengths = [reply["tokens_evaluated"] for reply in self.last[trial.unit].replies(trial)]
            growing = None not in lengths and all(b - a == 1 for a, b in zip(lengths, lengths[1:]))
            same = trial.prefixes or self.token[trial.id] == self.token[trial.reference]
            return self.failing(("ids", same), ("prefix", growing or not trial.prefixes))
        return "", False

    def lines_of(self, unit: str) -> list[Answer | None]:
        """Return the complete lines of a wave, in the order of its members."""
        return [self.last[unit].completes.get((trial.id, 0)) for trial in self.run.units[unit].trials]

    def slots_of(self, unit: str) -> set[int]:
        """Return the slots that the replies of a wave name."""
        return {line["id_slot"] for line in self.lines_of(unit) if line and line.reply} - {None}

    def together(self, unit: str) -> tuple[str, bool]:
        """Prove that all members of a wave were worked on at once."""
        windows = [window(line) for line in self.lines_of(unit)]
        known = [one for one in windows if one]
        overlap = len(known) == len(windows)
        if overlap:
            common = min(one.end for one in known) - max(one.begin for one in known)
            overlap = common >= 0.5 * min(one.end - one.begin for one in known)
        busy, distinct = self.busy_slots(self.last[unit]), len(self.slots_of(unit)) == len(windows)
        items = ("windows", overlap), ("slots", distinct), ("busy", busy is None or 5 * busy >= 4 * len(windows))
        return self.failing(*items, weak=busy is None)

    def busy_slots(self, attempt: Attempt) -> Fraction | None:
        """Return the mean number of busy slots over an attempt; None where the server does not offer it."""
        shots = [(shot or {"metrics": None})["metrics"] or {} for shot in (attempt.before, attempt.after)]
        texts = [shot.get(key) for shot in shots for key in ("n_busy_slots_per_decode", "n_decode_total")]
        if None in texts:
            return None
        if None in [printed(text or "") for text in texts]:
            return Fraction(0)
        b0, n0, b1, n1 = (Fraction(text or 0) for text in texts)
        return (b1 * n1 - b0 * n0) / (n1 - n0) if n1 > n0 else Fraction(0)

    def crowded(self, unit: str) -> tuple[str, bool]:
        """Prove that more requests than slots filled every slot, and that the rest waited."""
        slots, lines = int(self.server.attested["slots"]), self.lines_of(unit)
        known = sorted((one for one in map(window, lines) if one), key=lambda one: one.end)
        # Each window is shortened by 1 ms on both sides, so touching ends do not count. Ends sort before begins.
        cut = [(one.begin + MS, one.end - MS) for one in known if one.begin + MS < one.end - MS]
        changes = sorted([(begin, 1) for begin, _ in cut] + [(end, -1) for _, end in cut])
        deepest = max(itertools.accumulate(change for _, change in changes), default=0)
        waited = all(one.begin >= known[0].end - 2 * MS for one in known[slots:])
        whole, filled = len(known) == len(lines), self.slots_of(unit) == set(range(slots))
        return self.failing(("windows", whole and deepest == slots), ("slots", filled), ("queue", whole and waited))

    def crossed(self, trial: Trial) -> tuple[str, bool]:
        """Prove that the neighbours of a wave covered its member, or that one of them prefilled in its decoding."""
        member, *others = (window(line) for line in self.lines_of(trial.unit))
        neighbours = [one for one in others if one]
        if member is None:
            return self.failing(("windows", ""))
        if trial.condition == "cross_batch_together":
            need = 0.9 * (member.end - member.begin)
            shared = [min(one.end, member.end) - max(one.begin, member.begin) for one in neighbours]
            whole = shared and None not in others
            return self.failing(("windows", whole and all(length >= need for length in shared)))
        middles = [one.begin + one.prompt / 2 for one in neighbours]
        return self.failing(("windows", any(member.end - member.predicted <= at <= member.end for at in middles)))

    def cached(self, trial: Trial) -> tuple[str, bool]:
        """Prove that the prompt cache was cold, warm, or held a prefix."""
        reply = self.last[trial.unit].replies(trial)[0]
        reused, fresh, length = reply["cache_n"], reply["prompt_n"], reply["tokens_evaluated"]
        if None in (reused, fresh, length):
            return self.failing(("cache", ""))
        if trial.condition == "cache_prefix":
            right = 2 <= reused < length
        else:
            right = length >= 64 and (reused <= 1 if trial.condition == "cache_cold" else 2 * reused >= length)
        return self.failing(("cache", right and reused + fresh == length))

    def fresh(self, trial: Trial) -> tuple[str, bool]:
        """Prove that a trial was the first request of a new process."""
        attempt, lines = self.last[trial.unit], self.server.lines
        at = attempt.invokes[trial.id, 0]
        phases = ("start", "restart") if trial.family == "first_request" else ("restart",)
        places = [place for place, line in enumerate(lines) if line["n"] < at and line["phase"] in phases]
        if not places:
            return self.failing(("process", ""))
        line, earlier = lines[places[-1]], lines[: places[-1]]
        invoked = self.server.invoked
        between = bisect.bisect_left(invoked, at) - bisect.bisect(invoked, line["n"])
        new = all(line["attested"]["process"] != other["attested"]["process"] for other in earlier)
        follows = line["phase"] == "start" or (attempt.before or {"n": -1})["n"] == line["n"] + 1
        return self.failing(("process", between == 0 and new and follows))

    def beside(self, trial: Trial) -> tuple[str, bool]:
        """Prove that another conversation rested in slot 1."""
        slots = (self.last[trial.unit].before or {"slots": None})["slots"]
        neighbour = self.run.trials[f"{trial.block}/neighbour"]
        held, reply = [slot for slot in slots or [] if slot[0] == 1], self.results.get(neighbour.id)
        if slots is None and reply:
            return "", True
        length = reply["tokens_evaluated"] if reply else None
        if not held or held[0][1] or length is None:
            return self.failing(("neighbour", ""))
        if held[0][2] is None:
            return "", True
        return self.failing(("neighbour", held[0][2] >= length))

    def fate(self, trial: Trial) -> Fate:
        """Judge one measured trial: the first rule that applies."""
        attempt, reference = self.last.get(trial.unit), self.run.trials[trial.reference]
        compared = self.last.get(reference.unit)
        if (attempt and trial.id in attempt.unsupported) or (compared and reference.id in compared.unsupported):
            return Fate(trial, "unsupported")
        if self.for_slots(trial.unit):
            return Fate(trial, "vacuous", "slots")
        if not (trial.id in self.results and reference.id in self.results):
            return Fate(trial, "failed")
        reasons = [reason for reason in (self.evidence(trial.unit)[0], self.evidence(reference.unit)[0]) if reason]
        if not self.ledger.judge("canary", len(self.server.canaries) < 2):
            reasons.append("canary")
        if reasons:
            return Fate(trial, "tainted", reasons[0])
        if self.crosstalk(trial):
            return Fate(trial, "cross-talk")
        failed, weak = self.proof(trial)
        failed = failed or self.of_trial("trial", reference, self.basic)[0]
        if failed:
            return Fate(trial, "vacuous", failed)
        own, other = self.results[trial.id], self.results[reference.id]
        if not self.ledger.judge("length", min(own["steps"], other["steps"]) >= 8):
            return Fate(trial, "short")
        outcome = "divergent"
        if self.logprob[trial.id] == self.logprob[reference.id] and not own["holes"] and not other["holes"]:
            outcome = "identical"
        elif self.token[trial.id] == self.token[reference.id]:
            outcome = "token-identical"
        return Fate(trial, "usable", "", weak or self.evidence(trial.unit)[1], outcome)

    def for_slots(self, unit: str) -> bool:
        """Tell whether a unit was skipped because the server has too few slots."""
        return unit not in self.last and unit in self.server.skips and self.server.skips[unit]["reason"] == "slots"

    def crosstalk(self, trial: Trial) -> bool:
        """Tell whether a reply belongs to another prompt."""
        both = trial, self.run.trials[trial.reference]
        mixed_up = any(self.of_trial("echo", one, self.misdirected)[0] for one in both)
        if trial.family != "control_prompt":
            own, said = self.fact_of(trial), self.results[trial.id]["logprob"]
            like = self.owners.get(said, [])
            other = any(one.key != trial.key and self.fact_of(one) != own for one in like)
            mixed_up = not self.ledger.judge("other baseline", not other) or mixed_up
        return mixed_up

    def misdirected(self, name: str) -> tuple[str, bool]:
        """Tell whether a reply echoes another prompt than the one that was sent."""
        trial = self.run.trials[name]
        wanted = self.run.echo(self.server.label, trial.key)
        if wanted is None:
            self.ledger.unchecked["prompt echoes"] += 1
        if wanted is None or trial.prefixes:
            return "", False
        replies = self.last[trial.unit].replies(trial)
        return self.failing(*[("prompt echo", reply["prompt_echo"] in (None, wanted)) for reply in replies])

    def set_aside(self) -> None:
        """Set trials of waves aside whose slot does not agree with the baseline when alone."""
        usable = usable_of(self.fates)
        unlike = [fate.trial for fate in usable if fate.outcome != "identical"]
        self.unsteady.update(trial.reference for trial in unlike if trial.condition.startswith("repeat_"))
        bad = {(one.key, self.results[one.id]["id_slot"]) for one in unlike if one.condition == "other_slot"}
        for fate in usable:
            trial = fate.trial
            if base(trial.condition) in (*LEVELLED, "wave_repeat"):
                names = [trial.id, trial.reference] if trial.condition == "wave_repeat" else [trial.id]
                fine = all((trial.key, self.results[name]["id_slot"]) not in bad for name in names)
                if not self.ledger.judge("solo slot", fine):
                    fate.state = "set aside"


# 9. Cells, waves, instrument, predictions: findings. ------------------------------------------------------------------

JUDGED = ("unstable", "divergent", "token-identical", "identical")
MILLION = 10**6


def rare(n: int, first: int, last: int, j: int, level: int) -> bool:
    """Tell whether P(first <= X <= last) <= level / 1000 for X of n trials that each succeed with j / 1,000,000.

    In floats where they decide, else with whole numbers: no rounding takes part.
    """
    if j in (0, MILLION):
        return not first <= (n if j else 0) <= last
    if first * MILLION + MILLION <= j * n <= last * MILLION - MILLION:
        return False  # the median of a binomial lies within 1 of its mean, so this is more than half of it
    log_p, log_q, log_ways = math.log(j / MILLION), math.log1p(-j / MILLION), math.lgamma(n + 1)
    terms: list[float] = []
    # From the end nearer to the mean, outwards: there the terms fall, and what is left below 1e-25 adds nothing.
    for i in range(first, last + 1) if last == n else range(last, first - 1, -1):
        terms.append(math.exp(log_ways - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q))
        if len(terms) > 1 and terms[-1] < min(1e-25, terms[-2]):
            break
    ratio = math.fsum(terms) * 1000 / level
    if abs(ratio - 1) > 1e-6:
        return bool(ratio < 1)
    exact = sum(math.comb(n, i) * j**i * (MILLION - j) ** (n - i) for i in range(first, last + 1))
    return bool(exact * 1000 <= level * MILLION**n)


def least(test: Callable[[int], bool], low: int, high: int) -> int:
    """Return the least number in low .. high that passes a test which all greater ones pass too, by bisection."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


@functools.lru_cache(maxsize=None)
def bounds(k: int, n: int) -> tuple[float, float]:
    """Return the exact 95 % bounds of a rate, rounded outwards to 6 decimals; one-sided where k is 0 or n."""
    level = 50 if k in (0, n) else 25
    if n == 0:
        return 0.0, 1.0
    low = 0 if k == 0 else least(lambda j: not rare(n, k, n, j, level), 0, MILLION) - 1
    high = MILLION if k == n else least(lambda j: rare(n, 0, k, j, level), 0, MILLION)
    return low / MILLION, high / MILLION


def rate(k: int, n: int) -> dict[str, JSON]:
    """Return a rate with its bounds."""
    low, high = bounds(k, n)
    return {"divergent": k, "n": n, "low": low, "high": high}


def cell_of(judge: Judge, condition: str, fates: list[Fate]) -> dict[str, JSON]:
    """Return one cell: a condition on a server."""
    usable, results = usable_of(fates), judge.results
    minimum = minimum_of(judge.run.plan, condition, [fate.trial for fate in fates])
    states = Counter(fate.state for fate in fates)
    unlike = [fate for fate in usable if fate.outcome != "identical"]
    # Without logprobs nothing but tokens can be identical.
    diverging = [fate for fate in unlike if condition != "without_logprobs" or fate.outcome == "divergent"]
    waves, waves_diverging = ({fate.trial.unit for fate in some} for some in (usable, diverging))
    holes = any(results[name]["holes"] for fate in usable for name in (fate.trial.id, fate.trial.reference))
    return {
        "server": judge.server.label,
        "condition": condition,
        "verdict": verdict_of(judge, condition, fates, minimum),
        "reason": f"{len(usable)} of {len(fates)} usable",
        "qualifiers": ["partial"] * holes + ["weak"] * any(fate.weak for fate in usable),
        "planned": len(fates),
        "usable": len(usable),
        "minimum": minimum,
        "excluded": {state: states[state] for state in EXCLUDED},
        "reasons": dict(Counter(fate.reason for fate in fates if fate.reason)),
        "logprob_identical": len(usable) - len(unlike),
        "token_identical": sum(fate.outcome != "divergent" for fate in usable),
        "distinct": len({(fate.trial.reference, judge.logprob[fate.trial.id]) for fate in usable}),
        "by_trial": rate(len(diverging), len(usable)),
        "by_wave": rate(len(waves_diverging), len(waves)),
        "witness": witness_of(judge, condition, unlike),
        "consequence": None,
    }


def minimum_of(plan: JSON, condition: str, trials: list[Trial]) -> int:
    """Return how many usable trials a cell needs: what its entries ask, and all that other conditions' entries lend."""
    total = 0
    for number in {trial.entry for trial in trials}:
        here, entry = [trial for trial in trials if trial.entry == number], plan["conditions"][number]
        lent = condition == "repeat_greedy" and entry["name"] != condition
        if lent or entry["minimum"] is None:
            total += len(here)
        elif condition == "wave_repeat":
            for level in entry["levels"]:
                waves, again = entry["count"], min(entry["again"], entry["count"])
                own = min(entry["minimum"], waves * level * len(entry["prompts"]))
                total += -(-own * again // waves)
        else:
            total += min(entry["minimum"], len(here))
    return total


def verdict_of(judge: Judge, condition: str, fates: list[Fate], minimum: int) -> str:
    """Return the verdict of a cell: the first rule that applies."""
    usable, states = usable_of(fates), {fate.state for fate in fates}
    if "unsupported" in states:
        return "unsupported"
    if not any(fate.trial.id in judge.results or judge.for_slots(fate.trial.unit) for fate in fates):
        return "not run"
    for state in ("tainted", "cross-talk"):
        if state in states:
            return state
    if "vacuous" in states and len(usable) < minimum:
        return "vacuous"
    if len(usable) < max(minimum, 1):
        return "insufficient"
    if not condition.startswith("repeat_") and any(fate.trial.reference in judge.unsteady for fate in usable):
        return "unstable"
    outcomes = {fate.outcome for fate in usable}
    return next(outcome for outcome in ("divergent", "token-identical", "identical") if outcome in outcomes)


Difference = tuple[int, str, int, JSON, JSON, bool]  # step, level, rank, both logprobs, whether of one token


def first_difference(own: list[JSON], other: list[JSON], *, ids_only: bool) -> Difference | None:
    """Return where two streams first differ; None where nothing does."""
    for at, (step, old) in enumerate(zip(own, other)):
        if step[0] != old[0]:
            return at, "token", -1, step[1], old[1], True
        if ids_only:
            continue
        if not same(step[1], old[1]):
            return at, "logprob", -1, step[1], old[1], True
        for rank in range(max(len(step[2]), len(old[2]))):
            mine, theirs = ((entries[rank : rank + 1] or [[None, None]])[0] for entries in (step[2], old[2]))
            if mine[0] != theirs[0] or not same(mine[1], theirs[1]):
                return at, "logprob", rank, mine[1], theirs[1], mine[0] == theirs[0]
    if len(own) == len(other):
        return None
    at = min(len(own), len(other))
    values = [steps[at][1] if at < len(steps) else None for steps in (own, other)]
    return at, "length", -1, values[0], values[1], True


def same(one: float | None, other: float | None) -> bool:
    """Tell whether two logprobs have the same canonical text: zeros of two signs have not."""
    return repr(one) == repr(other)


def float32(value: float) -> bool:
    """Tell whether a logprob is a float32 value."""
    return bool(array("f", [value])[0] == value)


def ordinal(value: float) -> int:
    """Return the place of a float32 among all of them, in order; both zeros have one."""
    bits = int(struct.unpack("<i", struct.pack("<f", value))[0])
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def witness_of(judge: Judge, condition: str, fates: list[Fate]) -> JSON:
    """Return the difference of a cell that comes first, or None where there is none or no stream to read."""
    best: JSON = None
    compared: dict[JSON, JSON] = {}
    for fate in fates:
        names = (fate.trial.id, fate.trial.reference)
        digests = tuple(judge.results[name]["logprob"] for name in names)
        if None in [judge.run.stream(wanted) for wanted in digests]:
            judge.run.unread.add((judge.server.label, condition))
            return None
        if digests not in compared:
            own, other = map(judge.run.steps, digests)
            compared[digests] = first_difference(own, other, ids_only=condition == "without_logprobs")
        found = compared[digests]
        if found is not None and (best is None or (found[0], names) < (best[0][0], best[1])):
            other = judge.run.steps(digests[1])
            best = found, names, other[found[0]][2] if found[0] < len(other) else []
    if best is None:
        return None
    (step, level, rank, value, reference, one_token), names, entries = best
    both = None not in (value, reference) and one_token
    top = sorted((logprob for _, logprob in entries if logprob is not None), reverse=True)
    return {
        "trial": names[0],
        "reference": names[1],
        "step": step,
        "level": level,
        "rank": rank,
        "value": value,
        "reference_value": reference,
        "value_hex": None if value is None else value.hex(),
        "reference_hex": None if reference is None else reference.hex(),
        "ulp": abs(ordinal(value) - ordinal(reference)) if both and float32(value) and float32(reference) else None,
        "nats": value - reference if both else None,
        "margin": top[0] - top[1] if len(top) > 1 else None,
    }


def waves_of(judge: Judge) -> list[dict[str, JSON]]:
    """Return the three claims about waves, for each level and kind that was planned."""
    rows, results = [], judge.results
    groups: dict[tuple[str, int], list[Fate]] = {}
    for fate in judge.fates:
        if fate.trial.family.startswith("concurrent_"):
            level = int(fate.trial.block.split("/")[0].rpartition("_c")[2])
            groups.setdefault((fate.trial.family[11:], level), []).append(fate)
    for (kind, level), fates in sorted(groups.items()):
        usable = usable_of(fates)
        again = [fate.outcome == "identical" for fate in usable if fate.trial.condition == "wave_repeat"]
        prompts: dict[str, list[Trial]] = {}
        for fate in usable:
            prompts.setdefault(fate.trial.key, []).append(fate.trial)
        several = [members for members in prompts.values() if len({trial.unit for trial in members}) > 1]
        whole = [members for members in several if not any(results[trial.id]["holes"] for trial in members)]
        alone = [members in whole and len({judge.logprob[trial.id] for trial in members}) == 1 for members in several]
        invariant = []
        for members in prompts.values():
            pairs = [(results[trial.id], results.get(trial.group)) for trial in members]
            same = [b and a["logprob"] == b["logprob"] and not a["holes"] + b["holes"] for a, b in pairs]
            invariant.append(all(same))
        claims = {"repeatable": again, "wave_independent": alone, "batch_invariant": invariant}
        row = {"server": judge.server.label, "kind": kind, "level": level}
        row["waves"] = len({fate.trial.unit for fate in usable})
        rows.append({**row, **{name: {"k": sum(truths), "n": len(truths)} for name, truths in claims.items()}})
    return rows


def thresholds_of(label: str, cells: list[JSON]) -> list[dict[str, JSON]]:
    """Return, greedy and seeded, the largest level up to which no wave of a server diverged."""
    rows = []
    for kind in ("greedy", "seeded"):
        own = [cell for cell in cells if cell["server"] == label and base(cell["condition"]) == f"concurrent_{kind}"]
        fine = [cell["verdict"] in JUDGED and cell["by_wave"]["divergent"] == 0 for cell in own]
        count = [*fine, False].index(False)
        levels = [None, *(place_of(cell["condition"])[1] for cell in own), None]
        wave = own[count - 1]["by_wave"] if count else {"n": None, "high": None}
        row = {"server": label, "kind": kind, "level": levels[count], "waves": wave["n"], "high": wave["high"]}
        rows += [{**row, "above": levels[count + 1]}] if own else []
    return rows


def instrument_of(judge: Judge) -> list[dict[str, JSON]]:
    """Return the checks of the instrument on one server."""
    run, server, rows = judge.run, judge.server, []

    def add(check: str, status: str, k: int, n: int) -> None:
        rows.append({"server": server.label, "check": check, "status": status, "k": k, "n": n})

    for control in ("control_prompt", "control_seed", "control_temperature"):
        fates = [fate for fate in judge.fates if fate.trial.condition == control]
        usable = usable_of(fates)
        same = ("identical",) if control == "control_prompt" else ("identical", "token-identical")
        k = sum(fate.outcome not in same for fate in usable)
        status = "failed" if k < len(usable) else "incomplete" if len(usable) < len(fates) else "held"
        if fates:
            add(control, status, k, len(fates))
    both, equal = judge.ends, len(server.canaries) == 1
    add("canary", ("held" if equal else "failed") if both else "incomplete", int(both and equal), 1)
    streams = [run.stream(wanted) for wanted in sorted(server.files)]
    here = [stream for stream in streams if stream is not None]
    if len(here) < len(streams):
        run.unread.update((server.label, name) for name in ("float32", "top_k", "one_ulp", "parse_twice"))
    counts = {"float32": [stream.float32 for stream in here]}
    limit = server.attested["vocabulary"] or LIMIT
    asked = [stream for stream in here if stream.n_probs > 0]
    counts["top_k"] = [(sum(most < limit for most in stream.ordered), stream.filled) for stream in asked]
    counts.update({name: [(sum(agreed), len(agreed))] for name, agreed in server.told.items()})
    for name, pairs in counts.items():
        k, n = (sum(pair[place] for pair in pairs) for place in (0, 1))
        complete = n > 0 and (server.label, name) not in run.unread
        add(name, ("held" if k == n else "failed") if complete else "incomplete", k, n)
    for name, truth in zip(("one_ulp", "parse_twice"), sensitivity(judge)):
        add(name, "incomplete" if truth is None else "held" if truth else "failed", int(truth or 0), 1)
    return rows


def sensitivity(judge: Judge) -> tuple[bool | None, bool | None]:
    """Tell whether one ULP in the first baseline is seen, and whether reading it twice gives the same."""
    run = judge.run
    wanted = judge.results[judge.baselines[0].id]["logprob"] if judge.baselines else None
    stream = run.stream(wanted)
    if wanted is None or stream is None:
        return None, None
    head, steps = {"dialect": "completion", "format": 1, "n_probs": stream.n_probs}, run.steps(wanted)
    again = digest(b"".join(map(encode, [head, *steps])))
    at = next((at for at, step in enumerate(steps) if len(step[2]) == stream.n_probs > 0), None)
    if at is None or steps[at][2][-1][1] is None:
        return None, again == wanted
    if not float32(steps[at][2][-1][1]):
        return False, again == wanted
    moved = json.loads(json.dumps(steps))
    place = ordinal(steps[at][2][-1][1])
    place += 1 if place < 0 else -1
    moved[at][2][-1][1] = struct.unpack("<f", struct.pack("<I", abs(place) | (0x80000000 if place < 0 else 0)))[0]
    found = first_difference(moved, steps, ids_only=False)
    seen = found is not None and found[0] == at and abs(ordinal(found[3]) - ordinal(found[4])) == 1
    return seen and digest(b"".join(map(encode, [head, *moved]))) != wanted, again == wanted


def meets(rule: JSON, k: float, n: int) -> bool:
    """Tell whether k of n meets a rule, compared exactly."""
    tests = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt}
    return bool(tests[rule["op"]](Fraction(k), Fraction(repr(rule["value"])) * n))


def prediction_of(prediction: JSON, cells: list[JSON], instrument: list[JSON]) -> dict[str, JSON]:
    """Return one prediction with its status: the first rule that applies."""
    rows, judged, left_out = [], [], False
    servers = {cell["server"] for cell in cells} if prediction["servers"] == "*" else prediction["servers"]
    listed = [cell for cell in cells if cell["condition"] in prediction["conditions"] and cell["server"] in servers]
    for cell in listed:
        k, n = cell.get(prediction["measure"], 0), cell["usable"]
        if prediction["measure"] == "waves_identical":
            k, n = cell["by_wave"]["n"] - cell["by_wave"]["divergent"], cell["by_wave"]["n"]
        rows.append({**{key: cell[key] for key in ("server", "condition", "verdict")}, "k": k, "n": n})
        stable = cell["verdict"] != "unstable" or cell["condition"].startswith("repeat_")
        if cell["verdict"] in JUDGED and stable:
            judged.append((k, n))
        elif prediction["unit"] == "cell":
            left_out = True
    total = sum(k for k, _ in judged), sum(n for _, n in judged)
    pools = [total] if prediction["unit"] == "pooled" else judged
    lacking = {(cell["server"], name) for cell in listed for name in prediction["requires"]}
    lacking -= {(row["server"], row["check"]) for row in instrument if row["status"] == "held"}
    enough = [pool for pool in pools if pool[1] >= prediction["minimum"]]
    met = [tuple(meets(prediction[rule], *pool) for rule in ("holds", "refuted")) for pool in enough]
    status = "inconclusive"
    if not listed:
        status = "not applicable"
    elif not lacking and judged and (False, True) in met:
        status = "refuted"
    elif not lacking and judged and set(met) == {(True, False)} and enough == pools and not left_out:
        status = "holds"
    kept = {"id": prediction["id"], "statement": prediction["statement"], "status": status}
    return {**kept, "k": total[0], "n": total[1], "cells": rows}


def findings_of(run: Run) -> dict[str, JSON]:
    """Return what findings.json must hold, the reasons for people excepted."""
    cells: list[JSON] = []
    instrument: list[JSON] = []
    waves: list[JSON] = []
    for server in run.servers.values():
        judge = Judge(run, server)
        for condition in sorted({fate.trial.condition for fate in judge.fates}, key=place_of):
            here = [fate for fate in judge.fates if fate.trial.condition == condition]
            cells.append(cell_of(judge, condition, here))
        waves += waves_of(judge)
        instrument += instrument_of(judge)
    must = ("control_prompt", "control_seed", "control_temperature", "canary")
    bad = [row for row in instrument if row["status"] == "failed" or (row["check"] in must and row["status"] != "held")]
    sound = not bad and any(cell["verdict"] in JUDGED for cell in cells)
    registration = run.manifest["registration"]
    status = registration["status"] if registration else "not registered"
    return {
        "format": 1,
        "kind": "audit",
        "seal": run.seal_digest,
        "sound": sound,
        "conclusion": "sound" if sound else "inconclusive",
        "instrument": instrument,
        "cells": cells,
        "pooled": pooled_of(cells),
        "waves": waves,
        "thresholds": [row for label in run.servers for row in thresholds_of(label, cells)],
        "predictions": [prediction_of(one, cells, instrument) for one in run.predictions or []],
        "exploratory": None if status == "registered" else status,
    }


def place_of(condition: str) -> tuple[int, int]:
    """Return the place of a condition in the catalogue, levels rising."""
    level = condition[len(base(condition)) + 2 :]
    return CATALOGUE.index(base(condition)), int(level or 0)


def pooled_of(cells: list[JSON]) -> list[dict[str, JSON]]:
    """Return each condition over all servers, where a cell has a verdict from `unstable` on."""
    rows = []
    for condition in sorted({cell["condition"] for cell in cells}, key=place_of):
        here = [cell for cell in cells if cell["condition"] == condition]
        counted = [cell for cell in here if cell["verdict"] in JUDGED]
        row: dict[str, JSON] = {"condition": condition, "servers": {one["server"]: one["verdict"] for one in counted}}
        for key in ("usable", "logprob_identical", "token_identical"):
            row[key] = sum(one[key] for one in counted)
        for key in ("by_trial", "by_wave"):
            row[key] = rate(*(sum(one[key][name] for one in counted) for name in ("divergent", "n")))
        rows += [row] if counted else []
    return rows


# 10. Comparison with findings.json. -----------------------------------------------------------------------------------

IDENTIFIERS = (
    *("server", "condition", "check", "kind", "level", "id"),
    *("build", "cell", "family", "old", "new"),
    *("model", "group", "mode", "side", "slot", "position"),
    *("arm", "setting"),
)


def compare(run: Run, mine: dict[str, JSON]) -> str:
    """Compare the findings computed here with the stored ones; return what was done, in words."""
    if not (run.root / "findings.json").exists():
        return "not there, nothing to compare"
    theirs = document(run, "findings.json")
    skipped = {f"instrument {label} {check}" for label, check in run.unread}
    skipped |= {f"cells {label} {condition}: witness" for label, condition in run.unread}
    said = theirs.get("instrument")
    for row in (row for row in (said if type(said) is list else []) if type(row) is dict):
        # What cannot be read again here may have failed there, which this copy can only take over.
        if f"instrument {row.get('server')} {row.get('check')}" in skipped and row.get("status") == "failed":
            mine["sound"], mine["conclusion"] = False, "inconclusive"
    if run.predictions is None and run.manifest["registration"] is not None:
        skipped.add("predictions")
    differ("", mine, theirs, skipped, run.ledger)
    return "compared"


def differ(where: str, mine: JSON, theirs: JSON, skipped: set[str], ledger: Ledger) -> None:
    """Note every field in which two findings differ, named by cell and field, with both values."""
    if where in skipped:
        ledger.unchecked["findings that this copy cannot show"] += 1
    elif type(mine) is dict and type(theirs) is dict:
        strangers = sorted(mine.keys() ^ theirs.keys())
        ledger.hold("findings", not strangers, "findings.json: {}: only on one side: {}", where or "top", strangers)
        for key in sorted(mine.keys() & theirs.keys() - {"reason", "consequence"}):
            differ(f"{where}: {key}" if where else key, mine[key], theirs[key], skipped, ledger)
    elif type(mine) is list and type(theirs) is list and any(type(entry) is dict for entry in [*mine, *theirs]):
        left, right = ({identity(entry): entry for entry in side} for side in (mine, theirs))
        for name in [*left, *(name for name in right if name not in left)]:
            path = f"{where} {name}"
            if path not in skipped:
                there = name in left and name in right
                ledger.hold("findings", there, "findings.json: {}: only {}", path, "here" if name in left else "there")
            if name in left and name in right:
                differ(path, left[name], right[name], skipped, ledger)
        same = list(left) == list(right) and len(right) == len(theirs)
        ledger.hold("findings", same, "findings.json: {}: in another order, or twice", where)
    else:
        same = encode(mine) == encode(theirs)
        ledger.hold("findings", same, "findings.json: {}: {} there, {} here", where, theirs, mine)


def identity(entry: JSON) -> str:
    """Return the words that name an entry of a list of the findings."""
    return " ".join(str(entry[key]) for key in IDENTIFIERS if key in entry) if type(entry) is dict else repr(entry)


# 11. Records of kind identity: two or more builds, full rows of the same prompts, verdicts by sets of digests. --------

for kind_name, kind_text in {
    "library": "name:str sha256:digest?",
    "lapse": "message:str kind:=start|crash|timeout|reply|rows|dump|forced|no~reference",
    "build": "label:name name:str commit:commit? archive:digest? options:[str] restarts:bool "
    "source:=git|binary|pypi|http",
    "model": "cell:name family:str quantization:str model_sha256:digest vocabulary:int prompts:{digest}",
    "absent": "family:str reason:str",
    "builds": "format:int plan:digest registered:digest python:str registration:registration? program:program "
    "dependencies:{str} machine:machine environment:{[str]} builds:[build] cells:[model] not_run:[absent] "
    "rows:=logits|logprobs kind:=identity",
    "words": "text:str tokens:int",
    "asked": "format:int name:str steps:int threads:int ctx:int batch:int ubatch:int timeout_s:number prompts:{words} "
    "device:=cpu|vulkan|cuda|metal kind:=identity",
    "spelled": "ids:[int] text:str",
    "path": "weights:[str] cache:[str] compute:[str] features:[str]",
    "claim": "id:str statement:str minimum:int models:labels builds:labels measure:=repeats|identical|argmax "
    "holds:rule refuted:rule",
    "claims": "format:int kind:=identity predictions:[claim]",
}.items():
    KINDS[kind_name] = fields(kind_text)
OF_PROCESS = "line:str n:int prev:digest at_ns:int build:str cell:str round:int failure:lapse? "
IDENTITY_SHAPES = {
    **{kind: SHAPES[kind] for kind in ("begin", "interrupt", "end")},
    "process": fields(OF_PROCESS + "executable:digest? libraries:[library] path:digest? phase:=start|end"),
    "capture": fields(OF_PROCESS + "form:=free|forced prompt:str tokens:[int] rows:rows?"),
}
FAMILY_ORDER = ("DIFFERENT", "WITHIN TOLERANCE", "IDENTICAL", "NOT RUN")
GPUS = {"vulkan": "vulkan", "cuda": "cuda", "metal": "metal", "mtl": "metal"}
UNREAD = "rows of cells that differ"


@dataclass
class Sitting:
    """One process of a build on a model: what it answered by (form, prompt), and what it said of itself."""

    answers: dict[tuple[str, str], JSON] = field(default_factory=dict)
    end: JSON = None
    path: JSON = None

    def whole(self, prompts: JSON) -> bool:
        """Tell whether every prompt has free rows."""
        return all(self.rows("free", name) for name in prompts)

    def rows(self, form: str, name: str) -> JSON:
        """Return the line of a capture that has a row for every token, or None."""
        line = self.answers.get((form, name))
        return line if line and line["rows"] and len(line["rows"]["digests"]) == len(line["tokens"]) else None


class Gate:
    """An identity record, read; the sittings by (build, cell, round)."""

    def __init__(self, run: Run) -> None:
        self.run, self.ledger = run, run.ledger
        self.sittings: dict[tuple[str, str, int], Sitting] = {}
        self.tried: dict[str, bool] = {}
        self.unread = False

    def load(self) -> None:
        """Read manifest, plan and registration, and check what they say of each other."""
        run, ledger, manifest = self.run, self.ledger, self.run.manifest
        require(manifest, KINDS["builds"], "manifest.json", ledger)
        ledger.need("files", "plan.json" in run.seal and "plan.json" not in run.omitted, "plan.json is left out")
        run.plan = document(run, "plan.json", KINDS["asked"])
        ledger.hold("manifest", manifest["plan"] == "sha256:" + run.seal["plan.json"], "its plan is not plan.json")
        settle_registration(run)
        for names in ([one["label"] for one in manifest["builds"]], [one["cell"] for one in manifest["cells"]]):
            ledger.need("manifest", len(set(names)) == len(names), "builds or cells: one twice in {}", names)
        ledger.need("manifest", len(manifest["builds"]) > 1, "fewer than two builds")
        for cell in manifest["cells"]:
            ledger.hold("prompts", set(cell["prompts"]) == set(run.plan["prompts"]), "{}: other prompts", cell["cell"])
            for name, wanted in cell["prompts"].items():
                self.spelled(cell, name, run.fact(wanted))

    def spelled(self, cell: JSON, name: str, fact: JSON) -> None:
        """Check the token ids of a prompt against the plan's words and the model's vocabulary."""
        if fact is None:
            self.ledger.unchecked["prompts left out"] += 1
            return
        require(fact, KINDS["spelled"], f"prompt {name} of {cell['cell']}", self.ledger)
        asked = self.run.plan["prompts"].get(name, {"text": "", "tokens": -1})
        words = asked["text"].replace("{registered}", self.run.manifest["registered"][7:23])
        inside = all(0 <= token < cell["vocabulary"] for token in fact["ids"])
        right = fact["text"] == words and len(fact["ids"]) == asked["tokens"] and inside
        self.ledger.hold("prompts", right, "{}: prompt {} is not what the plan asks for", cell["cell"], name)

    def walk(self) -> None:
        """Read the history: one chain, the processes of each cell in their order, rows as their digests say."""
        run, ledger, previous, clock, kind = self.run, self.ledger, self.run.seal["manifest.json"], 0, ""
        cells = {cell["cell"]: cell for cell in run.manifest["cells"]}
        labels, begun = [build["label"] for build in run.manifest["builds"]], {name: [] for name in cells}  # type: ignore[var-annotated]
        for n, raw in enumerate(run.read("history.jsonl").splitlines(keepends=True)):
            where = f"history.jsonl line {n}"
            line = decode(raw, where, ledger)
            ledger.need("lines", kind != "end", "{}: a line after the end", where)
            kind = str(line.get("line")) if type(line) is dict else ""
            ledger.need("shape", kind in IDENTITY_SHAPES, "{}: unknown kind {!r}", where, kind)
            require(line, IDENTITY_SHAPES[kind], where, ledger)
            chained = (line["n"], line["prev"][7:]) == (n, previous)
            ledger.hold("chain", chained, "{}: broken from the one before", where)
            ledger.hold("clock", line["at_ns"] >= clock, "{}: its time is before the line above", where)
            ledger.need("lines", (kind == "begin") == (n == 0), "{}: a {} line cannot stand here", where, kind)
            previous, clock = bare(raw), line["at_ns"]
            if kind not in ("process", "capture"):
                continue
            known = line["build"] in labels and line["cell"] in cells
            ledger.need("lines", known, "{}: a build or a cell that was not asked", where)
            key = line["build"], line["cell"], line["round"]
            if kind == "process" and line["phase"] == "start":
                begun[line["cell"]].append((line["round"], line["build"]))
                ledger.need("order", key not in self.sittings, "{}: this process began before", where)
                self.sittings[key] = Sitting()
                continue
            sitting = ledger.given("pairs", self.sittings.get(key), "{}: this process does not run", where)
            ledger.need("pairs", sitting.end is None, "{}: this process has ended", where)
            if kind == "capture":
                self.capture(line, cells[line["cell"]], sitting, where)
            else:
                sitting.end, sitting.path = line, run.fact(line["path"])
                if sitting.path is not None:
                    require(sitting.path, KINDS["path"], where, ledger)
        ledger.hold("lines", kind == "end", "history.jsonl: no end line, and yet it is sealed")
        due = [(number, label) for number in (0, 1) for label in reversed(labels)]
        for name, order in begun.items():
            ledger.hold("order", order == due, "{}: its processes ran as {}", name, order)
            self.forced(name, labels)
        ended = all(sitting.end for sitting in self.sittings.values())
        ledger.hold("pairs", ended, "a process began and has no end")
        for path in run.seal:
            if path.startswith(STORES):
                ledger.hold("store", path in run.named, "{} is stored and no line names it", path)

    def capture(self, line: JSON, cell: JSON, sitting: Sitting, where: str) -> None:
        """Check one capture against its bytes, and keep it."""
        ledger, rows, place = self.ledger, line["rows"], (line["form"], line["prompt"])
        ledger.need("pairs", place not in sitting.answers, "{}: {} was answered before", where, place)
        ledger.hold("prompts", line["prompt"] in cell["prompts"], "{}: a prompt that was not asked", where)
        ledger.need("rows", (rows is None) != (line["failure"] is None), "{}: rows and a failure, or neither", where)
        sitting.answers[place] = line
        if rows is None:
            return
        count = self.run.plan["steps"] + 1
        right = rows["shape"][1] == cell["vocabulary"] and len(rows["digests"]) == rows["shape"][0] <= count
        ledger.need("rows", right and len(line["tokens"]) == count, "{}: rows of shape {}", where, rows["shape"])
        inside = all(0 <= token < cell["vocabulary"] for token in line["tokens"])
        ledger.hold("rows", inside, "{}: a token that the vocabulary does not have", where)
        data = self.bytes_of(rows)
        if data is None:
            ledger.unchecked["captures against their rows"] += 1
        elif rows["file"] not in self.tried:
            size = 4 * cell["vocabulary"]
            own = [digest(data[start : start + size]) for start in range(0, len(data), size)]
            ledger.need("rows", own == rows["digests"] and len(data) == size * len(own), "{}: other bytes", where)
            ledger.need("rows", all(map(math.isfinite, floats(data))), "{}: a value is not finite", where)
            last = int.from_bytes(data[-4:], "little")
            planted = (last - 1 if last & 0x7FFFFFFF else 1).to_bytes(4, "little")
            self.tried[rows["file"]] = digest(data[-size:-4] + planted) != own[-1]

    def bytes_of(self, rows: JSON) -> bytes | None:
        """Return the bytes of stored rows; None where they are not here to be read."""
        path = self.run.named_file("rows", rows["file"])
        return None if path is None or self.run.level == "digests" else self.run.read(path)

    def forced(self, cell: str, labels: list[str]) -> None:
        """Check that every forced capture followed the tokens of the oldest build that answered freely."""
        first = [self.sittings.get((label, cell, 0)) for label in labels]
        names = list(self.run.plan["prompts"])
        oldest = next((sitting for sitting in first if sitting and sitting.whole(names)), None)
        for name in names:
            wanted = oldest.answers["free", name]["tokens"] if oldest else None
            for label in labels:
                sitting = self.sittings.get((label, cell, 1))
                line = sitting.rows("forced", name) if sitting else None
                right = line is None or line["tokens"] == wanted
                self.ledger.hold("ids", right, "{} {}: {} was forced to other tokens", label, cell, name)


def steady(sittings: list[Sitting | None], prompts: JSON) -> bool | None:
    """Tell whether two processes of a build gave one class of answers, forced prefixes included; None: unknown."""
    if not all(sitting and sitting.whole(prompts) for sitting in sittings):
        return None
    for name in prompts:
        free = [sitting.answers["free", name] for sitting in sittings if sitting]
        if len({encode([line["tokens"], line["rows"]["digests"]]) for line in free}) > 1:
            return False
        again = sittings[1].rows("forced", name) if sittings[1] else None
        upto = shared_rows(free[1], again) if again else 0
        if again and again["rows"]["digests"][:upto] != free[1]["rows"]["digests"][:upto]:
            return False
    return True


def shared_rows(one: JSON, other: JSON) -> int:
    """Count the rows that follow the same tokens."""
    pairs = list(zip(one["tokens"], other["tokens"]))
    return next((n + 1 for n, (left, right) in enumerate(pairs) if left != right), len(pairs))


def facing(old: Sitting, new: Sitting, name: str) -> tuple[JSON, JSON, int]:
    """Return the lines of a prompt that are held against each other, and how many of their rows."""
    lines = [sitting.rows("forced", name) for sitting in (old, new)]
    if all(lines):
        return lines[0], lines[1], len(lines[0]["tokens"])
    lines = [sitting.rows("free", name) for sitting in (old, new)]
    return lines[0], lines[1], shared_rows(*lines)


def device(path: JSON) -> str | None:
    """Return the kind of device that the weights lie on."""
    names = [name.lower() for name in (path or {"weights": ()})["weights"]]
    kinds = [GPUS[word] for name in names for word in GPUS if name.startswith(word)]
    return (kinds or ["cpu"])[0] if path else None


def cell_verdict(gate: Gate, cell: JSON, old: JSON, new: JSON) -> dict[str, JSON]:
    """Return a cell of a pair as findings.json has it."""
    prompts = sorted(cell["prompts"])
    sides = [[gate.sittings.get((one["label"], cell["cell"], number)) for number in (0, 1)] for one in (old, new)]
    own = [steady(side, prompts) for side in sides]
    paths = [next((one.path for one in side if one and one.path), None) for side in sides]
    found = {"cell": cell["cell"], "family": cell["family"], "reason": "", "tokens": [0, 0], "rows": [0, 0]}
    found.update(old_repeats=own[0], new_repeats=own[1], tolerance_nats=None, difference=None)
    found["path_differs"] = None not in paths and paths[0] != paths[1]
    for build, side in zip((old, new), sides):
        for one in side:
            lines = one.answers if one else {}
            short = [place for place, line in lines.items() if line["rows"] and one and not one.rows(*place)]
            short += [place for place, line in lines.items() if (line["failure"] or {"kind": ""})["kind"] == "rows"]
            where = device(one.path) if one and one.whole(prompts) else gate.run.plan["device"]
            elsewhere = where != gate.run.plan["device"] and (build["restarts"] or where is not None)
            if short or elsewhere:
                return {**found, "verdict": "NOT RUN"}
    ran = [bool(side[0] and side[0].whole(prompts)) for side in sides]
    if not all(ran):
        return {**found, "verdict": "DIFFERENT" if any(ran) else "NOT RUN"}
    number = 1 if all(side[1] and side[1].whole(prompts) for side in sides) else 0
    left, right = sides[0][number], sides[1][number]
    faced = [(name, *facing(left, right, name)) for name in prompts]  # type: ignore[arg-type]
    couples = [pair for _, one, two, n in faced for pair in zip(one["rows"]["digests"][:n], two["rows"]["digests"][:n])]
    equal = sum(len(set(pair)) == 1 for pair in couples)
    found["rows"] = [equal, len(couples)]
    tokens = [[one.answers["free", name]["tokens"] for one in (left, right)] for name in prompts]  # type: ignore[union-attr]
    found["tokens"] = [sum(one == two for one, two in tokens), len(prompts)]
    same = equal == len(couples) and found["tokens"][0] == len(prompts)
    if equal < len(couples):
        found["difference"] = difference_of(gate, faced)
        gate.unread = gate.unread or found["difference"] is None
    lopsided = any((left.rows("forced", name) is None) != (right.rows("forced", name) is None) for name in prompts)  # type: ignore[union-attr]
    if number and lopsided:
        return {**found, "verdict": "DIFFERENT"}
    if own == [True, True]:
        return {**found, "verdict": "IDENTICAL" if same else "DIFFERENT"}
    if None in own:
        return {**found, "verdict": "DIFFERENT" if equal < len(couples) else "NOT RUN"}
    return {**found, **tolerated(gate, sides, prompts, found, equal == len(couples))}


def tolerated(gate: Gate, sides: JSON, prompts: JSON, found: JSON, equal: JSON) -> dict[str, JSON]:
    """Judge a cell that does not repeat itself: twice its own spread, tokens and argmax exact."""
    spread: float | None = 0.0
    for side in sides:
        for name in prompts:
            free = [one.answers["free", name] for one in side]
            forced = side[1].rows("forced", name)
            for one, two in [(free[0], free[1]), (free[1], forced)] if forced else [(free[0], free[1])]:
                rows = [gate.bytes_of(line["rows"]) for line in (one, two)]
                if None in rows or spread is None:
                    spread = None
                    continue
                upto = shared_rows(one, two) * one["rows"]["shape"][1]
                values = [floats(data)[:upto] for data in rows if data is not None]
                spread = max(spread, max((abs(b - a) for a, b in zip(*values)), default=0.0))
    runs = [{encode(one.answers["free", name]["tokens"]) for side in sides for one in side} for name in prompts]
    if any(len(run) > 1 for run in runs):
        return {"verdict": "DIFFERENT", "tolerance_nats": None if spread is None else 2 * spread}
    if spread is None or (found["difference"] is None and not equal):
        gate.unread = True
        return {"verdict": "NOT RUN", "tolerance_nats": None}
    moved = found["difference"] or {"argmax": [0, 0], "nats_max": 0.0}
    within = moved["argmax"][0] == moved["argmax"][1] and moved["nats_max"] <= 2 * spread
    return {"verdict": "WITHIN TOLERANCE" if within else "DIFFERENT", "tolerance_nats": 2 * spread}


def difference_of(gate: Gate, faced: JSON) -> JSON:
    """Measure how two sides differ, value by value; None where the rows are not here."""
    found: dict[str, JSON] = {"first": None, "begins": "decode", "nats_max": 0.0, "ulp_max": 0, "constant_rows": 0}
    rows, values, argmax, shares = [0, 0], [0, 0], [0, 0], []  # type: ignore[var-annotated]
    for name, one, two, count in faced:
        both = [gate.bytes_of(line["rows"]) for line in (one, two)]
        if both[0] is None or both[1] is None:
            return None
        size = 4 * one["rows"]["shape"][1]
        for step in range(count):
            left, right = (data[step * size : (step + 1) * size] for data in both if data is not None)
            old, new = floats(left), floats(right)
            agree = old.index(max(old)) == new.index(max(new))
            rows[1], values[1], argmax = rows[1] + 1, values[1] + len(old), [argmax[0] + agree, argmax[1] + 1]
            if left == right:
                continue
            bits = list(zip(*(struct.unpack(f"<{size // 4}I", data) for data in (left, right))))
            places = [at for at, (a, b) in enumerate(bits) if a != b]
            rows[0], values[0] = rows[0] + 1, values[0] + len(places)
            at = places[0]
            first = {"prompt": name, "step": step, "token": at, "old": old[at], "new": new[at]}
            first.update(old_hex="%08x" % bits[at][0], new_hex="%08x" % bits[at][1])
            found["first"] = found["first"] or first
            found["begins"] = "prefill" if step == 0 else found["begins"]
            kept = [at for at in range(len(old)) if SENTINEL not in (old[at], new[at])]
            if not kept:
                shares.append(None)
                continue
            moved = [new[at] - old[at] for at in kept]
            spread, width = max(moved) - min(moved), max(old[at] for at in kept) - min(old[at] for at in kept)
            steps = [abs(stair(bits[at][1]) - stair(bits[at][0])) for at in kept]
            found["nats_max"] = max(found["nats_max"], *map(abs, moved))
            found["ulp_max"] = max(found["ulp_max"], *steps)
            largest = max(bits[at][side] & 0x7FFFFFFF for at in kept for side in (0, 1))
            found["constant_rows"] += spread <= 2 * (value_of(largest + 1) - value_of(largest))
            shares.append(spread / width if width > 0 else None)
    share = None if None in shares else max(one for one in shares if one is not None)
    found.update(rows=rows, values=values, argmax=argmax, share_max=share)
    found["looks"] = "rounding" if share is not None and share <= 2.0**-10 else "structure"
    return found


def value_of(bits: int) -> float:
    """Return the float32 of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def stair(bits: int) -> int:
    """Number a float32 by its bits, in the order of values."""
    return -(bits - 2**31) if bits >= 2**31 else bits


def pair_of(gate: Gate, old: JSON, new: JSON) -> dict[str, JSON]:
    """Return a pair of builds as findings.json has it."""
    manifest = gate.run.manifest
    cells = [cell_verdict(gate, cell, old, new) for cell in manifest["cells"]]
    families = []
    for family in dict.fromkeys(cell["family"] for cell in cells):
        own = [cell["verdict"] for cell in cells if cell["family"] == family]
        verdict = min(own, key=FAMILY_ORDER.index)
        ran = len(own) - own.count("NOT RUN")
        inherits = verdict == "IDENTICAL" and ran == len(own)
        families.append({"family": family, "verdict": verdict, "ran": ran, "cells": len(own), "inherits": inherits})
    absent = {"verdict": "NOT RUN", "ran": 0, "cells": 0, "inherits": None}
    families += [{"family": one["family"], **absent} for one in manifest["not_run"]]
    for one in families:
        one["reason"] = ""
    counts = Counter(one["verdict"] for one in families)
    counted = {name: counts[name] for name in FAMILY_ORDER}
    return {"old": old["label"], "new": new["label"], "cells": cells, "families": families, "counts": counted}


def classes_of(gate: Gate, cell: JSON) -> dict[str, JSON]:
    """Sort the builds into classes with equal rows and free tokens."""
    groups: dict[bytes, list[str]] = {}
    absent, reference, names = [], None, sorted(cell["prompts"])
    for build in gate.run.manifest["builds"]:
        sitting = gate.sittings.get((build["label"], cell["cell"], 1))
        if sitting is None or not sitting.whole(names):
            absent.append(build["label"])
            continue
        reference = reference or sitting
        shown = [facing(reference, sitting, name)[1] for name in names]
        free = [sitting.answers["free", name]["tokens"] for name in names]
        key = encode([[[line["tokens"], line["rows"]["digests"]] for line in shown], free])
        groups.setdefault(key, []).append(build["label"])
    return {"cell": cell["cell"], "classes": list(groups.values()), "not_run": absent}


def claim_of(gate: Gate, claim: JSON, pairs: list[JSON]) -> dict[str, JSON]:
    """Evaluate one registered prediction."""
    manifest = gate.run.manifest
    cells = [one for one in manifest["cells"] if claim["models"] == "*" or one["model_sha256"] in claim["models"]]
    labels = [one["label"] for one in manifest["builds"] if claim["builds"] == "*" or one["name"] in claim["builds"]]
    counts = []
    if claim["measure"] == "repeats":
        for label, cell in itertools.product(labels, cells):
            found = steady([gate.sittings.get((label, cell["cell"], n)) for n in (0, 1)], sorted(cell["prompts"]))
            counts += [] if found is None else [(int(found), 1)]
    else:
        names = {cell["cell"] for cell in cells}
        chosen = [pair for pair in pairs if pair["old"] in labels and pair["new"] in labels]
        judged = [cell for pair in chosen for cell in pair["cells"] if cell["cell"] in names and cell["rows"][1]]
        judged = [cell for cell in judged if cell["verdict"] != "NOT RUN"]
        if claim["measure"] == "identical":
            counts = [(int(cell["verdict"] == "IDENTICAL"), 1) for cell in judged]
        else:
            counts = [tuple(cell["difference"]["argmax"]) for cell in judged if cell["difference"]]
    k, n = (sum(pair[place] for pair in counts) for place in (0, 1))
    holds, refuted = (n > 0 and meets(claim[rule], k, n) for rule in ("holds", "refuted"))
    status = "holds" if holds and not refuted else "refuted" if refuted and not holds else "inconclusive"
    status = "not applicable" if n == 0 else "inconclusive" if n < claim["minimum"] else status
    return {"id": claim["id"], "statement": claim["statement"], "status": status, "k": k, "n": n}


def judge_identity(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Verify a record of kind identity."""
    gate, manifest = Gate(run), run.manifest
    gate.load()
    gate.walk()
    note_repository(run, options, report)
    pairs = [pair_of(gate, old, new) for old, new in zip(manifest["builds"], manifest["builds"][1:])]
    determinism = []
    for build in manifest["builds"]:
        both = ([gate.sittings.get((build["label"], cell["cell"], n)) for n in (0, 1)] for cell in manifest["cells"])
        own = [steady(two, sorted(cell["prompts"])) for two, cell in zip(both, manifest["cells"])]
        numbers = {"identical": own.count(True), "not_identical": own.count(False), "unchecked": own.count(None)}
        determinism.append({"build": build["label"], **numbers})
    n, moved = len(gate.tried), sum(gate.tried.values())
    known = {k: "held" if n and k == n else "failed" if n else "not available" for k in (n, moved)}
    instrument = [{"check": name, "k": k, "n": n, "status": known[k]} for name, k in (("self", n), ("one_ulp", moved))]
    sound = all(row["status"] != "failed" for row in instrument)
    registration = manifest["registration"]
    status = registration["status"] if registration else "not registered"
    mine = {
        "format": 1, "kind": "identity", "seal": run.seal_digest, "rows": manifest["rows"], "sound": sound,
        "device": run.plan["device"], "conclusion": "sound" if sound else "inconclusive", "instrument": instrument,
        "determinism": determinism, "pairs": pairs, "classes": [classes_of(gate, cell) for cell in manifest["cells"]],
        "predictions": [claim_of(gate, claim, pairs) for claim in run.predictions or []],
        "exploratory": None if status == "registered" else status,
    }  # fmt: skip
    report["notes"]["findings.json"] = compare_identity(gate, mine)
    report["findings"] = mine
    report["exit"], report["sentence"] = conclude_identity(mine, options)


def compare_identity(gate: Gate, mine: dict[str, JSON]) -> str:
    """Compare with the stored findings, but for what this copy cannot show."""
    run, skipped = gate.run, set()
    if not (run.root / "findings.json").exists():
        return "not there, nothing to compare"
    theirs = document(run, "findings.json")
    if not gate.tried:
        skipped |= {f"instrument {identity(row)}" for row in mine["instrument"]}
    if gate.unread:
        for pair in mine["pairs"]:
            for cell in pair["cells"]:
                skipped.add(f"pairs {identity(pair)}: cells {identity(cell)}: difference")
                if False in (cell["old_repeats"], cell["new_repeats"]):
                    skipped.add(f"pairs {identity(pair)}")
        skipped |= {f"predictions {one['id']}" for one in run.predictions or [] if one["measure"] == "argmax"}
    differ("", mine, theirs, skipped, run.ledger)
    return "compared"


def conclude_identity(findings: JSON, options: argparse.Namespace) -> tuple[int, str]:
    """Return exit code and sentence of an identity record in which nothing contradicts."""
    counts: Counter[str] = Counter()
    for pair in findings["pairs"]:
        counts.update(pair["counts"])
    statuses = Counter(one["status"] for one in findings["predictions"])
    predicted = ", ".join(f"{n} {name}" for name, n in statuses.items()) or "none"
    text = ", ".join(f"{counts[name]} {name}" for name in FAMILY_ORDER) + f", predictions: {predicted}"
    if not findings["sound"]:
        return 3, f"inconclusive: a check of the comparison failed; {text}"
    if options.demand and (counts["DIFFERENT"] or statuses["refuted"]):
        return 1, f"sound, and a build differs or a prediction is refuted: {text}"
    if options.demand and (counts["WITHIN TOLERANCE"] or statuses["inconclusive"]):
        return 3, f"inconclusive: a family is only within tolerance, or a prediction is; {text}"
    return 0, f"sound: {text}"


def show_identity(findings: JSON) -> None:
    """Print families, classes and predictions as aligned tables."""
    for pair in findings["pairs"]:
        rows = [[one["verdict"], one["family"], f"{one['ran']}/{one['cells']}"] for one in pair["families"]]
        columns([["verdict", f"{pair['old']} against {pair['new']}", "cells ran"], *rows])
    names = ("build", "identical", "not_identical", "unchecked")
    own = [[str(one[name]) for name in names] for one in findings["determinism"]]
    columns([["build", "repeats", "does not", "unchecked"], *own])
    columns([["cell", "classes of equal rows"], *([one["cell"], str(one["classes"])] for one in findings["classes"])])
    for one in findings["predictions"]:
        say(f"prediction {one['id']}: {one['status']} ({one['k']}/{one['n']}): {one['statement']}")


# 12. Records of kind accuracy: captures, and checks that hold captures as facts. -------------------------------------

KINDS.update({"float": float, "hex": HEX, "any": (None, bool, int, float, str, list, dict)})
KINDS["metrics_row"] = [int, int, float, float, float, float, int, int]
for kind_name, kind_text in {
    "study": "format:int kind:=accuracy name:str corpus:digest recorded:int attempts:int timeout_s:number",
    "file": "name:str sha256:digest size:int mtime_ns:int inode:int",
    "source": "name:str licence:str sha256:digest",
    "weights": "quantized:digest decoded:digest vocabulary:int rows:int",
    "sequence": "id:name model:name group:=original|short|long|fresh split:str slot:int prefill:[int] teacher:[int] "
    "digest:digest",
    "corpus": "format:int kind:=corpus name:str members:int sources:[source] models:{weights} sequences:[sequence]",
    "triple": "max_abs:float relative_l2:float total_variation:float",
    "model_bounds": "bounds:triple maxima:triple rows:int server:digest reference:digest",
    "bounds": "format:int kind:=bounds corpus:digest factor:float models:{model_bounds} plan:digest registered:digest",
    "packed": "format:int kind:=capture facts:{any} history:[any] manifest:any plan:any sums:{hex}",
    "limit": "value:number op:=<|<=|==|>=|>",
    "expectation": "id:str statement:str minimum:int models:labels groups:[str] modes:[str] holds:limit refuted:limit "
    "measure:=failed|clear|winners_lost|bests_differ|max_abs|relative_l2|total_variation",
    "expectations": "format:int kind:=accuracy predictions:[expectation]",
}.items():
    KINDS[kind_name] = fields(kind_text)
OF_ANY = "line:str n:int prev:digest at_ns:int "
CAPTURE_SHAPES = {
    **SHAPES,
    "captured": fields(
        OF_ANY + "model:str group:str side:=server|reference source:=logprobs|logits corpus:digest bounds:digest? "
        "reproduces:digest?"
    ),
    "inputs": fields(OF_ANY + "when:=begin|end files:[file]"),
}
CHECK_SHAPES = {
    **{kind: SHAPES[kind] for kind in ("begin", "end")},
    "inputs": CAPTURE_SHAPES["inputs"],
    "included": fields(OF_ANY + "seal:digest capture:digest"),
    "measured": fields(OF_ANY + "model:str group:str mode:=serial|batch metrics:digest rows:int"),
}
SPLITS = {"original": "calibration", "short": "regression", "long": "regression", "fresh": "validation"}
METRICS = ("max_abs", "relative_l2", "total_variation")
MODES = ("serial", "batch")
# Sums in another order, or by another library, differ by less than this share.
NEAR = 1e-9
BUILD = ("build", "executable_sha256", "libraries", "libraries_source", "environment_present", "settings")
COLUMNS = ["slot", "position", *METRICS, "gap", "best_reference", "best_server"]


class Trials(NamedTuple):
    """What a capture is of: its line, the model of the corpus, the members, and how many ask for rows in a wave."""

    line: JSON
    model: JSON
    members: list[JSON]
    recorded: int


class Capture(Run):
    """A capture: one group of one model on one server, whose trials follow from corpus and plan."""

    corpus: JSON = None
    of: Trials

    def __init__(self, root: Path, ledger: Ledger, level: str) -> None:
        super().__init__(root, ledger, level)
        self.inputs: list[JSON] = []

    def teacher(self, server: Server, trial: Trial) -> JSON:  # noqa: ARG002 - as of any run
        """Return the ids that are forced after a prompt."""
        return self.of.members[trial.entry]["teacher"]

    def prompt(self, server: str, key: str) -> JSON:  # noqa: ARG002 - as of any run
        """Return the ids of a prompt, which are the corpus's."""
        return next({"ids": one["prefill"], "text": ""} for one in self.of.members if one["id"] == key)

    def arrange(self, line: JSON) -> None:
        """Unfold what the line `captured` says: each member alone, then on a server whole waves."""
        ledger, corpus = self.ledger, check_corpus(self, line["corpus"])
        ledger.need("captures", line["model"] in corpus["models"], "the corpus has no model {!r}", line["model"])
        members = [s for s in corpus["sequences"] if (s["model"], s["group"]) == (line["model"], line["group"])]
        self.of = of = Trials(line, corpus["models"][line["model"]], members, self.plan["recorded"])
        on_server = line["side"] == "server"

        def trial(unit: str, place: int, mode: str, *, rows: bool) -> Trial:
            one = members[place]
            slot, name = place if on_server else 0, f"{unit}/{one['id']}" if mode == "batch" else unit
            family, steps = "rows" if rows else "bare", of.model["rows"]
            made = Trial(name, one["id"], unit, unit, family, mode, place, "", slot, steps)
            made.forced, made.key, made.group, made.support = True, one["id"], one["id"], not rows
            return made

        names = [f"serial/{one['id']}" for one in members]
        units = [Unit(name, name, "serial", [trial(name, at, "serial", rows=True)]) for at, name in enumerate(names)]
        for number in range(-(-len(members) // of.recorded) if on_server else 0):
            name, asking = f"batch/w{number}", range(number * of.recorded, (number + 1) * of.recorded)
            trials = [trial(name, place, "batch", rows=place in asking) for place in range(len(members))]
            units.append(Unit(name, name, "batch", trials))
        self.order = units
        for place, unit in enumerate(units):
            unit.place, self.units[unit.id] = place, unit
            self.trials.update({one.id: one for one in unit.trials})

    def rows_of(self, mode: str, place: int) -> JSON:
        """Return what is said of the rows of a member in one mode, or None."""
        server = next(iter(self.servers.values()))
        for unit in self.order:
            for one in unit.trials:
                if (one.condition, one.entry, one.family) == (mode, place, "rows"):
                    tried = server.attempts.get(unit.id)
                    replies = tried[-1].replies(one) if tried else []
                    return replies[-1]["rows"] if replies else None
        return None


class Part(Capture):
    """A capture that a check holds as a fact: everything but rows, streams and echoes."""

    def __init__(self, whole: Run, packed: JSON) -> None:
        super().__init__(whole.root, whole.ledger, whole.level)
        self.whole, self.packed, self.seal = whole, packed, packed["sums"]
        text = "".join(f"{wanted}  {path}\n" for path, wanted in sorted(self.seal.items()))
        self.seal_digest = digest(text.encode())
        self.bytes = {"history.jsonl": b"".join(map(encode, packed["history"]))}
        self.bytes.update({f"{name}.json": encode(packed[name]) for name in ("manifest", "plan")})
        for path, data in self.bytes.items():
            self.ledger.need("bytes", self.seal.get(path) == bare(data), "a capture's {} is not what it sealed", path)
        for name, value in packed["facts"].items():
            self.ledger.need("bytes", digest(encode(value)) == name, "a capture's fact {} is another", name)

    def read(self, path: str) -> bytes:
        """Return the bytes of what the capture holds, or of rows that the check holds for it."""
        return self.bytes[path] if path in self.bytes else self.whole.read(path)

    def open(self, path: str) -> IO[bytes]:
        """Open what `read` returns."""
        return io.BytesIO(self.read(path))

    def named_file(self, folder: str, wanted: str | None) -> str | None:
        """Note that the capture names a file; only rows may be here, in the check, and not those of a repeated wave."""
        path = super().named_file(folder, wanted)
        here = path is not None and folder == "rows" and path in self.whole.seal
        return self.whole.named_file(folder, wanted) if here else None

    def fact(self, wanted: str | None) -> JSON:
        """Return a fact that was taken along; corpus and bounds stand in the check itself."""
        self.named_file("facts", wanted)
        known = self.packed["facts"].get(wanted)
        elsewhere = known is None and f"facts/{(wanted or '')[7:]}.json" in self.whole.seal
        return self.whole.fact(wanted) if elsewhere else known


class CaptureWalk(Walk):
    """Reads the history of a capture."""

    shapes = CAPTURE_SHAPES

    def whole(self, attempt: Attempt) -> bool:  # noqa: ARG002 - as of any walk
        """Leave it to `refusals_of`: what was sent again had to be unusable."""
        return False

    def on_captured(self, line: JSON, _: Server) -> None:
        """Learn what the capture is of; nothing can be sent before."""
        run = self.run
        first = isinstance(run, Capture) and not run.order and self.n == 1
        self.ledger.need("lines", first, "line {}: it cannot say here what was captured", self.n)
        if isinstance(run, Capture):
            run.arrange(line)
        run.named_file("facts", line["bounds"])
        run.named_file("captures", line["reproduces"])

    def on_inputs(self, line: JSON, _: Server) -> None:
        """Note the input files, which are the same at the beginning and at the end."""
        check_inputs(self.run, line, self.ledger)


class CheckWalk(Walk):
    """Reads the history of a check."""

    shapes = CHECK_SHAPES

    def on_inputs(self, line: JSON, _: Server) -> None:
        """Note the input files, which are the same at the beginning and at the end."""
        for one in line["files"][:2]:  # corpus and bounds
            self.run.named_file("facts", one["sha256"])
        check_inputs(self.run, line, self.ledger)

    def on_included(self, line: JSON, _: Server) -> None:
        """Walk a capture as strictly as if it stood in a folder of its own."""
        run: JSON = self.run
        ledger = self.ledger
        packed = require(run.inflated(line["capture"]), KINDS["packed"], f"line {self.n}: its capture", ledger)
        part = Part(run, packed)
        ledger.hold("captures", part.seal_digest == line["seal"], "line {}: its seal is {}", self.n, part.seal_digest)
        ledger.need("captures", kind_of(part) == "accuracy", "line {}: no capture", self.n)
        load_accuracy(part)
        for name in ("plan", "registered", "registration"):
            same = part.manifest[name] == run.manifest[name]
            ledger.hold("captures", same, "line {}: a capture under another {}", self.n, name)
        CaptureWalk(part).walk()
        ledger.need("captures", part.order, "line {}: it does not say what was captured", self.n)
        run.parts.append(part)

    def on_measured(self, line: JSON, _: Server) -> None:
        """Read the metrics of one group in one mode."""
        run: JSON = self.run
        ledger = self.ledger
        path = run.named_file("metrics", line["metrics"])
        ledger.need("metrics", path, "line {}: its metrics are not here", self.n)
        head, *rows = [decode(raw + b"\n", f"{path}", ledger) for raw in run.read(path or "").split(b"\n")[:-1]]
        ledger.need("metrics", head == {"columns": COLUMNS, "format": 1}, "{}: other columns", path)
        require(rows, [KINDS["metrics_row"]], f"{path}", ledger)
        ledger.hold("metrics", len(rows) == line["rows"], "line {}: {} rows, said {}", self.n, len(rows), line["rows"])
        key = line["model"], line["group"], line["mode"]
        ledger.need("metrics", key not in run.measured, "line {}: measured twice: {}", self.n, key)
        run.measured[key] = rows


def check_inputs(run: JSON, line: JSON, ledger: Ledger) -> None:
    """Check that the inputs at the end are those of the beginning."""
    when = ("begin", "end")[len(run.inputs) % 2]
    ledger.hold("inputs", line["when"] == when and len(run.inputs) < 2, "an inputs line of {} is not due", line["when"])
    run.inputs.append(line["files"])
    ledger.hold("inputs", line["files"] == run.inputs[0], "an input file changed while it was in use")


def load_accuracy(run: Run) -> None:
    """Check manifest, plan and registration of a record of kind accuracy."""
    ledger, manifest = run.ledger, run.manifest
    check_manifest(run)
    run.plan = document(run, "plan.json", KINDS["study"])
    ledger.need("shape", 0 < run.plan["recorded"] <= LEVEL_MAX, "plan.json: recorded {}", run.plan["recorded"])
    if isinstance(run, Part):
        run.predictions = run.whole.predictions
    else:
        settle_registration(run)
    for server in manifest["servers"]:
        run.servers[server["label"]] = Server(server)
        for wanted in (server["declaration"], server["attested"]["props"], server["attested"]["models"]):
            run.named_file("facts", wanted)


def check_corpus(run: Run, wanted: str) -> JSON:
    """Return the corpus, in which every model has every group, and every sequence the digest of all that it is."""
    ledger = run.ledger
    whole: JSON = getattr(run, "whole", run)
    fact = run.fact(wanted)
    if getattr(whole, "corpus", None) is not None:
        ledger.need("corpus", wanted == whole.corpus_digest, "a capture of another corpus: {}", wanted)
        return whole.corpus
    ledger.need("corpus", fact is not None, "the corpus {} is not here", wanted)
    corpus = require(fact, KINDS["corpus"], "the corpus", ledger)
    known_format(corpus, "the corpus", ledger)
    ledger.need("corpus", wanted == run.plan["corpus"], "the corpus is not the plan's")
    ledger.need("corpus", 0 < corpus["members"] <= LEVEL_MAX, "the corpus has {} members a group", corpus["members"])
    places = list(itertools.product(corpus["models"], SPLITS, range(corpus["members"])))
    found = [(one["model"], one["group"], one["slot"]) for one in corpus["sequences"]]
    ledger.need("corpus", sorted(found) == sorted(places), "not every model has every member of every group")
    lengths: dict[JSON, int] = {}
    texts = set()
    for one in corpus["sequences"]:
        where, model = f"{one['model']} {one['id']}", corpus["models"][one["model"]]
        ledger.hold("corpus", one["split"] == SPLITS[one["group"]], "{}: its split is {}", where, one["split"])
        ledger.hold("corpus", one["id"] == f"{one['group']}-{one['slot']:02}", "{}: not in its place", where)
        without = {key: value for key, value in one.items() if key != "digest"}
        ledger.hold("corpus", digest(encode(without)) == one["digest"], "{}: its digest is another", where)
        inside = all(0 <= token < model["vocabulary"] for token in one["prefill"] + one["teacher"])
        length = lengths.setdefault((one["model"], one["group"]), len(one["prefill"]))
        shaped = inside and len(one["teacher"]) == model["rows"] > 0 and len(one["prefill"]) == length > 0
        ledger.hold("corpus", shaped, "{}: ids outside the vocabulary, or of another length", where)
        texts.add((one["model"], *one["prefill"]))
    ledger.hold("corpus", len(texts) == len(found), "two sequences of a model have the same prefill")
    if hasattr(whole, "corpus_digest"):
        whole.corpus, whole.corpus_digest = corpus, wanted
    return corpus


class Check(Run):
    """A check: metrics of every row, the bounds, and the captures."""

    def __init__(self, root: Path, ledger: Ledger, level: str) -> None:
        super().__init__(root, ledger, level)
        self.corpus: JSON = None
        self.corpus_digest = ""
        self.parts: list[Part] = []
        self.measured: dict[tuple[str, str, str], list[JSON]] = {}
        self.inputs: list[JSON] = []


def refusals_of(capture: Capture) -> dict[str, str]:
    """Return why trials have no usable rows; an attempt that was repeated had to be unusable."""
    server, ledger, found = next(iter(capture.servers.values())), capture.ledger, {}
    judge = Judge(capture, server)
    for unit in capture.order:
        reasons: dict[str, str] = dict.fromkeys((one.id for one in unit.trials if one.family == "rows"), "not sent")
        tried = server.attempts.get(unit.id, [])
        for attempt in tried:
            judge.last[unit.id] = attempt
            together = unit_reason(judge, unit, attempt)
            reasons = {}
            for trial in (one for one in unit.trials if one.family == "rows"):
                reason = reply_reason(capture, attempt, trial) or together
                if reason:
                    reasons[trial.id] = reason
            again = attempt is not tried[-1]
            ledger.hold("attempts", reasons or not again, "{} was repeated though it was whole", unit.id)
        found.update(reasons)
    return found


def unit_reason(judge: Judge, unit: Unit, attempt: Attempt) -> str:
    """Return why no trial of an attempt counts: other traffic, another server, or a wave that was none."""
    if not all(map(attempt.complete, unit.trials)):
        return "incomplete" if unit.wave else ""
    for name, judged in (("idle", judge.idle), ("accounting", judge.accounting), ("same server", judge.same_server)):
        if not judge.ledger.judge(name, judged(attempt) != "failed"):
            return name
    for trial in unit.trials:
        reply = attempt.replies(trial)[0]
        clean = reply["cache_n"] == 0 and reply["prompt_n"] == reply["tokens_evaluated"]
        if not judge.ledger.judge("cache", clean):
            return "cache"
        if not judge.ledger.judge("slot", reply["id_slot"] == trial.slot):
            return "slot"
    return at_once(judge, unit, attempt) if unit.wave else ""


def at_once(judge: Judge, unit: Unit, attempt: Attempt) -> str:
    """Return which proof fails that all members of a wave were decoded together.

    The last byte of a member that asks for rows comes long after its last decode, so only the others have windows.
    """
    windows = [window(attempt.completes[one.id, 0]) for one in unit.trials if one.family == "bare"]
    known = [one for one in windows if one]
    overlap = len(known) == len(windows)
    if overlap and known:
        common = min(one.end for one in known) - max(one.begin for one in known)
        overlap = 2 * common >= min(one.end - one.begin for one in known)
    busy, count = judge.busy_slots(attempt), len(unit.trials)
    distinct = len({attempt.replies(one)[0]["id_slot"] for one in unit.trials} - {None}) == count
    items = ("windows", overlap), ("slots", distinct), ("busy", busy is not None and 5 * busy >= 4 * count)
    return judge.failing(*items)[0]


def reply_reason(capture: Capture, attempt: Attempt, trial: Trial) -> str:
    """Return why the reply of a trial that asked for rows does not count."""
    replies, teacher = attempt.replies(trial), capture.of.members[trial.entry]["teacher"]
    if not replies:
        return "failed"
    if not capture.ledger.judge("ids", replies[0]["token"] == digest(encode(teacher))):
        return "mismatched id"
    if replies[0]["rows"]["shape"] != [len(teacher), capture.of.model["vocabulary"]]:
        return "short row"
    return "" if replies[0]["steps"] == len(teacher) and not replies[0]["draft_n"] else "hole"


def declared(capture: Capture) -> JSON:
    """Return what the operator declares of a capture's server, which is the same from start to end."""
    server = next(iter(capture.servers.values()))
    same = all(line["declaration"] == server.declaration for line in server.lines)
    capture.ledger.hold("captures", same, "a server was declared in several ways during one capture")
    fact = capture.fact(server.declaration)
    capture.ledger.need("captures", type(fact) is dict, "nothing is declared of a server")
    wanted = capture.of.model["quantized" if capture.of.line["side"] == "server" else "decoded"]
    right = f"sha256:{fact.get('model_sha256')}" == wanted
    capture.ledger.hold("captures", right, "the model of a capture is not the corpus's")
    return fact


def judge_accuracy(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Judge a record of kind accuracy: a check, or a single capture."""
    if b'"line":"measured"' not in run.read("history.jsonl"):
        judge_capture(run, options, report)
        return
    whole = Check(run.root, run.ledger, run.level)
    for name in ("seal", "omitted", "seal_digest", "manifest", "plan"):
        setattr(whole, name, getattr(run, name))
    load_accuracy(whole)
    CheckWalk(whole).walk()
    note_repository(whole, options, report)
    bounds = check_bounds(whole)
    mine = accuracy_findings(whole, bounds)
    report["notes"]["findings.json"] = compare(whole, mine)
    report["findings"] = mine
    rows, failed = (sum(cell[key] for cell in mine["cells"]) for key in ("rows", "failed"))
    report["exit"], report["sentence"] = 0, f"sound: {mine['conclusion']}: {failed} of {rows} rows beyond their bounds"
    statuses = {one["status"] for one in mine["predictions"]}
    if options.demand and (failed or mine["conclusion"] != "within" or "refuted" in statuses):
        report["exit"] = 1
    elif options.demand and "inconclusive" in statuses:
        report["exit"], report["sentence"] = 3, "inconclusive: a prediction is; " + report["sentence"]


def judge_capture(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Judge a capture by itself: whole, in order, each request the corpus's; and what a reproduction gave."""
    capture = Capture(run.root, run.ledger, run.level)
    for name in ("seal", "omitted", "seal_digest", "streams", "manifest", "plan"):
        setattr(capture, name, getattr(run, name))
    load_accuracy(capture)
    CaptureWalk(capture).walk()
    note_repository(capture, options, report)
    run.ledger.need("captures", capture.order and len(capture.inputs) == 2, "it does not say what was captured")
    declared(capture)
    refused, line = refusals_of(capture), capture.of.line
    words = f"a capture of {line['model']} {line['group']} {line['side']}"
    report["exit"], report["sentence"] = 0, f"sound: {words}, {len(capture.of.members)} sequences"
    if refused:
        report["exit"], report["sentence"] = 3, f"inconclusive: {words}, {len(refused)} refused: {min(refused.items())}"
    elif line["reproduces"] is not None:
        packed = require(capture.inflated(line["reproduces"]), KINDS["packed"], "the original", run.ledger)
        first = Part(capture, packed)
        run.ledger.need("captures", kind_of(first) == "accuracy", "the original is no capture")
        load_accuracy(first)
        CaptureWalk(first).walk()
        run.ledger.need("captures", first.order and not refusals_of(first), "the original is refused")
        both = ([one.rows_of("serial", at)["digests"] for at in range(len(one.of.members))] for one in (first, capture))
        pairs = [pair for two in zip(*both) for pair in zip(*two)]
        same = sum(one == other for one, other in pairs)
        report["sentence"] += f", reproduces {same} of {len(pairs)} rows"


def check_bounds(run: Check) -> JSON:
    """Return the bounds, after all that ties them to captures, corpus and calibration rows was checked."""
    ledger = run.ledger
    ledger.need("inputs", len(run.inputs) == 2 and len(run.inputs[0]) > 1, "corpus and bounds are not named")
    corpus, named = (one["sha256"] for one in run.inputs[0][:2])
    check_corpus(run, corpus)
    ledger.hold("inputs", corpus == run.corpus_digest, "the corpus is another than that of the captures")
    fact = run.fact(named)
    bounds = require(fact, KINDS["bounds"], "the bounds", ledger)
    known_format(bounds, "the bounds", ledger)
    said = [bounds[name] for name in ("corpus", "plan", "registered", "factor")]
    own = [run.corpus_digest, run.manifest["plan"], run.manifest["registered"], 1.5]
    ledger.hold("bounds", said == own, "bounds of {}, the check has {}", said, own)
    models = list(dict.fromkeys(model for model, _, _ in run.measured))
    wanted = [(model, group, side) for model in models for group in SPLITS for side in ("server", "reference")]
    parts = {tuple(part.of.line[name] for name in ("model", "group", "side")): part for part in run.parts}
    complete = sorted(parts) == sorted(wanted) and len(run.parts) == len(wanted)
    ledger.need("captures", complete, "captures are missing, or there twice: {}", sorted(set(wanted) ^ set(parts)))
    due = [(model, group, mode) for model in models for group in SPLITS for mode in MODES]
    ledger.need("metrics", list(run.measured) == due, "metrics of {}, due are {}", list(run.measured), due)
    builds: dict[tuple[str, str], JSON] = {}
    for (model, group, side), part in parts.items():
        build = {name: declared(part).get(name) for name in BUILD}
        same = builds.setdefault((model, side), build) == build
        ledger.hold("captures", same, "{} {} {}: of another build than its other groups", model, group, side)
        knew = part.of.line["bounds"] == (named if side == "server" and group != "original" else None)
        ledger.hold("bounds", knew, "{} {} {}: captured under {}", model, group, side, part.of.line["bounds"])
        refused = list(refusals_of(part).items())[:1]
        ledger.need("captures", not refused, "{} {}: refused, and yet checked: {}", model, group, refused)
    for model in models:
        ledger.need("bounds", model in bounds["models"], "there are no bounds for {}", model)
        check_model_bounds(run, bounds["models"][model], model, parts)
    return bounds


def check_model_bounds(run: Check, said: JSON, model: str, parts: dict[tuple[str, str, str], Part]) -> None:
    """Check that the bounds of a model follow from its calibration rows, and each group's metrics from its rows."""
    ledger = run.ledger
    rows = [row for mode in MODES for row in run.measured[model, "original", mode]]
    for place, name in enumerate(METRICS, 2):
        largest = max(row[place] for row in rows)
        near = abs(largest - said["maxima"][name]) <= NEAR * max(largest, abs(said["maxima"][name]))
        ledger.hold("bounds", near, "{} {}: the largest is {}, said {}", model, name, largest, said["maxima"][name])
        right = said["bounds"][name] == 1.5 * said["maxima"][name]
        ledger.hold("bounds", right, "{} {}: the bound is not 1.5 times the maximum", model, name)
    ledger.hold("bounds", said["bounds"]["total_variation"] < 1, "{}: the bound on probability is not under 1", model)
    seals = [parts[model, "original", side].seal_digest for side in ("server", "reference")]
    named = [said["server"], said["reference"]] == seals and said["rows"] == len(rows)
    ledger.hold("bounds", named, "{}: the bounds name other captures or rows", model)
    for group in SPLITS:
        server, reference = (parts[model, group, side] for side in ("server", "reference"))
        for mode in MODES:
            stored = run.measured[model, group, mode]
            count = server.of.model["rows"]
            places = [row[:2] for row in stored]
            due = [[slot, at] for slot in range(len(server.of.members)) for at in range(count)]
            ledger.need("metrics", places == due, "{} {} {}: rows are missing or moved", model, group, mode)
            for slot in range(len(server.of.members)):
                sides = server.rows_of(mode, slot), reference.rows_of("serial", slot)
                compare_rows(run, sides, stored[slot * count : (slot + 1) * count], f"{model} {group} {mode} {slot}")


def compare_rows(run: Check, sides: tuple[JSON, JSON], stored: list[JSON], where: str) -> None:
    """Measure the rows of one sequence again, where both sides are here, in plain Python with exact sums."""
    paths = [run.named_file("rows", side["file"]) for side in sides]
    if None in paths or run.level == "digests":
        run.ledger.unchecked["sequences against their rows"] += 1
        return
    values = [floats(run.read(path or "")) for path in paths]
    width, finite = sides[0]["shape"][1], all(map(math.isfinite, itertools.chain(*values)))
    whole = sides[0]["shape"] == sides[1]["shape"] and width > 1 and finite
    run.ledger.need("metrics", whole, "{}: sides of other shapes, or values that are no logprobs", where)
    for at, said in enumerate(stored):
        server, reference = (one[at * width : (at + 1) * width] for one in values)
        mine = measured(server, reference)
        near = [abs(one - two) <= NEAR * max(abs(one), abs(two)) for one, two in zip(mine[:3], said[2:5])]
        right = all(near) and mine[3:] == said[5:]
        run.ledger.hold("metrics", right, "{} position {}: {} from its rows, said {}", where, at, mine, said[2:])


def measured(server: array[float], reference: array[float]) -> list[JSON]:
    """Return the metrics of one row, the reference's top-two gap, and the best tokens of both sides."""
    ours, theirs = normalised(server), normalised(reference)
    steps = [one - two for one, two in zip(ours, theirs)]
    shares = math.fsum(abs(math.exp(one) - math.exp(two)) for one, two in zip(ours, theirs))
    size, step = (math.sqrt(math.fsum(value * value for value in row)) for row in (theirs, steps))
    first, second = sorted(reference)[:-3:-1]
    bests = reference.index(first), server.index(max(server))
    return [max(map(abs, steps)), step / size, shares / 2, first - second, *bests]


def normalised(row: array[float]) -> list[float]:
    """Return the log probabilities of a row, whatever constant was added to it."""
    top = max(row)
    total = math.log(math.fsum(math.exp(value - top) for value in row))
    return [value - top - total for value in row]


def accuracy_findings(run: Check, bounds: JSON) -> dict[str, JSON]:
    """Return what findings.json must hold, from the metrics alone."""
    cells: list[JSON] = []
    failures: list[JSON] = []
    for (model, group, mode), rows in run.measured.items():
        limits = [bounds["models"][model]["bounds"][name] for name in METRICS]
        counts: Counter[str] = Counter()
        known = []
        for slot, position, *values in rows:
            why = [name for name, value, limit in zip(METRICS, values, limits) if value > limit]
            gap, bests = values[3], values[4:]
            counts.update(f"beyond_{name}" for name in why)
            counts["clear"] += gap > 2 * limits[0]
            counts["bests_differ"] += bests[0] != bests[1]
            if gap > 2 * limits[0] and bests[0] != bests[1]:
                counts["winners_lost"] += 1
                why.append("winner")
            counts["failed"] += bool(why)
            where = {"model": model, "group": group, "mode": mode}
            known += [{**where, "slot": slot, "position": position, "why": why}] if why else []
        cell = {"model": model, "group": group, "mode": mode, "rows": len(rows)}
        names = ("failed", "winners_lost", "clear", "bests_differ", *(f"beyond_{name}" for name in METRICS))
        cell.update({name: counts[name] for name in names})
        cell.update({name: max(row[place] for row in rows) for place, name in enumerate(METRICS, 2)})
        cells.append(cell)
        failures += known[:50]
    coverage = [{key: cell[key] for key in ("model", "mode", "clear")} for cell in cells if cell["group"] == "fresh"]
    within = not any(cell["failed"] for cell in cells) and all(one["clear"] for one in coverage)
    registration = run.manifest["registration"]
    status = registration["status"] if registration else "not registered"
    sources = []
    for part in run.parts:
        build = declared(part).get("build")
        said = {name: part.of.line[name] for name in ("model", "group", "side", "source")}
        sources.append({**said, "build": build if type(build) is str else None})
    return {
        "format": 1,
        "kind": "accuracy",
        "seal": run.seal_digest,
        "sound": True,
        "conclusion": "within" if within else "beyond",
        "sources": sources,
        "bounds": {model: one["bounds"] for model, one in bounds["models"].items()},
        "cells": cells,
        "coverage": coverage,
        "failures": failures[:50],
        "predictions": [foretold(one, cells) for one in run.predictions or []],
        "exploratory": None if status == "registered" else status,
    }


def foretold(prediction: JSON, cells: list[JSON]) -> dict[str, JSON]:
    """Evaluate one prediction on the cells that it speaks of."""
    chosen = [cell for cell in cells if prediction["models"] == "*" or cell["model"] in prediction["models"]]
    chosen = [cell for cell in chosen if cell["group"] in prediction["groups"] and cell["mode"] in prediction["modes"]]
    values = [cell[prediction["measure"]] for cell in chosen]
    found = max(values, default=0.0) if prediction["measure"] in METRICS else sum(values)
    rows = sum(cell["rows"] for cell in chosen)
    verdicts = [meets(prediction[rule], found, 1) for rule in ("holds", "refuted")]
    status = "holds" if verdicts[0] else "refuted"
    if not chosen:
        status = "not applicable"
    elif rows < prediction["minimum"] or verdicts[0] == verdicts[1]:
        status = "inconclusive"
    names = {name: prediction[name] for name in ("id", "statement")}
    return {**names, "status": status, "found": found, "rows": rows}


def show_accuracy(findings: JSON) -> None:
    """Print the cells of a check as an aligned table."""
    names = ["model", "group", "mode", "rows", "failed", "clear", "winners_lost", "bests_differ", *METRICS]
    columns([names, *([str(cell[name]) for name in names] for cell in findings["cells"])])
    for one in findings["predictions"]:
        say(f"prediction {one['id']}: {one['status']} ({one['found']} over {one['rows']} rows): {one['statement']}")


# 13. Records of kind remedy: one audit a start of the server, and what they say of settings. --------------------------

for kind_name, kind_text in {
    "remedies": "format:int plan:digest registered:digest python:str registration:registration? program:program "
    "dependencies:{str} machine:machine model:str model_sha256:digest slots:int threads:int kind:=remedy",
    "trying": "format:int kind:=remedy name:str rounds:int confirmed_max:int aims:[str] confirm:plan screen:plan",
}.items():
    KINDS[kind_name] = fields(kind_text)
ROLES = "role:=before|screen|confirm|after settings:[str] "
REMEDY_SHAPES = {
    **{kind: SHAPES[kind] for kind in ("begin", "resume", "interrupt", "end")},
    "build": fields(OF_ANY + "build:str help:digest variables:[str]"),
    "untried": fields(
        OF_ANY + "settings:[str] words:str reason:=unknown~flag|unknown~variable|as~without~it|time|confirmed~enough"
    ),
    "failed": fields(OF_ANY + ROLES + "message:str"),
    "arm": fields(
        OF_ANY + ROLES + "arm:str words:[str] asked:[str] argv:[str] environment:{str} seal:digest memory_bytes:int?"
    ),
}
MOVED = ("divergent", "token-identical")
REUSES = ("cache_warm1", "cache_warm2", "cache_prefix")
BATCHES = (*LEVELLED[:2], "oversubscribed", "cross_batch_together", "cross_batch_staggered", *REUSES)


class Arm(NamedTuple):
    """One start: its line, and what its audit amounts to."""

    line: JSON
    setting: str
    found: JSON  # the findings of its audit
    cells: dict[str, JSON]  # of those, the asked ones by condition
    solo: tuple[int, int]  # tokens and nanoseconds
    together: tuple[int, int]

    def moved(self, condition: str) -> bool:
        """Tell whether a cell diverged here, be it in too few trials for a verdict."""
        cell = self.cells.get(condition, {"verdict": "", "by_wave": {"divergent": 0}})
        few = cell["verdict"] in ("vacuous", "insufficient") and cell["by_wave"]["divergent"] > 0
        return few or cell["verdict"] in MOVED


class Remedy(Run):
    """A remedy: its starts in order, and what else its history says."""

    def __init__(self, root: Path, ledger: Ledger, level: str) -> None:
        super().__init__(root, ledger, level)
        self.arms: list[Arm] = []
        self.untried: list[JSON] = []
        self.failed: list[JSON] = []
        self.build: JSON = None

    def nested(self, name: str, wanted: str) -> Run:
        """Open the audit of a start, whose files this folder's seal has too; what is left out is left out there."""
        run = Run(self.root / "arms" / name, self.ledger, self.level)
        prefix = f"arms/{name}/"
        run.omitted = {path[len(prefix) :]: said for path, said in self.omitted.items() if path.startswith(prefix)}
        self.ledger.need("starts", prefix + "SHA256SUMS" in self.seal, "{} is not here", prefix)
        open_folder(run, None)
        self.ledger.hold("starts", run.seal_digest == wanted, "{} has the seal {}", prefix, run.seal_digest)
        return run


class RemedyWalk(Walk):
    """Reads the history of a remedy."""

    shapes = REMEDY_SHAPES

    def on_build(self, line: JSON, _: Server) -> None:
        """Note the build, which is named once, before any start."""
        run: JSON = self.run
        first = run.build is None and not (run.untried or run.failed or run.arms)
        self.ledger.hold("lines", first, "line {}: the build, again or late", self.n)
        run.build = line["build"]
        run.named_file("facts", line["help"])

    def on_untried(self, line: JSON, _: Server) -> None:
        """Note what was not tried."""
        run: JSON = self.run
        run.untried.append({"setting": " + ".join(line["settings"]), "reason": line["reason"], "words": line["words"]})

    def on_failed(self, line: JSON, _: Server) -> None:
        """Note a start that left no audit."""
        run: JSON = self.run
        run.failed.append({"setting": " + ".join(line["settings"]), "role": line["role"], "words": line["message"]})

    def on_arm(self, line: JSON, _: Server) -> None:
        """Judge the audit of a start like any other, and check that it is the one that its role asks for."""
        run: JSON = self.run
        ledger, name = self.ledger, line["arm"]
        proper = re.fullmatch(r"[0-9]{4}-[a-z0-9_-]+", name) and all(name != arm.line["arm"] for arm in run.arms)
        ledger.need("starts", proper, "line {}: {!r} is no name of a start, or was one before", self.n, name)
        bare_role = line["role"] in ("before", "after")
        ledger.hold("starts", bare_role == (not line["settings"]), "line {}: role and settings do not fit", self.n)
        audit = run.nested(name, line["seal"])
        ledger.need("starts", kind_of(audit) == "audit", "{} is no audit", name)
        load(audit)
        wanted = asked_of(run.plan, line["role"], line["asked"])
        ledger.hold("starts", audit.plan == wanted, "{}: its plan is not what its role asks", name)
        ledger.hold("starts", set(line["asked"]) <= set(run.plan["aims"]), "{}: it was asked other cells", name)
        Walk(audit).walk()
        found = findings_of(audit)
        compare(audit, found)
        ledger.hold("starts", len(audit.servers) == 1, "{}: an audit of several servers", name)
        (server,) = list(audit.servers.values())[:1]
        declared = audit.fact(server.declaration) or {"argv": line["argv"]}
        ledger.hold("starts", declared["argv"] == line["argv"], "{}: it was declared with another line", name)
        said = [*(f"{key}={value}" for key, value in line["environment"].items()), *line["argv"]]
        lost = [words for words in line["words"] if f" {words} " not in f" {' '.join(said)} "]
        ledger.hold("starts", not lost and len(line["words"]) == len(line["settings"]), "{}: without {}", name, lost)
        cells = {cell["condition"]: cell for cell in found["cells"] if cell["condition"] in line["asked"]}
        ledger.need("starts", set(cells) == set(line["asked"]), "{}: a cell that was asked is not in its plan", name)
        solo, together = speeds_of(audit, server)
        run.arms.append(Arm(line, " + ".join(line["settings"]), found, cells, solo, together))


def asked_of(plan: JSON, role: str, asked: list[str]) -> JSON:
    """Return the audit plan of a start: the whole one, or of the screening one what makes the asked cells."""
    if role != "screen":
        return plan["confirm"]
    entries = []
    for entry in plan["screen"]["conditions"]:
        name = entry["name"]
        if name in LEVELLED:
            levels = [level for level in entry["levels"] if f"{name}_c{level}" in asked]
            entries += [{**entry, "levels": levels}] if levels else []
        elif any(cell == name or (name == "cache" and cell.startswith("cache_warm")) for cell in asked):
            entries.append(entry)
    return {**plan["screen"], "conditions": entries}


def speeds_of(audit: Run, server: Server) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return tokens and nanoseconds of plain greedy requests alone, and of whole waves of the largest level."""
    levels = [level for entry in audit.plan["conditions"] if entry["name"] == "concurrent_greedy"
              for level in entry["levels"]]  # fmt: skip
    solo, together = [0, 0], [0, 0]
    for unit in audit.order:
        lines = [line for tried in server.attempts.get(unit.id, []) for line in tried.completes.values()]
        lines = [line for line in lines if line.reply]
        condition = unit.trials[0].condition
        if condition in ("baseline", "repeat_greedy") and not unit.trials[0].seeded:
            solo[0] += sum(line["steps"] for line in lines)
            solo[1] += sum(line["last_byte_ns"] - line["sent_ns"] for line in lines)
        elif levels and condition == f"concurrent_greedy_c{max(levels)}" and len(lines) == len(unit.trials):
            together[0] += sum(line["steps"] for line in lines)
            together[1] += max(line["last_byte_ns"] for line in lines) - min(line["sent_ns"] for line in lines)
    return (solo[0], solo[1]), (together[0], together[1])


def speed_of(parts: list[tuple[int, int]]) -> JSON:
    """Return tokens a second over starts, None where nothing was measured."""
    tokens, spent = (sum(part[place] for part in parts) for place in (0, 1))
    return {"tokens": tokens, "ns": spent, "per_second": round(tokens * 1e9 / spent, 3)} if spent else None


def costs_of(arms: list[Arm]) -> JSON:
    """Return speed and memory over the starts that prove something, or where there are none over all."""
    arms = [arm for arm in arms if arm.line["role"] != "screen"] or arms
    memory = [arm.line["memory_bytes"] for arm in arms if arm.line["memory_bytes"] is not None]
    speeds = {"solo": speed_of([arm.solo for arm in arms]), "together": speed_of([arm.together for arm in arms])}
    return {**speeds, "memory_bytes": max(memory) if memory else None}


def effect_of(condition: str, setting: str, arms: list[Arm]) -> JSON:
    """Return what a setting did to a cell, by the first rule that applies."""
    own = [arm for arm in arms if arm.setting == setting and condition in arm.cells]
    verdicts, proving = [arm.cells[condition]["verdict"] for arm in own], None
    trials = sum(arm.cells[condition]["usable"] for arm in own)
    sides: list[JSON] = [None, None]
    for place, arm in enumerate(arms):
        if arm in own and arm.line["role"] == "confirm":
            proving = arm
            sides = [next((one for one in part if not one.setting), None) for part in (arms[place::-1], arms[place:])]
    steady = any(arm.line["role"] == "confirm" and arm.found["sound"] and arm.cells[condition]["verdict"] == "identical"
                 for arm in own)  # fmt: skip
    status = "inconclusive" if own else "not asked"
    if any(arm.moved(condition) for arm in own):
        status = "diverges"
    elif own and set(verdicts) == {"vacuous"} and not trials:
        status = "not reached" if condition in REUSES else "serialized"
    elif steady:
        both = all(side is not None and side.found["sound"] and side.moved(condition) for side in sides)
        status = "remedy" if both else "not reproduced"
        high = proving.cells[condition]["by_wave"]["high"] if proving else 0
        seen = [side.cells[condition]["by_wave"] for side in sides] if both else []
        if any(high >= one["divergent"] / one["n"] for one in seen):
            status = "too rare"  # as many waves could have missed it
    elif "identical" in verdicts and proving is None:
        status = "unconfirmed"
    telling = next((arm for arm in own if arm.moved(condition)), proving or (own[-1] if own else None))
    waves = [arm.cells[condition]["by_wave"] if arm else None for arm in (telling, *sides)]
    return {"condition": condition, "status": status, **dict(zip(("by_wave", "before", "after"), waves))}


def dominated(row: JSON, rows: list[JSON]) -> bool:
    """Tell whether another row is as good in everything and better in something."""

    def merits(one: JSON) -> tuple[set[str], list[float]]:
        rates = [one[key]["per_second"] if one[key] else 0.0 for key in ("together", "solo")]
        cured = {cell["condition"] for cell in one["cells"] if cell["status"] == "remedy"}
        return cured, [*rates, -(one["memory_bytes"] or 0)]

    names = set(row["setting"].split(" + "))
    cured, own = merits(row)
    for other in rows:
        others, theirs = merits(other)
        if set(other["setting"].split(" + ")) < names and others >= cured:
            return True
        if others >= cured and all(b >= a for a, b in zip(own, theirs)) and (others > cured or theirs != own):
            return True
    return False


def smallest_sets(condition: str, rows: list[JSON]) -> list[str]:
    """Return the sets of settings that remedy a cell, of the least size, none of which holds another."""
    cured = [row["setting"].split(" + ") for row in rows for cell in row["cells"]
             if (cell["condition"], cell["status"]) == (condition, "remedy")]  # fmt: skip
    least = min(map(len, cured), default=0)
    return [" + ".join(sorted(names)) for names in cured if len(names) == least]


def remedy_findings(run: Remedy) -> dict[str, JSON]:
    """Return what findings.json must hold."""
    arms, plan = run.arms, run.plan
    first = next((arm for arm in arms if arm.line["role"] == "before"), None)
    aims = [aim for aim in plan["aims"] if first and first.moved(aim)]
    rows: list[JSON] = []
    for setting in dict.fromkeys(arm.setting for arm in arms if arm.setting):
        own = [arm for arm in arms if arm.setting == setting]
        said = next((arm for arm in own if arm.line["role"] == "confirm"), own[-1]).line
        cells = [effect_of(aim, setting, arms) for aim in aims]
        remedied = [cell["status"] for cell in cells].count("remedy")
        row = {"setting": setting, "argv": said["argv"], "environment": said["environment"], "remedied": remedied}
        rows.append({**row, "cells": cells, **costs_of(own)})
    conditions = []
    for aim in plan["aims"]:
        sets = smallest_sets(aim, rows)
        cell = first.cells[aim] if first else {"verdict": None, "by_wave": None}
        known = {"verdict": cell["verdict"], "by_wave": cell["by_wave"], "moved": aim in aims, "remedies": sets}
        conditions.append({"condition": aim, **known, "factor": sets[0] if len(sets) == 1 else None})
    rows.sort(key=rank_of)
    levels = [level for entry in plan["confirm"]["conditions"] if entry["name"] == "concurrent_greedy"
              for level in entry["levels"]]  # fmt: skip
    sound = first is not None and all(arm.found["sound"] for arm in arms if arm.line["role"] != "screen")
    return {
        "format": 1, "kind": "remedy", "seal": run.seal_digest, "sound": sound,
        "conclusion": "sound" if sound else "inconclusive", "build": run.build, "model": run.manifest["model"],
        "level": max(levels) if levels else None, "arms": [start_of(arm) for arm in arms], "conditions": conditions,
        "without": costs_of([arm for arm in arms if not arm.setting]),
        "settings": [{**row, "pareto": bool(row["remedied"]) and not dominated(row, rows)} for row in rows],
        "untried": run.untried, "failed": run.failed, "predictions": [], "exploratory": "not registered",
    }  # fmt: skip


def rank_of(row: JSON) -> JSON:
    """Return by what rows are sorted: most cells remedied, fewest that diverge, fastest, smallest, name."""
    rates = [-(row[key]["per_second"] if row[key] else 0.0) for key in ("together", "solo")]
    diverging = [cell["status"] for cell in row["cells"]].count("diverges")
    return -row["remedied"], diverging, *rates, row["memory_bytes"] or 0, row["setting"]


def start_of(arm: Arm) -> JSON:
    """Return the entry of a start."""
    said = {key: arm.line[key] for key in ("arm", "role", "argv", "environment", "memory_bytes")}
    cells = [{key: cell[key] for key in ("condition", "verdict", "by_wave", "reasons")} for cell in arm.cells.values()]
    speeds = {"solo": speed_of([arm.solo]), "together": speed_of([arm.together])}
    return {**said, "setting": arm.setting, "sound": arm.found["sound"], **speeds, "cells": cells}


def judge_remedy(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Verify a record of kind remedy."""
    whole = Remedy(run.root, run.ledger, run.level)
    for name in ("seal", "omitted", "seal_digest"):
        setattr(whole, name, getattr(run, name))
    whole.manifest = require(run.manifest, KINDS["remedies"], "manifest.json", run.ledger)
    run.ledger.hold("manifest", whole.manifest["plan"] == "sha256:" + run.seal["plan.json"], "its plan is another")
    whole.plan = document(run, "plan.json", KINDS["trying"])
    settle_registration(whole)
    RemedyWalk(whole).walk()
    held = {f"arms/{arm.line['arm']}" for arm in whole.arms}
    strangers = [path for path in run.seal if path.startswith("arms/") and path.rsplit("/", 2)[0] not in held
                 and path.rsplit("/", 1)[0] not in held]  # fmt: skip
    run.ledger.hold("starts", not strangers, "{} is of no start that the history names", strangers[:1])
    note_repository(whole, options, report)
    mine = remedy_findings(whole)
    report["notes"]["findings.json"] = compare(whole, mine)
    report["findings"] = mine
    moved = [one for one in mine["conditions"] if one["moved"]]
    cured = [one for one in moved if one["remedies"]]
    text = f"{len(whole.arms)} starts, {len(cured)} of {len(moved)} diverging conditions remedied"
    report["exit"], report["sentence"] = 0, f"sound: {text}"
    if not mine["sound"]:
        report["exit"] = 3
        report["sentence"] = f"inconclusive: a start that has to prove something is not sound; {text}"
    elif options.demand and len(cured) < len(moved):
        report["exit"] = 1


def show_remedy(findings: JSON) -> None:
    """Print what each setting did."""
    moved = [one["condition"] for one in findings["conditions"] if one["moved"]]
    statuses = ([cell["status"] for cell in row["cells"]] for row in findings["settings"])
    rows = [["*" * row["pareto"], row["setting"], *own] for row, own in zip(findings["settings"], statuses)]
    columns([["best", "setting", *moved], *rows])
    for one in findings["conditions"]:
        said = ", ".join(one["remedies"]) or "none"
        say(f"{one['condition']}: {one['verdict']} without any setting, remedies: {said if one['moved'] else '-'}")


# 14. One run, and the command. ----------------------------------------------------------------------------------------


def unsealed(run: Run) -> str:
    """Say what an unsealed run still holds: finished attempts, and how far its chain holds."""
    finished, previous, end = set(), "sha256:" + bare(run.read("manifest.json")), "to the end"
    path = run.root / "history.jsonl"
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    rest = lines.pop()
    shapes = {**IDENTITY_SHAPES, **CHECK_SHAPES, **CAPTURE_SHAPES, **REMEDY_SHAPES}
    for n, raw in enumerate(lines):
        try:
            line = decode(raw + b"\n", "", Ledger())
            require(line, shapes[line["line"]], "", Ledger())
        except (RefusedError, KeyError, TypeError, OverflowError, MemoryError):
            line = {"n": -1}
        if line["n"] != n or line["prev"] != previous:
            end = f"only up to line {n}"
            break
        previous = digest(raw + b"\n")
        if line["line"] == "complete":
            finished.add((line["server"], line["trial"], line["attempt"]))
    cut = f", behind it {len(rest)} bytes of an incomplete line" if rest else ""
    return f"unsealed: {len(finished)} finished attempts are readable, the chain holds {end}{cut}"


def kind_of(run: Run) -> str:
    """Read the manifest, and return which kind of record this is."""
    run.manifest = document(run, "manifest.json")
    kind = run.manifest.get("kind")
    run.ledger.need("shape", type(kind) is str, "manifest.json: unexpected kind {!r}", kind)
    if kind not in JUDGES:
        raise ForeignError(f"kind {kind} is not known to this verifier")
    nested = [path for path in run.seal if path.startswith("arms/")]
    run.ledger.need("paths", kind == "remedy" or not nested, "only a remedy holds audits: {}", nested[:1])
    return str(kind)


def note_repository(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Ask git about the registration where a repository is given, and note what was found."""
    checked = check_repository(run, options.repo) if options.repo is not None else "not checked (no --repo)"
    report["notes"]["repository"] = checked
    report["notes"]["time stamp"] = time_stamp(run, options.repo) if options.repo is not None else "not looked for"


def judge_audit(run: Run, options: argparse.Namespace, report: dict[str, JSON]) -> None:
    """Verify a record of kind audit."""
    load(run)
    Walk(run).walk()
    note_repository(run, options, report)
    mine = findings_of(run)
    report["notes"]["findings.json"] = compare(run, mine)
    report["findings"] = mine
    report["exit"], report["sentence"] = conclude(mine, options)


JUDGES = {"audit": judge_audit, "identity": judge_identity, "accuracy": judge_accuracy, "remedy": judge_remedy}


def verify(root: Path, options: argparse.Namespace) -> dict[str, JSON]:
    """Verify one run; return what was found, with the exit code and one sentence."""
    ledger = Ledger()
    run = Run(root, ledger, options.level)
    report: dict[str, JSON] = {"run": str(root), "notes": {}, "findings": None}
    try:
        if not root.is_dir():
            raise ForeignError(f"{root}: no such folder")  # noqa: TRY301
        if not (root / "manifest.json").exists():
            raise ForeignError(f"{root}: not a run, it has no manifest.json")  # noqa: TRY301
        if not (root / "SHA256SUMS").exists():
            raise ForeignError(unsealed(run))  # noqa: TRY301
        open_folder(run, options.expect)
        JUDGES[kind_of(run)](run, options, report)
    except (ForeignError, OSError) as error:
        report["exit"], report["sentence"] = 2, str(error)
    except RefusedError as error:
        ledger.contradictions.append(error.args)
    except (RecursionError, MemoryError, OverflowError) as error:
        ledger.contradictions.append(("json", f"{type(error).__name__}: {error}"))
    found = ledger.contradictions
    if found:
        report["exit"] = 4
        report["sentence"] = f"contradiction: {len(found)} found, the first: {found[0][0]}: {found[0][1]}"
    report["seal"] = run.seal_digest or None
    report["checks"] = [
        {"name": name, "count": ledger.counts[name], "failed": ledger.failures[name], "what": what}
        for name, what in {**CONTRADICTIONS, **COMPARISONS, **JUDGEMENTS}.items()
        if name not in COMPARISONS or ledger.counts[name]
    ]
    report["contradictions"] = [{"check": name, "message": message} for name, message in found]
    report["unchecked"] = ledger.unchecked
    return report


def conclude(findings: JSON, options: argparse.Namespace) -> tuple[int, str]:
    """Return exit code and sentence of a run in which nothing contradicts."""
    statuses = Counter(prediction["status"] for prediction in findings["predictions"])
    verdicts = Counter(cell["verdict"] for cell in findings["cells"])
    counted, predicted = (", ".join(f"{n} {name}" for name, n in some.items()) for some in (verdicts, statuses))
    text = f"{len(findings['cells'])} cells ({counted}), predictions: {predicted or 'none'}"
    if findings["conclusion"] != "sound":
        rows = [row for row in findings["instrument"] if row["status"] != "held"]
        failed = ", ".join(f"{row['server']} {row['check']} {row['status']}" for row in rows)
        return 3, f"inconclusive: {failed or 'no cell has a verdict'}; {text}"
    if options.demand and "refuted" in statuses:
        return 1, f"sound, and a prediction is refuted: {text}"
    if options.demand and "inconclusive" in statuses:
        return 3, f"inconclusive: a prediction is; {text}"
    return 0, f"sound: {text}"


def show(report: dict[str, JSON]) -> None:
    """Print one report: checks, cells, predictions, contradictions, sentence."""
    say(f"run {report['run']}")
    if report["seal"]:
        say(f"seal {report['seal']}")
    for check in report["checks"] if report["seal"] else []:
        if check["name"] not in JUDGEMENTS:
            status = "FAIL" if check["failed"] else "ok" if check["count"] else "-"
            say(f"{status:<5} {check['name']:<14} {check['count']:>8}  {check['what']}")
        elif check["count"]:
            kept = f"{check['count'] - check['failed']}/{check['count']}"
            say(f"{'held':<5} {check['name']:<14} {kept:>8}  {check['what']}")
    for what, count in report["unchecked"].items():
        say(f"{'not':<5} {'checked':<14} {count:>8}  {what}")
    for what, note in report["notes"].items():
        say(f"{what}: {note}")
    if report["findings"]:
        shown = {"audit": show_findings, "identity": show_identity, "accuracy": show_accuracy, "remedy": show_remedy}
        shown[report["findings"]["kind"]](report["findings"])
    for found in report["contradictions"][:50]:
        say(f"contradiction: {found['check']}: {found['message']}")
    if report["contradictions"][50:]:
        say(f"... and {len(report['contradictions']) - 50} more, see --json")
    say(report["sentence"])


def show_findings(findings: JSON) -> None:
    """Print cells, instrument and predictions as aligned tables."""
    table = [["verdict", "server", "condition", "logprob", "token", "distinct", "waves"]]
    table[0] += ["divergent waves, 95 %", "excluded"]
    for cell in findings["cells"]:
        usable, wave = cell["usable"], cell["by_wave"]
        excluded = [f"{count} {name}" for name, count in cell["excluded"].items() if count]
        excluded += [f"{name} x{count}" for name, count in sorted(cell["reasons"].items())]
        row = [" ".join([cell["verdict"], *cell["qualifiers"]]), cell["server"], cell["condition"]]
        row += [f"{cell[key]}/{usable}" for key in ("logprob_identical", "token_identical")]
        row += [str(cell["distinct"]), f"{wave['n'] - wave['divergent']}/{wave['n']}"]
        table.append([*row, f"{wave['low']:.6f} .. {wave['high']:.6f}", ", ".join(excluded) or "-"])
    columns(table)
    rows = [[row["status"], row["server"], row["check"], f"{row['k']}/{row['n']}"] for row in findings["instrument"]]
    columns([["status", "server", "instrument", "k/n"], *rows])
    for one in findings["predictions"]:
        say(f"prediction {one['id']}: {one['status']} ({one['k']}/{one['n']}): {one['statement']}")


def statement_of(report: dict[str, JSON]) -> dict[str, JSON]:
    """Return an in-toto Statement about the run's seal, of the predicate test-result v0.1, for others to sign."""
    asked = [check for check in report["checks"] if check["name"] not in JUDGEMENTS and check["count"]]
    failed = {row["check"] for row in report["contradictions"]}
    program = digest(Path(__file__).read_bytes())[7:]
    unsure = ["the record as a whole"] if report["exit"] == 3 else []
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "SHA256SUMS", "digest": {"sha256": (report["seal"] or "")[7:]}}],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {
            "result": {0: "PASSED", 3: "WARNED"}.get(report["exit"], "FAILED"),
            "configuration": [{"name": "verify.py", "digest": {"sha256": program}}],
            "passedTests": [check["name"] for check in asked if check["name"] not in failed],
            "warnedTests": unsure,
            "failedTests": sorted(failed),
        },
    }


def columns(table: list[list[str]]) -> None:
    """Print rows with their columns aligned."""
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    say("")
    for row in table:
        say("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def say(text: str) -> None:
    """Print a line of printable ASCII: what a record holds may not steer a terminal."""
    print("".join(letter if " " <= letter <= "~" else ascii(letter)[1:-1] for letter in text))


def main(arguments: list[str] | None = None) -> int:
    """Verify the runs of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="verify.py", description="Verify stored audit runs, with nothing installed.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--assert", dest="demand", action="store_true", help="exit 1 where a prediction is refuted")
    parser.add_argument("--expect", metavar="DIGEST", help="the deposited digest of the seal of the one run")
    parser.add_argument("--level", choices=("bytes", "digests"), default="bytes", help="digests: read no stream or row")
    parser.add_argument(
        "--statement", action="store_true", help="print an in-toto Statement of the one run, to be signed"
    )
    parser.add_argument("--repo", metavar="DIR", help="a git repository that holds the registration's history")
    options = parser.parse_args(arguments)
    if options.expect is not None and (len(options.runs) > 1 or not DIGEST.fullmatch(options.expect)):
        parser.error("--expect takes sha256: and 64 hex digits, and one run")
    if options.statement and (len(options.runs) > 1 or options.json):
        parser.error("--statement takes one run, and no --json")
    reports = []
    for name in options.runs:
        reports.append(verify(Path(name), options))
        if options.statement and reports[-1]["seal"]:
            print(json.dumps(statement_of(reports[-1]), sort_keys=True, indent=1))
        elif options.statement:
            sys.stderr.write(f"error: {reports[-1]['sentence']}\n")
        elif not options.json:
            show(reports[-1])
    worst = min(reports, key=lambda report: SEVERITY.index(report["exit"]))
    if options.json:
        print(json.dumps({"format": 1, "runs": reports, "exit": worst["exit"]}, indent=1, sort_keys=True))
    elif len(reports) > 1:
        say("")
        word = worst["sentence"].split(":")[0].split(",")[0]
        say(f"{word}: the worst of {len(reports)} runs is {worst['run']}")
    return int(worst["exit"])


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    except Exception:  # noqa: BLE001 - an uncaught exception would exit with 1, which means a refuted prediction
        traceback.print_exc()
        sys.stderr.write("error: a bug in verify.py, please report it with the lines above\n")
        code = 5
    sys.exit(code)
