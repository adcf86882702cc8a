"""Files of a run folder: written whole or not at all, never through a link, and listed with their digests."""

import hashlib
import os
from pathlib import Path

from audit.errors import EvidenceError, UsageError

__all__ = ["PARTIAL", "files", "sums", "write", "write_new"]

PARTIAL = ".partial"


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, whole or not at all under its name, and not through a link.

    Raises: EvidenceError where it exists; UsageError where it cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise EvidenceError(f"{path} exists already, and evidence is written once")
    write(path, data)


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, in the place of one that has its name, and not through a link."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def sums(folder: Path, paths: list[str]) -> bytes:
    """Return the lines `hex  path` of these files, sorted by path, as sha256sum writes them."""
    lines = []
    for path in sorted(paths):
        with (folder / path).open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path}\n")
    return "".join(lines).encode()


def files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it."""
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
