"""Make the corpus of an accuracy study from texts of this project, by the tokenizers of the models themselves.

In: the pages of this project at a commit (its own text, under the MIT licence), and for each model its quantized and
its decoded file. Out: a canonical JSON index, the same for the same texts, models and numbers. A model's tokenizer is
asked through a server of its own here, and a token whose piece is no complete UTF-8 text is never forced: its window
is passed over. Every window is cut from a place of its own, so that no two sequences share a text.

    python scripts/make_corpus.py --out corpus.json --name NAME --commit COMMIT
        --model ID=QUANTIZED=DECODED:ROWS [--model ...] [--members 64] [--prefill 48,8,192,64]
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from audit.accuracy.corpus import GROUPS, SPLITS, Corpus, Model, Sequence, Source
from audit.local.launch import LaunchSettings
from audit.local.models import resolve_model
from audit.local.owned import start_embedded

REPOSITORY = Path(__file__).resolve().parents[1]
LICENCE = "MIT"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Wanted:
    """One model of the command line: its id, its two files, its rows a sequence."""

    id: str
    quantized: str
    decoded: str
    rows: int

    @classmethod
    def parse(cls, text: str) -> Wanted:
        """Read `ID=QUANTIZED=DECODED:ROWS`."""
        files, _, rows = text.rpartition(":")
        name, quantized, decoded = files.split("=")
        return cls(name, quantized, decoded, int(rows))


def texts(commit: str) -> tuple[str, list[Source]]:
    """Return the pages of a commit as one text, and each page with its digest and licence."""
    git = ["git", "-C", str(REPOSITORY)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", commit, "--", "README.md", "CONTRIBUTING.md", "docs"],
        capture_output=True,
        text=True,
        check=True,
    )
    pages, sources = [], []
    for name in sorted(path for path in listed.stdout.split() if path.endswith(".md")):
        data = subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, check=True).stdout
        pages.append(" ".join(data.decode("ascii").split()))
        sources.append(Source(name=name, licence=LICENCE, sha256=f"sha256:{hashlib.sha256(data).hexdigest()}"))
    return "\n".join(pages), sources


def ask(url: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
    """Send one request to the server of a tokenizer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise SystemExit(f"error: {path} answers {response.status}: {text[:200]!r}")
    return json.loads(text)


def tokens_of(url: str, text: str) -> tuple[list[int], list[tuple[int, bool]], int]:
    """Return the ids that begin a sequence, each id of the text with whether its piece is complete, and the vocabulary.

    A piece that is no UTF-8 text by itself comes as a list of bytes.
    """
    start = ask(url, "/tokenize", {"content": "", "add_special": True})["tokens"]
    body = {"content": text, "add_special": False, "parse_special": False, "with_pieces": True}
    pieces = ask(url, "/tokenize", body)["tokens"]
    vocabulary = ask(url, "/v1/models")["data"][0]["meta"]["n_vocab"]
    return start, [(one["id"], isinstance(one["piece"], str)) for one in pieces], vocabulary


def cut(
    model: str,
    start: list[int],
    pieces: list[tuple[int, bool]],
    *,
    rows: int,
    members: int,
    prefills: list[int],
) -> list[Sequence]:
    """Cut the sequences of a model out of its text, from its beginning on, members of the groups by turns."""
    at, sequences, seen = 0, [], set()
    for slot in range(members):
        for group, length in zip(GROUPS, prefills, strict=True):
            taken = length - len(start)
            while True:
                window = pieces[at : at + taken + rows]
                if len(window) < taken + rows:
                    raise SystemExit(f"error: {model}: the text ends at {group}-{slot:02}")
                at += taken + rows
                ids = [token for token, _ in window]
                prefill = [*start, *ids[:taken]]
                if all(whole for _, whole in window[taken:]) and tuple(prefill) not in seen:
                    break
            seen.add(tuple(prefill))
            bare = Sequence(
                id=f"{group}-{slot:02}",
                model=model,
                group=group,
                split=SPLITS[group],
                slot=slot,
                prefill=prefill,
                teacher=ids[taken:],
                digest="",
            )
            sequences.append(msgspec.structs.replace(bare, digest=bare.expected_digest()))
    return sorted(sequences, key=lambda one: (GROUPS.index(one.group), one.slot))


def main() -> int:
    """Write the index."""
    parser = argparse.ArgumentParser(description="Make the corpus of an accuracy study.")
    parser.add_argument("--out", type=Path, required=True, help="the file to write, which must not exist")
    parser.add_argument("--name", required=True)
    parser.add_argument("--commit", default="HEAD", help="whose pages are the text")
    parser.add_argument("--model", type=Wanted.parse, action="append", required=True, metavar="ID=FILE=FILE:ROWS")
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--prefill", default="48,8,192,64", help=f"tokens of {', '.join(GROUPS)}")
    options = parser.parse_args()
    text, sources = texts(options.commit)
    models, sequences = {}, []
    for wanted in options.model:
        quantized, decoded = resolve_model(wanted.quantized), resolve_model(wanted.decoded)
        with start_embedded(quantized, LaunchSettings(slots=1, ctx_per_slot=512, threads=1)) as server:
            start, pieces, vocabulary = tokens_of(server.url, text)
        models[wanted.id] = Model(
            quantized=f"sha256:{quantized.sha256}",
            decoded=f"sha256:{decoded.sha256}",
            vocabulary=vocabulary,
            rows=wanted.rows,
        )
        prefills = [int(part) for part in options.prefill.split(",")]
        sequences += cut(wanted.id, start, pieces, rows=wanted.rows, members=options.members, prefills=prefills)
    corpus = Corpus(
        format=1,
        kind="corpus",
        name=options.name,
        members=options.members,
        sources=sources,
        models=models,
        sequences=sequences,
    )
    data = corpus.to_bytes()
    Corpus.parse(data, name=str(options.out))
    with options.out.open("xb") as file:
        file.write(data)
    print(f"sha256:{hashlib.sha256(data).hexdigest()}  {len(sequences)} sequences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
