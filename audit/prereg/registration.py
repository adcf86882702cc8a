"""A registration's folder: its four files, their digest, and what git says about when they were written.

In goes a folder `prereg/NAME`, out come the bytes to run and the entry for the manifest. git is asked read-only and
only about this folder; without git, or outside a repository, a registration counts as uncommitted. Nothing is judged.
"""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audit.errors import PlanError, UsageError
from audit.plan import Plan, registered_digest
from audit.prereg.predictions import Predictions, load_predictions
from audit.record import Registration
from audit.stream import digest

__all__ = [
    "FILES",
    "Registered",
    "Status",
    "committed",
    "load_registration",
    "registered_files",
    "registration_entry",
]

FILES = ("PREREG.md", "plan.json", "plan.toml", "predictions.json")
GIT_TIMEOUT_S = 30.0
Status = Literal["registered", "uncommitted", "changed", "overridden"]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One registered study: its files, its plan and predictions, and where it stands in git's history."""

    name: str
    files: dict[str, bytes]
    plan: Plan
    predictions: Predictions
    commit: str | None
    status: Status

    @property
    def digest(self) -> str:
        """The registered digest, from which order and seeds are derived."""
        return registered_digest(self.files)

    def entry(self, *, overridden: bool = False) -> Registration:
        """Return the entry for a manifest; an overridden plan outweighs what git says."""
        status: Status = "overridden" if overridden else self.status
        return registration_entry(self.name, self.files, commit=self.commit, status=status)


def registration_entry(name: str, files: dict[str, bytes], *, commit: str | None, status: Status) -> Registration:
    """Return the entry of registered files, of a plan of any kind, for a manifest."""
    entries = {file: {"sha256": digest(data), "blob": _blob(data)} for file, data in files.items()}
    return Registration(name=name, digest=registered_digest(files), files=entries, commit=commit, status=status)


def registered_files(folder: Path) -> tuple[dict[str, bytes], str | None, Status]:
    """Read the files of a registration, the commit that last touched it, and how far that can be trusted.

    Raises: UsageError where a file is missing.
    """
    try:
        files = {name: (folder / name).read_bytes() for name in FILES}
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}", hint=f"a registration holds {', '.join(FILES)}"
        ) from error
    commit = _git(folder, "log", "-1", "--format=%H", "--", ".") or None
    return files, commit, _status(folder, files, commit)


def load_registration(folder: Path) -> Registered:
    """Read a registration.

    Raises: UsageError where a file is missing; PlanError where one is not valid, or plan.json is not plan.toml's.
    """
    files, commit, status = registered_files(folder)
    plan = Plan.load(folder / "plan.toml")
    if plan.to_bytes() != files["plan.json"]:
        raise PlanError(f"{folder}/plan.json is not what plan.toml resolves to", hint="write it anew from plan.toml")
    predictions = load_predictions(files["predictions.json"])
    return Registered(
        name=folder.resolve().name,
        files=files,
        plan=plan,
        predictions=predictions,
        commit=commit,
        status=status,
    )


def _status(folder: Path, files: dict[str, bytes], commit: str | None) -> Status:
    """Compare the files with those of the current commit, blob by blob; a second commit to the folder is a change."""
    if not commit:
        return "uncommitted"
    listed = _git(folder, "ls-tree", "HEAD", "./") or ""
    known = {line.partition("\t")[2]: line.split()[2] for line in listed.splitlines()}
    blobs = {name: _blob(data) for name, data in files.items()}
    if not set(blobs) <= set(known):
        return "uncommitted"
    once = _git(folder, "rev-list", "--count", "HEAD", "--", ".") == "1"
    return "registered" if once and all(known[name] == blob for name, blob in blobs.items()) else "changed"


def committed(folder: Path) -> bool:
    """Tell whether a commit of git's history holds the folder."""
    return bool(_git(folder, "log", "-1", "--format=%H", "--", "."))


def _blob(data: bytes) -> str:
    """Return the id that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where there is no git, no repository or no commit."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S)
    except (subprocess.SubprocessError, OSError):
        return None
    return done.stdout.strip()
