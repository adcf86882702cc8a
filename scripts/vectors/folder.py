"""Hostile vectors: edits that contradict the bytes, the lists, the format or the chain."""

from __future__ import annotations

from collections.abc import Callable

from scripts.forgery import GOLDEN, Forgery, canonical
from scripts.vectors.table import Edit, add, first, line, patch


def raw_manifest(old: bytes, new: bytes) -> Edit:
    """Return an edit of the manifest's bytes."""
    return lambda run: run.raw.update({"manifest.json": canonical(run.manifest).replace(old, new, 1)})


def listed(change: Callable[[bytes], bytes]) -> Edit:
    """Return an edit of the list of sums."""
    return lambda run: run.raw.update(SHA256SUMS=change(run.lists["SHA256SUMS"]))


# Bytes and files -----------------------------------------------------------------------------------------------------

BYTES = "the seal holds each file's SHA-256"
NONE = "nothing"
add("logprob_digit", "bytes", BYTES, patch("streams/", b".1", b".2"), forge=NONE)
add("fact_digit", "bytes", BYTES, patch("facts/", b'"seed":1', b'"seed":2'), forge=NONE)
add("table_for_people", "bytes", "the second list holds derived files", patch("cells.csv", b",", b";"), forge=NONE)
add("registered_text", "bytes", BYTES, patch("registration/PREREG", b"identical", b"different"), forge=NONE)
add("file_missing", "files", "each listed file is there", lambda run: run.files.pop(first(run, "facts/")), forge=NONE)
add("stranger", "files", "each file is listed", lambda run: run.files.update({"more.txt": b"x\n"}), forge=NONE)
STEP_OUT = listed(lambda data: data.replace(b"  plan.json", b"  ../plan.json"))
add("path_escapes", "paths", "a path of the format", STEP_OUT, forge=NONE)
add(
    "link",
    "paths",
    "plain files only",
    lambda run: run.links.update({"cells.csv": str(GOLDEN / "cells.csv")}),
    forge=NONE,
)
add("list_unsorted", "files", "the order of a list", listed(lambda b: b"\n".join(b.split(b"\n")[1::-1]) + b"\n"))
add(
    "list_entry_twice",
    "files",
    "the order of a list",
    listed(lambda b: b.split(b"\n")[0] + b"\n" + b),
    forge=NONE,
)
add("format_2", "format", "the format's number", lambda run: run.manifest.update(format=2))
add("field_unknown", "shape", "the fields of the format", lambda run: run.manifest.update(note="x"))
add("field_missing", "shape", "the fields of the format", lambda run: run.of("snapshot")[0].pop("health"))
add("bool_for_int", "shape", "the types of the format", line("snapshot", attempt=False))
add("float_for_int", "shape", "the types of the format", line("complete", status=200.0))
add("two_to_the_63", "shape", "the range of an integer", line("complete", status=2**63))
add("key_twice", "json", "a key stands once", raw_manifest(b'{"dep', b'{"format":1,"dep'))
add("infinity", "json", "numbers are finite", raw_manifest(b'"cores":2', b'"cores":1e999'))
add("not_a_number", "json", "numbers are finite", raw_manifest(b'"cores":2', b'"cores":NaN'))
add("space", "canonical", "one text for one value", raw_manifest(b'":', b'": '))
add("trailing_bytes", "canonical", "one text for one value", raw_manifest(b"}\n", b"}\n\n"))


def deep(run: Forgery) -> None:
    """Store a fact that is nested deeper than an interpreter reads."""
    run.manifest["servers"][0]["declaration"] = run.store("facts", b"[" * 100_000 + b"\n", ".json")


add("nested_deeply", "json", "what cannot be read is refused", deep)

# Chain, clock, lines -------------------------------------------------------------------------------------------------

CHAIN = "each line names the digest of the one before"
add("line_unlinked", "chain", CHAIN, line("snapshot", health=201), forge="sums")
add("manifest_unlinked", "chain", CHAIN, lambda run: run.manifest["machine"].update(cores=64), forge="sums")
add("line_dropped", "chain", CHAIN, lambda run: run.lines.pop(2), forge="sums")
TIMES = "times do not run backwards"
add("reply_before_request", "clock", TIMES, lambda run: run.of("complete")[0].update(sent_ns=0, first_byte_ns=1))
add("end_in_the_past", "clock", TIMES, line("end", at_ns=5))
add("reply_without_times", "clock", "a reply has its times", line("complete", 0, sent_ns=None))
add("no_end", "lines", "a sealed history ends", lambda run: run.lines.pop())
add("end_twice", "lines", "nothing follows the end", lambda run: run.lines.append(dict(run.lines[-1])))
add("snapshot_out_of_place", "lines", "a start snapshot is of no unit", line("snapshot", unit="canary/first"))
add("process_numbers", "lines", "processes are counted", line("begin", process=1))
