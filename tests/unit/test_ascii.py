"""Every text file of the repository is ASCII, so that it reads the same in every terminal, diff and issue."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

# What is not text: add a suffix here on purpose, never to silence the test.
BINARY_SUFFIXES = frozenset({".f32", ".gguf", ".gz", ".png"})
FOREIGN = re.compile(rb"[^\t\n\r -~]")


def text_files(repository: Path) -> list[Path]:
    """Return the files that git tracks or would add, without the binary ones and the raw reply bodies of runs."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [repository / name for name in sorted(filter(None, names))]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY_SUFFIXES and not _is_body(path)]


def first_foreign(path: Path) -> str | None:
    """Return where the first byte outside ASCII stands, as LINE: BYTE, or None."""
    content = path.read_bytes()
    match = FOREIGN.search(content)
    if match is None:
        return None
    line = content.count(b"\n", 0, match.start()) + 1
    return f"{line}: 0x{match[0][0]:02x}"


def _is_body(path: Path) -> bool:
    return path.parent.name == "bodies" and "results" in path.parts


def test_every_text_file_is_ascii(repository: Path) -> None:
    """No tracked or new text file holds a byte outside printable ASCII."""
    paths = text_files(repository)
    assert repository / "pyproject.toml" in paths
    foreign = {str(path.relative_to(repository)): first_foreign(path) for path in paths}
    assert {name: where for name, where in foreign.items() if where} == {}


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"plain\n\ttext\r\n", None),
        ("one\ntw\u00f6\n".encode(), "2: 0xc3"),
        (b"\xff", "1: 0xff"),
        (b"a\x00b", "1: 0x00"),
        (b"", None),
    ],
)
def test_a_foreign_byte_is_named_with_its_line(tmp_path: Path, content: bytes, where: str | None) -> None:
    """One byte outside ASCII is found and named; ASCII text is not."""
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    assert first_foreign(path) == where


def test_an_untracked_file_counts_and_an_ignored_one_does_not(tmp_path: Path) -> None:
    """A file that would be added by the next commit is already checked; one that git ignores is not."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.txt\n", encoding="ascii")
    for name in ("new.txt", "ignored.txt", "picture.png"):
        (tmp_path / name).write_text("x", encoding="ascii")
    assert [path.name for path in text_files(tmp_path)] == [".gitignore", "new.txt"]
