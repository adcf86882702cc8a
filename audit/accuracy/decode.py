"""A quantized GGUF file becomes the same model in float32, and is proven to be it.

In goes a GGUF file, out comes one in which each weight is the float32 that the gguf package decodes it to. The metadata
are copied as bytes; the one change is the declared storage type (`general.file_type`). Weights are read, decoded and
written in pieces, so that memory does not grow with the model. Nothing is rounded, and no server is asked.
"""

import importlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from audit.errors import EvidenceError, UsageError
from audit.local.process import file_sha256

__all__ = ["Decoded", "check_decoded", "decode"]

_HEADER = 24  # magic, version, and the counts of tensors and of metadata
_FILE_TYPE = "general.file_type"
_ALL_F32 = struct.pack("<I", 0)  # LlamaFileType.ALL_F32, and as a tensor's type GGMLQuantizationType.F32
# Decoded values in one piece: 16 MiB, beside a few times that inside the decoder.
_PIECE_VALUES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """What was written or proven: the digests of both files and the number of tensors and of values."""

    source_sha256: str
    sha256: str
    tensors: int
    values: int


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """Where a tensor stands; `head` is its description in the file up to its type, `width` is its innermost size."""

    name: str
    head: bytes
    kind: Any
    width: int
    rows: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """A file's fixed parts: header and metadata as bytes, where the storage type stands in them, and the tensors."""

    top: bytes
    file_type_at: int | None
    alignment: int
    tensors: tuple[_Tensor, ...]

    @property
    def top_float32(self) -> bytes:
        """Header and metadata with the storage type of float32."""
        at = self.file_type_at
        return self.top if at is None else self.top[:at] + _ALL_F32 + self.top[at + len(_ALL_F32) :]

    @property
    def values(self) -> int:
        """How many values all tensors hold."""
        return sum(tensor.rows * tensor.width for tensor in self.tensors)


def _gguf() -> Any:  # noqa: ANN401 - the package ships no types
    try:
        return importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        raise UsageError(
            "a model cannot be decoded: the gguf package is missing",
            hint="install the extra: python -m pip install 'determinism-audit[local]'",
        ) from error


def _layout(path: Path) -> _Layout:
    """Read where everything stands in a file.

    Raises: UsageError where it is no GGUF file that can be decoded.
    """
    gguf = _gguf()
    try:
        reader = gguf.GGUFReader(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="give the path of a .gguf file") from error
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(f"{path} is no GGUF file that can be read: {error}") from error
    if reader.byte_order != "I" or not reader.tensors:
        raise UsageError(f"{path} is big-endian or holds no tensor, so that there is nothing to decode")
    field, at = reader.fields.get(_FILE_TYPE), None
    if field is not None:
        if field.types != [gguf.GGUFValueType.UINT32]:
            raise UsageError(f"{path}: {_FILE_TYPE} is no 32-bit integer, so that it cannot be changed in place")
        at = field.offset + sum(part.nbytes for part in field.parts[:-1])
    tensors = [_tensor(path, tensor) for tensor in reader.tensors]
    end = int(reader.tensors[0].field.offset)
    return _Layout(
        top=reader.data[:end].tobytes(), file_type_at=at, alignment=int(reader.alignment), tensors=tuple(tensors)
    )


def _tensor(path: Path, tensor: Any) -> _Tensor:  # noqa: ANN401 - the package ships no types
    if tensor.tensor_type.name in {"F64", "I8", "I16", "I32", "I64"}:
        raise UsageError(f"{path}: {tensor.name} is stored as {tensor.tensor_type.name}, which float32 may not hold")
    shape = [int(size) for size in tensor.shape]
    return _Tensor(
        name=tensor.name,
        head=b"".join(part.tobytes() for part in tensor.field.parts[:4]),
        kind=tensor.tensor_type,
        width=shape[0],
        rows=int(np.prod(shape[1:], dtype=np.int64)),
        offset=int(tensor.data_offset),
    )


def _pieces(file: BinaryIO, tensor: _Tensor) -> Iterator[NDArray[np.float32]]:
    """Yield the decoded values of a tensor, some rows at a time.

    Raises: EvidenceError where the file ends inside it, or a value is no finite number.
    """
    gguf = _gguf()
    block, size = gguf.GGML_QUANT_SIZES[tensor.kind]
    row_bytes = tensor.width // block * size
    at_once = max(1, _PIECE_VALUES // tensor.width)
    file.seek(tensor.offset)
    for first in range(0, tensor.rows, at_once):
        count = min(at_once, tensor.rows - first)
        data = file.read(count * row_bytes)
        if len(data) != count * row_bytes:
            raise EvidenceError(f"{file.name}: it ends inside the tensor {tensor.name}")
        raw = np.frombuffer(data, dtype=np.uint8).reshape(count, row_bytes)
        values = gguf.quants.dequantize(raw.view(_plain(tensor.kind.name)), tensor.kind)
        values = values.astype("<f4", copy=False)
        if not np.isfinite(values).all():
            raise EvidenceError(f"{file.name}: the tensor {tensor.name} holds a value that is no finite number")
        yield values


def _plain(kind: str) -> str:
    """Return the numpy type of weights that are stored as plain numbers, else bytes."""
    return {"F32": "<f4", "F16": "<f2"}.get(kind, "u1")


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def decode(source: Path, target: Path) -> Decoded:
    """Write the model in float32.

    Args:
        source: a GGUF file.
        target: the file to write, which must not exist.

    Raises: UsageError where one cannot be read, or the other exists or cannot be written.
    """
    layout = _layout(source)
    try:
        file = target.open("xb")
    except OSError as error:
        raise UsageError(f"{target}: cannot be made: {error.strerror}", hint="give a path that is free") from error
    try:
        with file, source.open("rb") as stored:
            _write(layout, stored, file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return _said(source, target, layout)


def _write(layout: _Layout, stored: BinaryIO, file: BinaryIO) -> None:
    file.write(layout.top_float32)
    offset = 0
    for tensor in layout.tensors:
        file.write(tensor.head + _ALL_F32 + struct.pack("<Q", offset))
        offset = _aligned(offset + 4 * tensor.rows * tensor.width, layout.alignment)
    for tensor in layout.tensors:
        file.write(b"\0" * (_aligned(file.tell(), layout.alignment) - file.tell()))
        file.writelines(values.tobytes() for values in _pieces(stored, tensor))
    # As the gguf package writes files: the last tensor is padded too.
    file.write(b"\0" * (_aligned(file.tell(), layout.alignment) - file.tell()))
    file.flush()
    os.fsync(file.fileno())


def check_decoded(source: Path, target: Path) -> Decoded:
    """Prove that `target` is `source` in float32: every value exact, and nothing else changed.

    Raises: EvidenceError that names what differs, UsageError where a file cannot be read.
    """
    before, after = _layout(source), _layout(target)
    if before.top_float32 != after.top:
        raise EvidenceError(f"{target}: metadata differ from those of {source} in more than the storage type")
    heads = [[tensor.head for tensor in layout.tensors] for layout in (before, after)]
    if heads[0] != heads[1]:
        raise EvidenceError(f"{target}: names, order or shapes of the tensors differ from those of {source}")
    last = after.tensors[-1]
    if target.stat().st_size != _aligned(last.offset + 4 * last.rows * last.width, after.alignment):
        raise EvidenceError(f"{target}: it does not end with its last tensor")
    with source.open("rb") as stored, target.open("rb") as decoded:
        for ours, theirs in zip(before.tensors, after.tensors, strict=True):
            if theirs.kind.name != "F32":
                raise EvidenceError(f"{target}: {theirs.name} is stored as {theirs.kind.name}, not as F32")
            pairs = zip(_pieces(stored, ours), _pieces(decoded, theirs), strict=True)
            # As bytes: 0.0 and -0.0 are two values.
            if any(one.tobytes() != other.tobytes() for one, other in pairs):
                raise EvidenceError(f"{target}: a value of {theirs.name} is not the one that {source} decodes to")
    return _said(source, target, before)


def _said(source: Path, target: Path, layout: _Layout) -> Decoded:
    return Decoded(
        source_sha256=file_sha256(source),
        sha256=file_sha256(target),
        tensors=len(layout.tensors),
        values=layout.values,
    )
