"""A run folder in memory, edited and written again as a forger would: re-addressed, re-linked, sums re-made.

In: a sealed run folder. Out: an edited copy, and what scripts/verify.py says of it. How far the forger goes is one of
FORGES. The hostile vectors, the sweeps and the script that disables checks share it; it is imported, not run.

It deliberately knows no rule of the verifier: where findings are re-made, they are those that the verifier computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

JSON = Any
REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = REPOSITORY / "tests" / "vectors" / "golden"
VERIFIER = REPOSITORY / "scripts" / "verify.py"
# What is made again after the edit: nothing, the sums, also the chain, also the findings.
FORGES = ("nothing", "sums", "links", "findings")
LISTS = ("SHA256SUMS", "DERIVED.SHA256SUMS")
DERIVED = ("findings.json", "cells.csv")
STORES = ("streams/", "rows/", "facts/", "bodies/")
SENTINEL = -3.4028234663852886e38


def canonical(value: JSON) -> bytes:
    """Return the canonical JSON of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def sha(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def one_ulp(value: float) -> float:
    """Return a negative float32 moved by one, away from zero."""
    return float(struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] + 1))[0])


def replaced(value: JSON, old: str, new: str) -> JSON:
    """Return a document in which one string stands in another's place, wherever it stood."""
    if isinstance(value, dict):
        return {key: replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, old, new) for inner in value]
    return new if value == old else value


def load_verifier() -> ModuleType:
    """Import scripts/verify.py from its file."""
    spec = importlib.util.spec_from_file_location("verify_for_vectors", VERIFIER)
    if spec is None or spec.loader is None:
        raise ImportError(f"{VERIFIER} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def examine(verifier: ModuleType, folder: Path, *flags: str) -> dict[str, JSON]:
    """Verify a folder in this process; return the report of its run. A bug of the verifier is exit 5 here too."""
    for value in vars(verifier).values():
        if hasattr(value, "cache_clear"):  # what was read of a folder under the same name may be stale
            value.cache_clear()
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            verifier.main(["--json", *flags, str(folder)])
    except Exception as error:  # noqa: BLE001 - whatever escapes is what the command reports as a bug
        return {"exit": 5, "sentence": repr(error), "contradictions": [], "checks": [], "findings": None}
    return cast("dict[str, JSON]", json.loads(said.getvalue())["runs"][0])


def require_sound(verifier: ModuleType, folder: Path) -> None:
    """Stop where a run is not sound as it is: whatever one does to such a run, it is refused."""
    report = examine(verifier, folder)
    if report["exit"] != 0:
        sys.exit(f"error: {folder} is not sound before any edit: {report['sentence']}")


def failed(report: dict[str, JSON]) -> set[str]:
    """Return the names of the checks that failed in a report, contradictions and judgements."""
    names = {check["name"] for check in report["checks"] if check["failed"]}
    return names | {found["check"] for found in report["contradictions"]}


class Forgery:
    """A run in memory: edit `manifest`, `lines`, `files`, `findings` or `raw`, then write it.

    Attributes:
        files: bytes by path, without the manifest, the history, the findings and the lists.
        raw: bytes that stand in for a file whatever else was made of it.
        links: paths that are written as symbolic links, with their targets.
        keep: whether files that nothing names any more are kept.
        flags: options that the verifier is given.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self.files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        self.manifest: JSON = json.loads(self.files.pop("manifest.json"))
        self.lines: list[JSON] = [json.loads(line) for line in self.files.pop("history.jsonl").splitlines()]
        self.findings: JSON = json.loads(self.files.pop("findings.json"))
        self.lists = {name: self.files.pop(name) for name in LISTS}
        self.raw: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.keep = False
        self.flags: list[str] = []

    def of(self, kind: str, **wanted: JSON) -> list[JSON]:
        """Return the lines of a kind with these values, in order."""
        return [
            line
            for line in self.lines
            if line["line"] == kind and all(line.get(key) == value for key, value in wanted.items())
        ]

    def reply(self, trial: str, part: int = 0) -> JSON:
        """Return the reply of a trial."""
        return self.of("complete", trial=trial, part=part)[0]["reply"]

    def shot(self, unit: str, when: str) -> JSON:
        """Return a snapshot of a unit."""
        return self.of("snapshot", unit=unit, when=when)[0]

    def json(self, digest: str) -> JSON:
        """Return a stored fact."""
        return json.loads(self.files[f"facts/{digest[7:]}.json"])

    def store(self, folder: str, data: bytes, suffix: str) -> str:
        """Store bytes under their digest; return it."""
        self.files[f"{folder}/{sha(data)}{suffix}"] = data
        return "sha256:" + sha(data)

    def fact(self, value: JSON) -> str:
        """Store a fact; return its digest."""
        return self.store("facts", canonical(value), ".json")

    def readdress(self, old: str, new: str) -> None:
        """Write one digest in another's place in manifest and history."""
        self.manifest = replaced(self.manifest, old, new)
        self.lines = [replaced(line, old, new) for line in self.lines]

    def edit_fact(self, digest: str, change: Callable[[JSON], object]) -> None:
        """Change a fact and name its new address everywhere."""
        value = self.json(digest)
        change(value)
        self.readdress(digest, self.fact(value))

    def steps(self, digest: str) -> list[JSON]:
        """Return the head and the steps of a stored stream."""
        return [json.loads(line) for line in self.files[f"streams/{digest[7:]}.jsonl"].splitlines()]

    def restream(self, digest: str, lines: list[JSON], trials: tuple[str, ...] = ()) -> None:
        """Store a changed stream; every reply that named the old one (or those of `trials`) gets its counts right."""
        logprob = self.store("streams", b"".join(map(canonical, lines)), ".jsonl")
        steps = lines[1:]
        values = [value for step in steps for value in [step[1], *(pair[1] for pair in step[2])] if value is not None]
        said = {"logprob": logprob, "token": "sha256:" + sha(canonical([step[0] for step in steps]))}
        counts = {"steps": len(steps), "holes": sum(not step[2] for step in steps) if lines[0]["n_probs"] else 0}
        more = {"above_zero": sum(0.0 < value <= 1e-3 for value in values)}  # noqa: PLR2004 - of the record format
        more["saturated"] = sum(value in (0.0, SENTINEL) for value in values)
        for line in self.of("complete"):
            reply = line["reply"] or {"logprob": None, "joined": None}
            if reply["logprob"] == digest and (not trials or line["trial"] in trials):
                reply.update(said, **counts, **more)
            joined = reply["joined"]
            if joined and joined["logprob"] == digest and (not trials or line["trial"] in trials):
                joined.update(said, **counts)

    def drop(self, unit: str) -> None:
        """Remove all lines of a unit."""
        self.lines = [line for line in self.lines if line.get("unit") != unit]

    def prune(self) -> None:
        """Remove stored files that no line and no statement of the manifest names."""
        text = canonical([self.manifest, self.lines]).decode("ascii")
        for path in list(self.files):
            if path.startswith(STORES) and Path(path).stem not in text:
                del self.files[path]

    def link(self) -> None:
        """Number the lines again and let each name the digest of the one before."""
        previous = sha(self.raw.get("manifest.json", canonical(self.manifest)))
        for number, line in enumerate(self.lines):
            line.update(n=number, prev="sha256:" + previous)
            previous = sha(canonical(line))

    def write(self, folder: Path, forge: str, verifier: ModuleType) -> None:
        """Write the edited run into a new folder, as far re-made as `forge` says (one of FORGES)."""
        level = FORGES.index(forge)
        if level > 1:
            if not self.keep:
                self.prune()
            self.link()
        files = {**self.files, "manifest.json": canonical(self.manifest), "findings.json": canonical(self.findings)}
        files["history.jsonl"] = b"".join(map(canonical, self.lines))
        files.update(self.raw)
        lists = dict(self.lists)
        if level > 0:
            lists["SHA256SUMS"] = sums({path: data for path, data in files.items() if path not in DERIVED})
            files["findings.json"] = canonical({**self.findings, "seal": "sha256:" + sha(lists["SHA256SUMS"])})
            lists["DERIVED.SHA256SUMS"] = sums({path: files[path] for path in DERIVED})
        folder.mkdir(parents=True)
        for path, data in {**files, **lists, **{name: self.raw[name] for name in LISTS if name in self.raw}}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        for path, target in self.links.items():
            (folder / path).unlink()
            (folder / path).symlink_to(target)
        if forge == "findings":
            mine = examine(verifier, folder)["findings"]
            (folder / "findings.json").write_bytes(canonical(mine or self.findings))
            derived = {path: (folder / path).read_bytes() for path in DERIVED}
            (folder / "DERIVED.SHA256SUMS").write_bytes(sums(derived))


def sums(files: dict[str, bytes]) -> bytes:
    """Return a list of sums."""
    return "".join(f"{sha(files[path])}  {path}\n" for path in sorted(files)).encode("ascii")
