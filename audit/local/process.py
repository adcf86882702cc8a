"""What the operating system says about servers: mapped libraries, ports and who listens on them, digests of files.

In goes a process id, a port or a path, out come facts. On Linux they are read from /proc; elsewhere the
functions that need it say that they cannot know. Nothing here starts, stops or signals a process.
"""

import functools
import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "environment_present",
    "file_sha256",
    "free_port",
    "is_port_free",
    "mapped_libraries",
    "memory_bytes_max",
    "owns_port",
]

_HAS_PROC = sys.platform == "linux"
_ENVIRONMENT = re.compile(r"(LLAMA|GGML|OMP)_")
# The shared objects that do the arithmetic: llama and ggml themselves, the embedded build's module, and the system's
# libm, which computes some of ggml's sines and exponentials.
_LIBRARY = re.compile(r"(lib(llama|ggml|mtmd)\b.*|libm|xllamacpp.*)\.so(\.\d+)*")
_DELETED = " (deleted)"
_LISTENING = "0A"


def file_sha256(path: Path) -> str:
    """Tell the SHA-256 of a file (64 hexadecimal digits), read once per path, size and time of change."""
    status = path.stat()
    return _sha256(str(path.resolve()), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(path: str, size: int, mtime_ns: int) -> str:  # noqa: ARG001 - size and time are the key of the cache
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mapped_libraries(pid: int) -> list[Path] | None:
    """List the shared objects with a server's arithmetic that a process has mapped, by name.

    Returns: paths, of which one may be gone when a file was replaced meanwhile; None where the system does not tell.
    """
    if not _HAS_PROC:
        return None
    paths = set()
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, _, name = line.partition("/")
        path = Path("/" + name.removesuffix(_DELETED))
        if name and _LIBRARY.fullmatch(path.name):
            paths.add(path)
    return sorted(paths, key=lambda path: path.name)


def owns_port(pid: int, port: int) -> bool | None:
    """Tell whether a process listens on an IPv4 port; None where the system does not tell."""
    if not _HAS_PROC:
        return None
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(pid, port)}
    folder = Path(f"/proc/{pid}/fd")
    for entry in folder.iterdir():
        try:
            if str(entry.readlink()) in sockets:
                return True
        except FileNotFoundError:
            # Closed since the folder was listed.
            continue
    return False


def _listening_inodes(pid: int, port: int) -> set[str]:
    """Read the inodes of the sockets that listen on a port. Source: proc_pid_net(5), tcp."""
    inodes = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(fields[9])
    return inodes


def free_port(host: str) -> int:
    """Find a port that nobody listens on at this moment; somebody may take it before a server binds it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def is_port_free(host: str, port: int) -> bool:
    """Tell whether a server could bind a port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of the past that linger do not make a port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def memory_bytes_max(pid: int) -> int | None:
    """Tell the largest resident memory that a process ever had; None where the system does not tell.

    Source: VmHWM of proc_pid_status(5), which counts kibibytes.
    """
    if not _HAS_PROC:
        return None
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    found = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return None if found is None else int(found) * 1024


def environment_present(environment: Mapping[str, str] | None = None) -> list[str]:
    """Name the variables that llama.cpp or its thread library reads, sorted; never their values.

    Those of this process, or of the `environment` that another one was given. An empty variable is still set, and
    llama.cpp takes some of those for a yes.
    """
    return sorted(name for name in (os.environ if environment is None else environment) if _ENVIRONMENT.match(name))
