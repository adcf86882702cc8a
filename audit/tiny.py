"""Tiny models: random-weight GGUF files that a real llama.cpp server loads in milliseconds, for tests and quick checks.

In goes a name such as `tiny-llama-f32`, out comes a file whose bytes depend on that name alone. The weights are made
from raw 64-bit words of Philox by integer steps and one exact multiplication, not by numpy's distributions, whose
streams may change between releases. The vocabulary has 512 ASCII pieces and no byte tokens, so that any ASCII text can
be tokenized and no generated token ends inside a character. The models know no language and judge nothing; where they
live on disk is the business of `audit.local.models`.
"""

import dataclasses
import hashlib
import importlib
import itertools
import os
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.errors import UsageError

__all__ = [
    "TINY_ARCHITECTURES",
    "TINY_NAMES",
    "TINY_QUANTIZATIONS",
    "TINY_VOCABULARY",
    "TinyName",
    "parse_tiny_name",
    "tiny_vocabulary",
    "write_tiny",
]

TINY_ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
TINY_QUANTIZATIONS = ("f32", "f16", "q8_0", "q4_0")
TINY_NAMES = tuple(f"tiny-{arch}-{quant}" for arch in TINY_ARCHITECTURES for quant in TINY_QUANTIZATIONS)
TINY_VOCABULARY = 512

_CONTEXT = 4096
_LAYERS = 2
_WIDTH = 256
_HEADS = 4
_HEADS_KV = 2
_HEAD_WIDTH = _WIDTH // _HEADS
_FEED_FORWARD = 512
# Shorter than a long prompt of a plan, so that the sliding window of gemma3 really slides.
_WINDOW = 256

_SPECIAL = ("<unk>", "<bos>", "<eos>")
# The types of llama.cpp's vocabulary: unknown is 2, control is 3, normal is 1.
_SPECIAL_TYPES = (2, 3, 3)
_NORMAL_TYPE = 1
# Letters by how often English uses them: the pieces of two letters are pairs of frequent ones.
_BY_FREQUENCY = "etaoinshrdlcumwfgypbvkjxqz"
# Byte-level BPE writes these three bytes as letters beyond ASCII; the pieces that come out are ASCII again.
_WRITTEN = {" ": "\u0120", "\n": "\u010a", "\t": "\u0109"}
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

# The spread (standard deviation) of each kind of weight, by the end of the tensor's name. The output's makes logits
# with a spread of about 2.5, hence a best token near -2 nats; the others keep a residual stream that every layer moves.
_SPREADS = {
    "token_embd.weight": 0.5,
    "output.weight": 2.5 / _WIDTH**0.5,
    "attn_q.weight": 1.5 / _WIDTH**0.5,
    "attn_k.weight": 1.5 / _WIDTH**0.5,
    "attn_v.weight": 1.5 / _WIDTH**0.5,
    "attn_output.weight": 1.5 / _WIDTH**0.5,
    "ffn_gate.weight": 1.5 / _WIDTH**0.5,
    "ffn_up.weight": 1.5 / _WIDTH**0.5,
    "ffn_down.weight": 1.5 / _FEED_FORWARD**0.5,
    ".bias": 0.1,
}


@dataclasses.dataclass(frozen=True)
class TinyName:
    """The two halves of a tiny model's name, for instance `llama` and `q8_0`."""

    architecture: str
    quantization: str


def parse_tiny_name(name: str) -> TinyName:
    """Read the name of a tiny model.

    Raises: UsageError when no model has this name.
    """
    if name not in TINY_NAMES:
        raise UsageError(f"no tiny model is called {name!r}", hint=f"choose one of {', '.join(TINY_NAMES)}")
    _, architecture, quantization = name.split("-")
    return TinyName(architecture, quantization)


def tiny_vocabulary() -> tuple[list[str], list[str]]:
    """List the pieces in token-id order and the merges that build the longer ones, as byte-level BPE writes them.

    Returns: 512 pieces (3 special ones, 97 single characters, 412 of two characters) and one merge for each of the 412.
    """
    singles = [_WRITTEN.get(char, char) for char in ["\n", "\t", *(chr(code) for code in range(0x20, 0x7F))]]
    starts = [(_WRITTEN[" "], letter) for letter in string.ascii_lowercase + string.ascii_uppercase]
    pairs = sorted(
        itertools.product(range(len(_BY_FREQUENCY)), repeat=2),
        key=lambda pair: (pair[0] + pair[1], pair),
    )
    letters = [(_BY_FREQUENCY[first], _BY_FREQUENCY[second]) for first, second in pairs]
    doubles = [*starts, *letters][: TINY_VOCABULARY - len(_SPECIAL) - len(singles)]
    pieces = [*_SPECIAL, *singles, *(first + second for first, second in doubles)]
    return pieces, [f"{first} {second}" for first, second in doubles]


def write_tiny(name: str, path: Path) -> str:
    """Write the tiny model `name` to `path`, atomically, and tell its SHA-256 (64 hexadecimal digits).

    Raises: UsageError for an unknown name, or when the gguf package is not installed.
    """
    parsed = parse_tiny_name(name)
    try:
        gguf: Any = importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} cannot be written: the gguf package is missing",
            hint="install the extra: python -m pip install 'determinism-audit[local]'",
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        _write(gguf, name, parsed, temporary)
        digest = hashlib.sha256(Path(temporary).read_bytes()).hexdigest()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return digest


def _write(gguf: Any, name: str, parsed: TinyName, temporary: str) -> None:  # noqa: ANN401 - the package ships no types
    writer = gguf.GGUFWriter(temporary, parsed.architecture)
    quantization = gguf.GGMLQuantizationType[parsed.quantization.upper()]
    _add_facts(gguf, writer, name, parsed)
    _add_vocabulary(writer)
    for tensor, shape in _tensor_shapes(parsed.architecture).items():
        values = _weights(parsed.architecture, tensor, shape)
        # As in real files, only matrices are quantized.
        kind = quantization if len(shape) > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_facts(gguf: Any, writer: Any, name: str, parsed: TinyName) -> None:  # noqa: ANN401 - the package ships no types
    writer.add_name(name)
    file_type = "ALL_F32" if parsed.quantization == "f32" else f"MOSTLY_{parsed.quantization.upper()}"
    writer.add_file_type(gguf.LlamaFileType[file_type])
    writer.add_vocab_size(TINY_VOCABULARY)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS_KV)
    writer.add_key_length(_HEAD_WIDTH)
    writer.add_value_length(_HEAD_WIDTH)
    writer.add_rope_dimension_count(_HEAD_WIDTH)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if parsed.architecture == "gemma3":
        writer.add_sliding_window(_WINDOW)


def _add_vocabulary(writer: Any) -> None:  # noqa: ANN401 - the package ships no types
    pieces, merges = tiny_vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([*_SPECIAL_TYPES, *[_NORMAL_TYPE] * (len(pieces) - len(_SPECIAL))])
    writer.add_token_merges(merges)
    writer.add_unk_token_id(_SPECIAL.index("<unk>"))
    writer.add_bos_token_id(_SPECIAL.index("<bos>"))
    writer.add_eos_token_id(_SPECIAL.index("<eos>"))
    writer.add_add_bos_token(True)  # noqa: FBT003 - the writer takes it by position
    writer.add_add_eos_token(False)  # noqa: FBT003 - the same
    writer.add_chat_template(_CHAT_TEMPLATE)


def _tensor_shapes(architecture: str) -> dict[str, tuple[int, ...]]:
    """Name every tensor of a model with its shape as numpy writes it (rows are outputs)."""
    wide, narrow = _HEADS * _HEAD_WIDTH, _HEADS_KV * _HEAD_WIDTH
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (TINY_VOCABULARY, _WIDTH),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (TINY_VOCABULARY, _WIDTH),
    }
    block: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (_WIDTH,),
        "attn_q.weight": (wide, _WIDTH),
        "attn_k.weight": (narrow, _WIDTH),
        "attn_v.weight": (narrow, _WIDTH),
        "attn_output.weight": (_WIDTH, wide),
        "ffn_norm.weight": (_WIDTH,),
        "ffn_gate.weight": (_FEED_FORWARD, _WIDTH),
        "ffn_up.weight": (_FEED_FORWARD, _WIDTH),
        "ffn_down.weight": (_WIDTH, _FEED_FORWARD),
    }
    if architecture == "qwen2":
        block |= {"attn_q.bias": (wide,), "attn_k.bias": (narrow,), "attn_v.bias": (narrow,)}
    if architecture in {"qwen3", "gemma3"}:
        block |= {"attn_q_norm.weight": (_HEAD_WIDTH,), "attn_k_norm.weight": (_HEAD_WIDTH,)}
    if architecture == "gemma3":
        block |= {"post_attention_norm.weight": (_WIDTH,), "post_ffw_norm.weight": (_WIDTH,)}
    return shapes | {f"blk.{layer}.{name}": shape for layer in range(_LAYERS) for name, shape in block.items()}


def _weights(architecture: str, tensor: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Make the values of one tensor, which depend on the architecture's and the tensor's name alone.

    Norms are all ones. The others are uniform around zero with the spread that `_SPREADS` gives their kind.
    """
    if tensor.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    seed = int.from_bytes(hashlib.sha256(f"{architecture}/{tensor}".encode()).digest()[:16], "little")
    words = np.random.Philox(key=seed).random_raw(int(np.prod(shape)))
    # Twenty-four bits around zero are exact in float32, so the one rounding is that of the multiplication.
    centred = ((words >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32)
    spread = next(value for ending, value in _SPREADS.items() if tensor.endswith(ending))
    if architecture == "gemma3" and tensor == "token_embd.weight":
        # This architecture multiplies its embeddings by the square root of their width.
        spread /= _WIDTH**0.5
    # A uniform variable over an interval of width w has the standard deviation w / sqrt(12).
    step = np.float32(spread * 12**0.5 / 2**24)
    return (centred * step).reshape(shape)
