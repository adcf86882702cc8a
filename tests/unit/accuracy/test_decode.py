"""A decoded model has every weight as float32, exactly, and nothing else changed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audit.accuracy.decode import check_decoded, decode
from audit.errors import EvidenceError, UsageError
from audit.local.process import file_sha256
from audit.tiny import write_tiny

gguf = pytest.importorskip("gguf")


def tiny(tmp_path: Path, name: str) -> Path:
    """Write a tiny model."""
    path = tmp_path / f"{name}.gguf"
    write_tiny(name, path)
    return path


def tensors(path: Path) -> dict[str, Any]:
    """Read the tensors of a file."""
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def blocks(raw: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Cut stored weights into their blocks."""
    return np.ascontiguousarray(raw).reshape(-1, size)


def q8_0(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode Q8_0 by its definition: a float16 scale and 32 signed bytes."""
    each = blocks(raw, 34)
    scale = each[:, :2].copy().view("<f2").astype(np.float32)
    return (scale * each[:, 2:].view(np.int8).astype(np.float32)).ravel()


def q4_0(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode Q4_0 by its definition: a float16 scale and 32 nibbles less 8, low ones first."""
    each = blocks(raw, 18)
    scale = each[:, :2].copy().view("<f2").astype(np.float32)
    nibbles = np.concatenate([each[:, 2:] & 15, each[:, 2:] >> 4], axis=1)
    return (scale * (nibbles.astype(np.float32) - 8)).ravel()


def f16(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Decode float16."""
    return raw.astype(np.float32).ravel()


@pytest.mark.parametrize(
    ("name", "rule"),
    [("tiny-llama-q4_0", q4_0), ("tiny-gemma3-q8_0", q8_0), ("tiny-qwen2-f16", f16), ("tiny-llama-f32", np.ravel)],
)
def test_every_weight_is_the_one_that_its_format_defines(
    tmp_path: Path, name: str, rule: Callable[[NDArray[Any]], NDArray[np.float32]]
) -> None:
    """Matrices follow the format's own formula, written here a second time; what was float32 stays."""
    source, target = tiny(tmp_path, name), tmp_path / "f32.gguf"
    done = decode(source, target)
    before, after = tensors(source), tensors(target)
    assert list(before) == list(after)
    for tensor, stored in before.items():
        decoded = after[tensor]
        assert decoded.tensor_type.name == "F32"
        assert decoded.shape.tolist() == stored.shape.tolist()
        expected = rule(stored.data) if len(stored.shape) > 1 else stored.data
        assert decoded.data.ravel().tobytes() == np.ravel(expected).astype("<f4").tobytes(), tensor
    assert done.values == sum(int(tensor.n_elements) for tensor in after.values())
    assert (done.source_sha256, done.sha256) == (file_sha256(source), file_sha256(target))
    assert check_decoded(source, target) == done


def test_only_the_storage_type_changes_among_the_metadata(tmp_path: Path) -> None:
    """Every field is there in the same order with the same content, but for general.file_type."""
    source, target = tiny(tmp_path, "tiny-llama-q4_0"), tmp_path / "f32.gguf"
    decode(source, target)
    before, after = gguf.GGUFReader(source).fields, gguf.GGUFReader(target).fields
    assert list(before) == list(after)
    changed = {name for name in before if before[name].contents() != after[name].contents()}
    assert changed == {"general.file_type"}
    assert after["general.file_type"].contents() == gguf.LlamaFileType.ALL_F32


def test_a_model_of_float32_is_decoded_to_itself(tmp_path: Path) -> None:
    """What is decoded already comes out as the same bytes, padding included."""
    source, target = tiny(tmp_path, "tiny-llama-f32"), tmp_path / "f32.gguf"
    decode(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_an_existing_file_is_never_written_to(tmp_path: Path) -> None:
    """The target is created exclusively."""
    target = tmp_path / "f32.gguf"
    target.write_bytes(b"mine")
    with pytest.raises(UsageError, match="File exists"):
        decode(tiny(tmp_path, "tiny-llama-q4_0"), target)
    assert target.read_bytes() == b"mine"


def test_a_source_that_ends_early_leaves_no_file(tmp_path: Path) -> None:
    """Half a model is not written."""
    source, target = tiny(tmp_path, "tiny-llama-q4_0"), tmp_path / "f32.gguf"
    whole = source.read_bytes()
    source.write_bytes(whole[:-4000])
    with pytest.raises((EvidenceError, UsageError)):
        decode(source, target)
    assert not target.exists()


def moved(data: bytes) -> bytes:
    """Change the lowest bit of the last weight: the smallest change there is."""
    return data[:-4] + bytes([data[-4] ^ 1]) + data[-3:]


def negative_zero(data: bytes) -> bytes:
    """Turn the first 0.0 among the weights into -0.0, which compares equal as a number."""
    at = 0x4000 * 4
    while struct.unpack_from("<f", data, at)[0] != 0.0 or data[at : at + 4] != b"\0\0\0\0":
        at += 4
    return data[: at + 3] + b"\x80" + data[at + 4 :]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (moved, "is not the one that"),
        (negative_zero, "is not the one that"),
        (lambda data: data.replace(b"tiny-llama-q4_0", b"tiny-llama-q4_1"), "metadata differ"),
        (lambda data: data.replace(b"blk.1.attn_q.weight", b"blk.1.attn_z.weight"), "names, order or shapes"),
        (lambda data: data + b"\0" * 32, "does not end with its last tensor"),
    ],
)
def test_a_change_of_one_bit_or_one_name_is_found(tmp_path: Path, change: Callable[[bytes], bytes], words: str) -> None:
    """--check proves values, metadata, names and the end of the file."""
    source, target = tiny(tmp_path, "tiny-llama-q4_0"), tmp_path / "f32.gguf"
    decode(source, target)
    target.write_bytes(change(target.read_bytes()))
    with pytest.raises(EvidenceError, match=words):
        check_decoded(source, target)


def test_a_quantized_file_is_not_taken_for_a_decoded_one(tmp_path: Path) -> None:
    """The storage type of each tensor is looked at, and the declared one before it."""
    source = tiny(tmp_path, "tiny-llama-q4_0")
    with pytest.raises(EvidenceError, match="metadata differ"):
        check_decoded(source, source)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"no model at all" * 10])
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    """The error names the file."""
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"x\.gguf"):
        decode(path, tmp_path / "y.gguf")
    assert not (tmp_path / "y.gguf").exists()
