"""A small accuracy study against fakes: captured once, then copied and forged.

In: nothing, or an edit. Out: the folders of a study whose reference is a clean fake and whose server is the same one
with rounding noise in batches; and copies of a capture that a forger edited, linked and sealed again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from audit.accuracy.bounds import write_bounds
from audit.accuracy.calibrate import calibrate
from audit.accuracy.capture import Done, Job, capture
from audit.accuracy.corpus import GROUPS, SPLITS, Corpus, Model, Sequence, Source
from audit.accuracy.inputs import InputFiles
from audit.accuracy.order import AccuracyOrder, chosen_accuracy_order
from audit.accuracy.packed import pack, unpack
from audit.client import Address
from audit.fake import FakeSettings, FakeThread, Faults
from audit.sitting import Target
from scripts.forgery import canonical, sha, sums

JSON = Any
MODEL = "toy"
MEMBERS, ROWS, VOCABULARY = 4, 12, 512
# Of ids whose calibration rows are moved by as much as any others, so that 1.5 times their maxima bounds all.
SEED = 6
PREFILLS = {"original": 6, "short": 2, "long": 14, "fresh": 9}
QUANTIZED, DECODED = (hashlib.sha256(word).hexdigest() for word in (b"quantized", b"decoded"))
# Long enough that the overlap of a wave shows on a machine that others use too.
STEP_MS = 4.0
PLAN = 'name = "small"\ncorpus = "CORPUS"\nrecorded = 2\nattempts = 10\n'


def sequence(group: str, slot: int, prefill: list[int], teacher: list[int]) -> Sequence:
    """A member with its digest."""
    values = {"id": f"{group}-{slot:02}", "model": MODEL, "group": group, "split": SPLITS[group], "slot": slot}
    bare = msgspec.convert({**values, "prefill": prefill, "teacher": teacher, "digest": ""}, Sequence)
    return msgspec.structs.replace(bare, digest=bare.expected_digest())


def small_corpus() -> Corpus:
    """Return an index of the fake's ids."""
    draw = random.Random(SEED)  # noqa: S311 - any ids will do

    def ids(count: int) -> list[int]:
        return [draw.randrange(3, VOCABULARY) for _ in range(count)]

    members = [
        sequence(group, slot, [1, *ids(PREFILLS[group] - 1)], ids(ROWS)) for group in GROUPS for slot in range(MEMBERS)
    ]
    model = Model(quantized=f"sha256:{QUANTIZED}", decoded=f"sha256:{DECODED}", vocabulary=VOCABULARY, rows=ROWS)
    source = Source(name="random", licence="none needed", sha256="sha256:" + "0" * 64)
    return Corpus(
        format=1, kind="corpus", name="small", members=MEMBERS, sources=[source], models={MODEL: model},
        sequences=members,
    )  # fmt: skip


@dataclass(frozen=True)
class Owner:
    """Declares a fake as if it were a server of our own."""

    sha256: str
    executable: str = "1" * 64
    batch: int = 4096

    def restart(self) -> None:
        """Do nothing: an accuracy capture restarts no server."""

    def abort(self) -> None:
        """Do nothing: the fake ends with its thread."""

    def declaration(self) -> dict[str, JSON]:
        """Return what the operator knows."""
        return {
            "build": "fake", "executable_sha256": self.executable, "libraries": [], "libraries_source": "none",
            "environment_present": [], "model_sha256": self.sha256, "settings": {"batch": self.batch, "slots": MEMBERS},
        }  # fmt: skip


@dataclass(frozen=True)
class Study:
    """Where the files of a study are."""

    root: Path

    @property
    def corpus(self) -> Path:
        """The index."""
        return self.root / "corpus.json"

    @property
    def plan(self) -> Path:
        """The plan."""
        return self.root / "plan.toml"

    @property
    def bounds(self) -> Path:
        """The frozen bounds."""
        return self.root / "bounds.json"

    def folder(self, group: str, side: str = "server") -> Path:
        """The folder of one capture."""
        return self.root / f"{side}-{group}"

    @property
    def folders(self) -> list[Path]:
        """All captures."""
        return [self.folder(group, side) for group in GROUPS for side in ("server", "reference")]

    def order(self) -> AccuracyOrder:
        """What is captured."""
        return chosen_accuracy_order(self.plan, corpus=self.corpus.read_bytes(), name="corpus.json")


def begin(root: Path) -> Study:
    """Write corpus and plan of a new study."""
    study = Study(root)
    data = small_corpus().to_bytes()
    study.corpus.write_bytes(data)
    study.plan.write_text(PLAN.replace("CORPUS", f"sha256:{sha(data)}"), encoding="ascii")
    return study


def capture_group(
    study: Study, group: str, side: str = "server", *, out: Path | None = None, owner: Owner | None = None, **more: JSON
) -> Done:
    """Capture one group from a fake; what is no field of a job is a fault of the server."""
    faults = Faults(**{"jitter_concurrent": side == "server", **more.pop("faults", {})})
    bounds = study.bounds.read_bytes() if study.bounds.exists() and side == "server" and group != "original" else None
    folder = out or study.folder(group, side)
    folder.mkdir()
    settings = FakeSettings(slots=MEMBERS, vocabulary=VOCABULARY, step_ms=STEP_MS, ctx_per_slot=64, faults=faults)
    with FakeThread(settings) as fake, InputFiles() as inputs:
        inputs.add(study.corpus)
        target = Target(
            address=Address(label="toy", url=fake.url),
            owned=owner or Owner(QUANTIZED if side == "server" else DECODED),
        )
        job = Job(order=study.order(), model=MODEL, group=group, side=side, bounds=bounds, **more)  # type: ignore[arg-type]
        return asyncio.run(capture(job, target, folder, inputs, report=lambda _: None))


def whole_study(root: Path) -> Study:
    """Capture everything in the order in which it must be done."""
    study = begin(root)
    for group in GROUPS:
        assert capture_group(study, group, "reference").refused == {}
    assert capture_group(study, "original").refused == {}
    originals = [study.folder("original", side) for side in ("server", "reference")]
    write_bounds(calibrate(originals, study.order(), models=[MODEL]), study.bounds)
    for group in GROUPS[1:]:
        assert capture_group(study, group).refused == {}
    return study


class Forged:
    """A sealed folder in memory: edit `manifest`, `lines` or `files`, then write it linked and sealed again."""

    def __init__(self, folder: Path) -> None:
        self.files = {
            path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        self.manifest: JSON = json.loads(self.files.pop("manifest.json"))
        self.lines: list[JSON] = [json.loads(line) for line in self.files.pop("history.jsonl").splitlines()]
        for name in ("SHA256SUMS", "DERIVED.SHA256SUMS", "findings.json", "report.html", "report.md"):
            self.files.pop(name, None)

    def of(self, kind: str, **wanted: JSON) -> list[JSON]:
        """Return the lines of a kind with these values."""
        return [
            line
            for line in self.lines
            if line["line"] == kind and all(line.get(key) == value for key, value in wanted.items())
        ]

    def store(self, folder: str, data: bytes, suffix: str) -> str:
        """Store bytes under their digest; return it."""
        self.files[f"{folder}/{sha(data)}{suffix}"] = data
        return "sha256:" + sha(data)

    def readdress(self, old: str, new: str) -> None:
        """Write one digest in another's place everywhere, and drop the file of the old one."""
        text = json.dumps([self.manifest, self.lines]).replace(old, new)
        self.manifest, self.lines = json.loads(text)
        self.files = {path: data for path, data in self.files.items() if old.removeprefix("sha256:") not in path}

    def edit_fact(self, digest: str, change: Callable[[JSON], object]) -> str:
        """Change a fact, name its new address everywhere, and return it."""
        value = json.loads(self.files[f"facts/{digest[7:]}.json"])
        change(value)
        new = self.store("facts", canonical(value), ".json")
        self.readdress(digest, new)
        return new

    def edit_capture(self, digest: str, change: Callable[[JSON], object]) -> str:
        """Change a capture that a check holds, name its new address everywhere, and return it."""
        value = unpack(self.files[f"captures/{digest[7:]}.json.gz"], digest)
        change(value)
        new = self.store("captures", pack(canonical(value)), ".json.gz")
        self.readdress(digest, new)
        return new

    def write(self, folder: Path) -> Path:
        """Write the folder as a forger would, who can link and seal like anybody."""
        previous = sha(canonical(self.manifest))
        for number, line in enumerate(self.lines):
            line.update(n=number, prev="sha256:" + previous)
            previous = sha(canonical(line))
        files = {**self.files, "manifest.json": canonical(self.manifest)}
        files["history.jsonl"] = b"".join(map(canonical, self.lines))
        files["SHA256SUMS"] = sums(files)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return folder
