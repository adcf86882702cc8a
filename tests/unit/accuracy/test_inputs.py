"""A file that went in is the same afterwards, or the work is not sealed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.accuracy.inputs import InputFiles
from audit.errors import EvidenceError, UsageError


def test_an_unchanged_file_is_the_same_at_the_end(tmp_path: Path) -> None:
    """Name, digest, size, time of change and inode are facts of both lines."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    with InputFiles() as inputs:
        assert inputs.read(path) == b"abc"
        begin, end = inputs.begin(), inputs.end()
    assert begin.files == end.files
    fact = begin.files[0]
    assert (fact["name"], fact["size"], fact["inode"]) == ("a.bin", 3, path.stat().st_ino)
    assert fact["sha256"] == "sha256:" + hashlib.sha256(b"abc").hexdigest()
    assert (begin.when, end.when) == ("begin", "end")


def rewrite(path: Path) -> None:
    """Other bytes of the same length, and the old times put back."""
    status = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    """The same bytes in another file under the name."""
    other = path.with_name("other")
    other.write_bytes(b"abc")
    other.replace(path)


def touch(path: Path) -> None:
    """The same bytes written later."""
    os.utime(path, ns=(0, 12345))


@pytest.mark.parametrize("change", [rewrite, replace, touch, lambda path: path.unlink()])
def test_a_changed_file_is_found(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """By digest, inode, time of change, or because it is gone."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    with InputFiles() as inputs:
        inputs.add(path)
        change(path)
        with pytest.raises(EvidenceError, match=r"a\.bin is (not the file that was opened|gone)"):
            inputs.end()


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    """With its path."""
    with InputFiles() as inputs, pytest.raises(UsageError, match="absent"):
        inputs.add(tmp_path / "absent")
