"""The run folder: written by appending facts, sealed once, read back strictly.

`RunWriter` takes manifest, history lines and content-addressed bytes; `Run` reads them back and checks the chain and
every digest on the way. docs/reference/record.md describes the folder. Neither class knows what a fact means.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from audit.errors import EvidenceError, UsageError
from audit.files import PARTIAL, files, sums, write, write_new
from audit.history import HISTORY, History
from audit.plan import Plan
from audit.record import AnyLine, AnyManifest, Begin, Line, Manifest, Resume, line_from_bytes, to_bytes
from audit.rows import Rows
from audit.stream import FORMAT, Stream, digest

__all__ = ["DERIVED_SUMS", "OMITTED", "STORES", "SUMS", "Folder", "Run", "RunWriter", "write_derived"]

SUMS = "SHA256SUMS"
DERIVED_SUMS = "DERIVED.SHA256SUMS"
OMITTED = "omitted.json"
STORES = {
    "streams": ".jsonl",
    "rows": ".f32",
    "metrics": ".jsonl",
    "facts": ".json",
    "captures": ".json.gz",
    "bodies": "",
}
_STREAMS_KEPT = 1024


class RunWriter:
    """Writes one run folder; every line is handed to the system before the call returns."""

    def __init__(self, folder: Path, history: History | None = None) -> None:
        """Make the folder, which must not exist or be empty; or go on with one whose `history` was taken up.

        Raises: UsageError where it cannot be made or holds something.
        """
        self.folder = folder
        if history is not None:
            self._history = history
            for kind in STORES:
                (folder / kind).mkdir(exist_ok=True)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(f"{folder} is not empty", hint="give another --out")
            for kind in STORES:
                (folder / kind).mkdir()
            self._history = History.create(folder)
        except OSError as error:
            raise UsageError(f"{folder}: a run cannot be written here: {error.strerror}") from error

    def since_anchor(self, monotonic_ns: int) -> int:
        """Return a monotonic time in nanoseconds since this process's anchor."""
        return self._history.since_anchor(monotonic_ns)

    def begin(self, manifest: AnyManifest, *, plan: bytes, registration: dict[str, bytes]) -> None:
        """Write the resolved plan.json, the registered files by name, manifest and the first line."""
        write_new(self.folder / "plan.json", plan)
        if registration:
            (self.folder / "registration").mkdir()
        for name, data in registration.items():
            write_new(self.folder / "registration" / name, data)
        data = to_bytes(manifest)
        write_new(self.folder / "manifest.json", data)
        self.begin_history(digest(data))

    def begin_history(self, manifest: str) -> None:
        """Write the first line, which names the digest of the manifest."""
        self._history.prev = manifest
        self.append(Begin(process=0, wall_ns=time.time_ns()))

    def go_on(self, manifest: AnyManifest, *, process: int) -> None:
        """Write the line with which a further process takes the run up, or the first one where there is none yet."""
        if self._history.count:
            self.append(Resume(process=process, wall_ns=time.time_ns(), cut=self._history.cut))
        else:
            self.begin_history(digest(to_bytes(manifest)))

    def append(self, line: Line) -> Line:
        """Append a line, linked to the one before it, and return it as it was written."""
        return self._history.append(line)

    def sync(self) -> None:
        """Wait until the history is on the medium."""
        self._history.sync()

    def put(self, kind: str, data: bytes) -> str:
        """Store bytes under their digest in `streams`, `rows`, `metrics`, `facts`, `captures` or `bodies`, once.

        Returns: the digest.
        """
        name = digest(data)
        path = self.folder / kind / (name.removeprefix("sha256:") + STORES[kind])
        if not path.exists():
            write_new(path, data)
        return name

    def put_fact(self, data: bytes) -> str:
        """Store a fact."""
        return self.put("facts", data)

    def seal(self) -> str:
        """Write the seal over everything in the folder and close the history.

        Returns: the digest of the seal, which is what one deposits.
        """
        for left in self.folder.rglob("*" + PARTIAL):
            left.unlink()
        self.close()
        for kind in STORES:
            if not any((self.folder / kind).iterdir()):
                (self.folder / kind).rmdir()
        data = sums(self.folder, files(self.folder))
        write_new(self.folder / SUMS, data)
        return digest(data)

    def close(self) -> None:
        """Bring the history to the medium and close it; a second call does nothing."""
        self._history.close()

    def discard(self) -> None:
        """Take back a run that never began, so that the same folder can be given again."""
        self.close()
        for kind in STORES:
            shutil.rmtree(self.folder / kind)
        (self.folder / HISTORY).unlink()


class _Format(msgspec.Struct):
    """The fields that every manifest has."""

    format: int
    kind: str | None = None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}") from error


def _listed(path: Path) -> dict[str, str]:
    """Return name and hex digest of each line of a list of sums."""
    try:
        return {name: hexed for hexed, name in (line.split("  ", 1) for line in path.read_text("utf-8").splitlines())}
    except ValueError as error:
        raise EvidenceError(f"{path} is no list of digests and files") from error


M = TypeVar("M", bound=AnyManifest)
L = TypeVar("L", bound=Line)


class Folder(Generic[M, L]):
    """A run folder of some kind, read; digests are checked as things are read, and a mismatch is an EvidenceError.

    A subclass names its kind and the shape of its manifest, and says how a line of its history is read.
    """

    kind: str
    manifest_type: type[M]
    read_line: Callable[[bytes], L]

    def __init__(self, folder: Path) -> None:
        """Open the folder and read the manifest.

        Raises: UsageError where this is no run of this format; EvidenceError where the manifest cannot be read.
        """
        self.folder = folder
        self._stream = lru_cache(maxsize=_STREAMS_KEPT)(self._read_stream)
        path = folder / "manifest.json"
        if not path.is_file():
            hint = "give the folder that `run` printed"
            raise UsageError(f"{folder} is no run: it holds no manifest.json", hint=hint)
        self._manifest_bytes = path.read_bytes()
        found = None
        try:
            # Another format may have other fields, so it is looked at before the rest.
            found = msgspec.json.decode(self._manifest_bytes, type=_Format)
            if found.format != FORMAT:
                raise UsageError(f"{path} has format {found.format}, this program reads format {FORMAT}")
            self.manifest: M = msgspec.json.decode(self._manifest_bytes, type=self.manifest_type)
        except (msgspec.DecodeError, RecursionError) as error:
            if found is not None and found.kind not in (None, self.kind):
                raise UsageError(f"{folder} is a run of kind {found.kind}, not of kind {self.kind}") from error
            raise EvidenceError(f"{path}: {error}") from error

    def plan_bytes(self) -> bytes:
        """Return plan.json.

        Raises: UsageError for a copy that leaves it out; EvidenceError where it is another than the manifest names.
        """
        if (self.folder / OMITTED).is_file() and not (self.folder / "plan.json").is_file():
            hint = f"verify it: python3 -I -S scripts/verify.py {self.folder}"
            raise UsageError(f"{self.folder} is an exported copy without its plan and its streams", hint=hint)
        data = _read(self.folder / "plan.json")
        if digest(data) != self.manifest.plan:
            raise EvidenceError(f"{self.folder}/plan.json is not the plan that the manifest names")
        return data

    @cached_property
    def seal(self) -> str | None:
        """The digest of the seal, None for an unsealed run.

        What is not named by its own digest is compared with the seal here; the rest when it is read.

        Raises: EvidenceError where a file differs from the seal, or the seal cannot be read.
        """
        path = self.folder / SUMS
        if not path.is_file():
            return None
        data = path.read_bytes()
        for name, expected in _listed(path).items():
            if name.split("/")[0] in STORES or not (self.folder / name).is_file():
                continue
            if sums(self.folder, [name]) != f"{expected}  {name}\n".encode():
                raise EvidenceError(f"{self.folder}/{name} is not the file that was sealed")
        return digest(data)

    def lines(self, *, cut: bool = False) -> Iterator[L]:
        """Yield the history, checking number and chain; with `cut` without an incomplete last line.

        Raises: EvidenceError at the first line that does not follow from the one before.
        """
        prev = digest(self._manifest_bytes)
        path = self.folder / HISTORY
        if not path.is_file():
            raise EvidenceError(f"{path} is missing")
        with path.open("rb") as file:
            for number, data in enumerate(file):
                if not data.endswith(b"\n"):
                    if cut:
                        return
                    raise EvidenceError(f"{self.folder}/{HISTORY}: line {number} is incomplete")
                line = type(self).read_line(data)
                if line.n != number or line.prev != prev:
                    raise EvidenceError(f"{self.folder}/{HISTORY}: line {number} does not follow the one before")
                prev = digest(data)
                yield line

    def stored(self, kind: str, name: str) -> bytes:
        """Return the bytes of a store by their digest."""
        path = self.folder / kind / (name.removeprefix("sha256:") + STORES[kind])
        data = _read(path)
        if digest(data) != name:
            raise EvidenceError(f"{path} holds other bytes than its name says")
        return data

    def has(self, kind: str, name: str) -> bool:
        """Tell whether this copy holds the bytes of a digest."""
        return (self.folder / kind / (name.removeprefix("sha256:") + STORES[kind])).is_file()

    def stream(self, name: str) -> Stream:
        """Read a stream by its digest; those that were read last are kept."""
        return self._stream(name)

    def _read_stream(self, name: str) -> Stream:
        return Stream.from_bytes(self.stored("streams", name))

    def rows(self, name: str, shape: tuple[int, int]) -> Rows:
        """Read rows by the digest of their file."""
        return Rows.from_bytes(self.stored("rows", name), shape)

    def fact(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Read a fact by its digest."""
        return msgspec.json.decode(self.stored("facts", name))

    def registration(self) -> dict[str, bytes]:
        """Return the registered files by name, without what this copy leaves out; empty without a registration.

        Raises: EvidenceError where one is not the file that the manifest names.
        """
        named = self.manifest.registration.files if self.manifest.registration is not None else {}
        folder = self.folder / "registration"
        found = {path.name: _read(path) for path in sorted(folder.iterdir())} if folder.is_dir() else {}
        for name, data in found.items():
            if digest(data) != named.get(name, {}).get("sha256"):
                raise EvidenceError(f"{folder}/{name} is not the registered file that the manifest names")
        return found

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a run folder."""
        return cls(folder)


class Run(Folder[Manifest, AnyLine]):
    """The folder of an audit."""

    kind = "audit"
    manifest_type = Manifest
    read_line = staticmethod(line_from_bytes)

    @cached_property
    def plan(self) -> Plan:
        """The plan that was executed.

        Raises: UsageError for an exported copy, which leaves it out; EvidenceError where it is another.
        """
        return Plan.parse(msgspec.json.decode(self.plan_bytes()), name="plan.json")


def write_derived(folder: Path, derived: dict[str, bytes]) -> None:
    """Write derived files anew, with their list, and touch no evidence.

    Raises: UsageError where the run is unsealed; EvidenceError where a name is that of evidence, or leads elsewhere.
    """
    if not (folder / SUMS).is_file():
        raise UsageError(f"{folder} is unsealed, so nothing is derived from it")
    old = folder / DERIVED_SUMS
    evidence = {*_listed(folder / SUMS), SUMS, OMITTED, DERIVED_SUMS, *STORES}
    for name in [*derived, *(_listed(old) if old.is_file() else [])]:
        if name in evidence or "/" in name or name in {"", ".", ".."}:
            raise EvidenceError(f"{folder}/{name} is evidence or elsewhere, so it cannot be a derived file")
    for name in _listed(old) if old.is_file() else []:
        (folder / name).unlink(missing_ok=True)
    for name, data in derived.items():
        write(folder / name, data)
    write(old, sums(folder, list(derived)))
