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
from audit.tiny.shapes import FEED_FORWARD, TINY_ARCHITECTURES, VOCABULARY, WIDTH, add_facts, tensor_shapes

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

TINY_QUANTIZATIONS = ("f32", "f16", "q8_0", "q4_0")
TINY_NAMES = tuple(f"tiny-{arch}-{quant}" for arch in TINY_ARCHITECTURES for quant in TINY_QUANTIZATIONS)
TINY_VOCABULARY = VOCABULARY

# A row of a quantized matrix is cut into blocks of this many values.
_BLOCK = 32
# Small tensors that decide where things go, which real files leave in float32 as well.
_NEVER_QUANTIZED = ("ffn_gate_inp.weight", "ssm_conv1d.weight", "ssm_a")

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
    "output.weight": 2.5 / WIDTH**0.5,
    "attn_q.weight": 1.5 / WIDTH**0.5,
    "attn_k.weight": 1.5 / WIDTH**0.5,
    "attn_v.weight": 1.5 / WIDTH**0.5,
    "attn_output.weight": 1.5 / WIDTH**0.5,
    "ffn_gate.weight": 1.5 / WIDTH**0.5,
    "ffn_up.weight": 1.5 / WIDTH**0.5,
    "ffn_down.weight": 1.5 / FEED_FORWARD**0.5,
    "ffn_gate_inp.weight": 1.5 / WIDTH**0.5,
    "ffn_gate_exps.weight": 1.5 / WIDTH**0.5,
    "ffn_up_exps.weight": 1.5 / WIDTH**0.5,
    "ffn_down_exps.weight": 1.5 / WIDTH**0.5,
    "ssm_in.weight": 1.5 / WIDTH**0.5,
    "ssm_conv1d.weight": 0.5,
    "ssm_x.weight": 1.5 / FEED_FORWARD**0.5,
    "ssm_dt.weight": 0.5,
    "ssm_d": 1.0,
    "ssm_out.weight": 1.5 / FEED_FORWARD**0.5,
    ".bias": 0.1,
}
# Gemma multiplies its embeddings by the square root of their width. Where the output is the embedding again, a large
# one would make every token its own successor.
_EMBEDDINGS = {
    "gemma3": 0.5 / WIDTH**0.5,
    "gemma": 0.6 / WIDTH**0.5,
    "gemma2": 0.6 / WIDTH**0.5,
    "command-r": 2.5 / WIDTH**0.5,
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
    architecture, _, quantization = name.removeprefix("tiny-").rpartition("-")
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
    writer.add_name(name)
    file_type = "ALL_F32" if parsed.quantization == "f32" else f"MOSTLY_{parsed.quantization.upper()}"
    writer.add_file_type(gguf.LlamaFileType[file_type])
    add_facts(writer, parsed.architecture)
    _add_vocabulary(writer)
    for tensor, shape in tensor_shapes(parsed.architecture).items():
        values = _weights(parsed.architecture, tensor, shape)
        # As in real files, only matrices are quantized.
        quantized = len(shape) > 1 and shape[-1] % _BLOCK == 0 and not tensor.endswith(_NEVER_QUANTIZED)
        kind = quantization if quantized else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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


def _weights(architecture: str, tensor: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Make the values of one tensor, which depend on the architecture's and the tensor's name alone.

    Norms are all ones, the decay of a recurrent state is -1, -2, ... as published models begin. The others are uniform
    around zero with the spread that `_SPREADS` gives their kind.
    """
    if tensor.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    if tensor.endswith("ssm_a"):
        return np.broadcast_to(-np.arange(1, shape[1] + 1, dtype=np.float32), shape).copy()
    seed = int.from_bytes(hashlib.sha256(f"{architecture}/{tensor}".encode()).digest()[:16], "little")
    words = np.random.Philox(key=seed).random_raw(int(np.prod(shape)))
    # Twenty-four bits around zero are exact in float32, so the one rounding is that of the multiplication.
    centred = ((words >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32)
    spread = next(value for ending, value in _SPREADS.items() if tensor.endswith(ending))
    if tensor == "token_embd.weight":
        spread = _EMBEDDINGS.get(architecture, spread)
    # A uniform variable over an interval of width w has the standard deviation w / sqrt(12).
    step = np.float32(spread * 12**0.5 / 2**24)
    return (centred * step).reshape(shape)
