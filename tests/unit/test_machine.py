"""What runs the audit is told without a host, a user or a path, and what cannot be read is None."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from audit import __version__
from audit import machine as machine_module
from audit.machine import dependencies, machine, program, python
from audit.stream import canonical


def test_everything_is_told_in_plain_json() -> None:
    """Manifest fields with exactly the keys of the format."""
    assert set(machine()) == {"cpu", "cpu_flags", "cores", "kernel", "memory_bytes"}
    assert set(program()) == {"name", "version", "commit", "dirty"}
    told = {"machine": machine(), "program": program(), "dependencies": dependencies(), "python": python()}
    assert json.loads(canonical(told)) == told


def test_this_machine_is_described() -> None:
    """Cores and memory are those of the system, the interpreter is this one."""
    found = machine()
    assert found["cores"] == os.cpu_count()
    assert found["memory_bytes"] is None or found["memory_bytes"] > 2**20
    assert python().split()[1].startswith("3.")
    if found["cpu_flags"] is not None:
        flags = found["cpu_flags"].split()
        assert flags == sorted(flags)


def test_neither_host_nor_user_nor_path_is_told() -> None:
    """Nothing in it leads back to a person or a place."""
    told = canonical([machine(), program(), dependencies(), python()]).decode()
    assert "/home" not in told
    assert str(Path.cwd()) not in told
    for secret in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
        assert f'"{secret}"' not in told
        assert f" {secret} " not in told


def test_a_machine_that_tells_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No /proc, no sysconf, no name of a processor."""

    def unknown(_name: str) -> int:
        raise ValueError

    monkeypatch.setattr(machine_module, "_cpu_info", dict)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(os, "sysconf", unknown)
    found = machine()
    assert (found["cpu"], found["cpu_flags"], found["memory_bytes"]) == (None, None, None)


def test_dependencies_are_those_that_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their installed versions; one that is missing is left out."""
    found = dependencies()
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert {"httpx", "msgspec", "asyncio-throttle", "pydantic"} <= set(found)
    monkeypatch.setattr(machine_module, "_DISTRIBUTIONS", ("numpy", "no-such-distribution"))
    assert set(dependencies()) == {"numpy"}


def repository(folder: Path) -> Path:
    """Make a repository with a package file and a results folder, committed."""
    for path in ("audit/machine.py", "results/README.md"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x\n")
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def test_dirty_means_a_tracked_file_outside_results_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results may grow, untracked files may lie about; a changed source file counts."""
    folder = repository(tmp_path)
    monkeypatch.setattr(machine_module, "__file__", str(folder / "audit" / "machine.py"))
    clean = program()
    assert len(clean["commit"]) == 40
    assert clean == {"name": "determinism-audit", "version": __version__, "commit": clean["commit"], "dirty": False}
    (folder / "results" / "README.md").write_text("more\n")
    (folder / "notes.txt").write_text("untracked\n")
    assert program() == clean
    (folder / "audit" / "machine.py").write_text("changed\n")
    assert program() == {**clean, "dirty": True}


def test_without_git_commit_and_dirty_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No repository, no program, no commit yet, no answer in time: not known, and no crash."""
    monkeypatch.setattr(machine_module, "__file__", str(tmp_path / "audit" / "machine.py"))
    unknown = {"name": "determinism-audit", "version": __version__, "commit": None, "dirty": None}
    assert program() == unknown
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, capture_output=True)
    assert program() == unknown

    def late(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("git", 30)

    monkeypatch.setattr(subprocess, "run", late)
    assert program() == unknown
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert program() == unknown
