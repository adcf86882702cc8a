"""What OLD and NEW may be, and how each becomes a build that can run.

In go the words of a command line, out come builds, pinned as far as that is possible before they run (a commit, the
digest of a wheel); the executable and every mapped library are digested in each process. What is built or unpacked lies
in a throw-away folder.
"""

import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from audit.client import Address
from audit.errors import UsageError
from audit.identity.record import BuildEntry
from audit.identity.running import Build
from audit.identity.scrub import scrubbed
from audit.identity.serving import OwnedRunner, RunningServer
from audit.local.fetch import download_wheel
from audit.local.models import resolve_binary
from audit.local.process import file_sha256

__all__ = ["Spec", "label_of", "parse_spec", "prepare"]

_PYPI = re.compile(r"xllamacpp==([0-9][0-9A-Za-z.]*)")
_LABEL = re.compile(r"[^A-Za-z0-9._-]+")


class Spec(NamedTuple):
    """One side of a comparison, as it was asked for: where it comes from, and its name there."""

    source: Literal["git", "binary", "pypi", "http"]
    name: str


def parse_spec(text: str) -> Spec:
    """Read a build: `binary:PATH`, `pypi:xllamacpp==VERSION`, `http://...`, or else a git revision.

    Raises: UsageError where it is none of these.
    """
    if text.startswith(("http://", "https://")):
        return Spec("http", Address.parse(f"build={text}").url)
    source, colon, name = text.partition(":")
    if colon and source == "binary" and name:
        return Spec("binary", name)
    if colon and source == "pypi":
        if _PYPI.fullmatch(name) is None:
            raise UsageError(
                f"{text!r} names no wheel that can be run", hint="for example pypi:xllamacpp==2026.10.11549"
            )
        return Spec("pypi", name)
    if not text or text.startswith("-") or any(character in text for character in " :?*[\\") or colon:
        raise UsageError(
            f"{text!r} is no build",
            hint="give a git revision with --repo, binary:PATH, pypi:xllamacpp==VERSION or http://HOST:PORT",
        )
    return Spec("git", text)


def label_of(spec: Spec) -> str:
    """Return a short label for a build of a list."""
    word = spec.name.partition("==")[2] or spec.name.rsplit("/", 1)[-1]
    return _LABEL.sub("-", word) or spec.source


def prepare(specs: Sequence[tuple[str, Spec]], folder: Path, *, logs: Path, say: Callable[[str], None]) -> list[Build]:
    """Make builds that can run of all specs but git revisions, which `audit.identity.source` builds.

    Args:
        specs: label and spec of each.
        folder: where wheels are unpacked.
        logs: where servers leave their logs.
        say: is told before each is made ready.

    Raises: UsageError where one cannot be had.
    """
    made: dict[Spec, Build] = {}
    builds = []
    for label, spec in specs:
        if spec not in made:
            say(f"preparing {spec.source}:{spec.name}" if spec.source != "http" else f"asking {spec.name}")
            made[spec] = _PREPARE[spec.source](spec, folder / f"build{len(made)}", logs)
        known = made[spec]
        entry = BuildEntry(
            label=label,
            source=known.entry.source,
            name=known.entry.name,
            commit=known.entry.commit,
            archive=known.entry.archive,
            options=known.entry.options,
            restarts=known.entry.restarts,
        )
        builds.append(Build(entry=entry, rows=known.rows, runner=known.runner))
    return builds


def _entry(spec: Spec, name: str, *, archive: str | None = None, restarts: bool = True) -> BuildEntry:
    return BuildEntry(
        label="", source=spec.source, name=name, commit=None, archive=archive, options=[], restarts=restarts
    )


def _pypi(spec: Spec, folder: Path, logs: Path) -> Build:
    """Unpack a wheel into a folder of its own, which its process finds before anything installed."""
    folder.mkdir(parents=True)
    wheel = download_wheel(spec.name, folder)
    archive = f"sha256:{file_sha256(wheel)}"
    unpacked = folder / "unpacked"
    with zipfile.ZipFile(wheel) as members:
        strangers = [name for name in members.namelist() if name.startswith("/") or ".." in name.split("/")]
        if strangers:
            raise UsageError(f"{wheel.name} holds a file outside itself: {strangers[0]}")
        members.extractall(unpacked)
    wheel.unlink()
    # An interpreter in a virtual environment has the installed xllamacpp too; PYTHONPATH comes before it.
    environment = {**scrubbed(), "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"}
    runner = OwnedRunner(binary=None, environment=environment, logs=logs)
    return Build(entry=_entry(spec, f"pypi:{spec.name}", archive=archive), rows="logprobs", runner=runner)


def _binary(spec: Spec, folder: Path, logs: Path) -> Build:
    del folder
    binary = resolve_binary(spec.name)
    name = spec.name if spec.name != str(binary) and "/" not in spec.name else binary.name
    entry = _entry(spec, f"binary:{name}", archive=f"sha256:{file_sha256(binary)}")
    runner = OwnedRunner(binary=binary, environment=scrubbed(), logs=logs)
    return Build(entry=entry, rows="logprobs", runner=runner)


def _http(spec: Spec, folder: Path, logs: Path) -> Build:
    del folder, logs
    # The address is of this machine or network and says nothing about the build, so it is in no record.
    return Build(entry=_entry(spec, "http", restarts=False), rows="logprobs", runner=RunningServer(url=spec.name))


_PREPARE = {"pypi": _pypi, "binary": _binary, "http": _http}
