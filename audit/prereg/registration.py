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
    "RegisteredFiles",
    "check_resolved",
    "committed",
    "load_registration",
    "registered_files",
]

FILES = ("PREREG.md", "plan.json", "plan.toml", "predictions.json")
GIT_TIMEOUT_S = 30.0
Status = Literal["registered", "uncommitted", "changed", "overridden"]


@dataclass(frozen=True, kw_only=True)
class RegisteredFiles:
    """The files of a registration of any kind, and where it stands in git's history."""

    name: str
    files: dict[str, bytes]
    commit: str | None
    status: Status

    @property
    def digest(self) -> str:
        """The registered digest, from which order and seeds are derived."""
        return registered_digest(self.files)

    def entry(self, *, overridden: bool = False) -> Registration:
        """Return the entry for a manifest; an overridden plan outweighs what git says."""
        files = {name: {"sha256": digest(data), "blob": _blob(data)} for name, data in self.files.items()}
        status: Status = "overridden" if overridden else self.status
        return Registration(name=self.name, digest=self.digest, files=files, commit=self.commit, status=status)


@dataclass(frozen=True, kw_only=True)
class Registered(RegisteredFiles):
    """One registered audit: its files with its plan and predictions, read."""

    plan: Plan
    predictions: Predictions


def registered_files(folder: Path) -> RegisteredFiles:
    """Read the four files of a registration, and ask git about them; what they say is not looked at.

    Raises: UsageError where a file is missing.
    """
    try:
        files = {name: (folder / name).read_bytes() for name in FILES}
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}", hint=f"a registration holds {', '.join(FILES)}"
        ) from error
    commit = _git(folder, "log", "-1", "--format=%H", "--", ".")
    return RegisteredFiles(
        name=folder.resolve().name, files=files, commit=commit or None, status=_status(folder, files, commit)
    )


def check_resolved(folder: Path, found: RegisteredFiles, plan: bytes) -> None:
    """Check that plan.json is what plan.toml, of whatever kind, resolves to.

    Raises: PlanError where it is not.
    """
    if plan != found.files["plan.json"]:
        hint = f"determinism prereg lock {folder}"
        raise PlanError(f"{folder}/plan.json is not what plan.toml resolves to", hint=hint)


def load_registration(folder: Path) -> Registered:
    """Read a registration of kind audit.

    Raises: UsageError where a file is missing; PlanError where one is not valid, or plan.json is not plan.toml's.
    """
    found = registered_files(folder)
    plan = Plan.load(folder / "plan.toml")
    check_resolved(folder, found, plan.to_bytes())
    predictions = load_predictions(found.files["predictions.json"])
    return Registered(
        name=found.name,
        files=found.files,
        commit=found.commit,
        status=found.status,
        plan=plan,
        predictions=predictions,
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
