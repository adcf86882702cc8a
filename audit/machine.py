"""What runs the audit: program, dependencies, machine, as facts for the manifest.

Nothing goes in; out come plain values. No host name, user name or path is read into them, and what cannot be read is
None.
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from audit import __version__

__all__ = ["dependencies", "machine", "program", "python"]

_DISTRIBUTIONS = (
    "asyncio-throttle",
    "h11",
    "httpcore",
    "httpx",
    "msgspec",
    "numpy",
    "pandas",
    "pydantic",
    "scipy",
    "typer",
)


def _git(*arguments: str) -> str | None:
    folder, git = Path(__file__).resolve().parent.parent, shutil.which("git")
    if git is None or not (folder / ".git").exists():
        return None
    try:
        done = subprocess.run(
            [git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def program() -> dict[str, Any]:
    """Return name, version, commit, and whether a tracked file outside results/ differs from it."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    dirty = None if commit is None or changed is None else bool(changed)
    return {"name": "determinism-audit", "version": __version__, "commit": commit, "dirty": dirty}


def dependencies() -> dict[str, str]:
    """Return the versions of what takes part in a run."""
    versions = {}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def python() -> str:
    """Return implementation and version of the interpreter."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def _cpu_info() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def machine() -> dict[str, Any]:
    """Return CPU, its flags, cores, kernel and memory in bytes."""
    info = _cpu_info()
    flags = info.get("flags") or info.get("Features")
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        memory_bytes = None
    return {
        "cpu": info.get("model name") or platform.processor() or None,
        "cpu_flags": None if flags is None else " ".join(sorted(flags.split())),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_bytes": memory_bytes,
    }
