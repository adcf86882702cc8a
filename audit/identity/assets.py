"""Which models a run compares builds on, and the token ids of its prompts.

In go names of families, quantizations and models, out come cells (one model file at one quantization) with everything
that sizes are checked against, read from the GGUF. Prompts become token ids here and not by any build: the longest
piece of the model's own vocabulary that fits, piece after piece, so that all builds get the same ids whatever their
tokenizers do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from audit.errors import UsageError
from audit.identity.architectures import known_architectures, untried
from audit.identity.header import read_header
from audit.identity.plan import IdentityPlan
from audit.local.models import ModelFile, resolve_model
from audit.tiny import TINY_ARCHITECTURES, TINY_QUANTIZATIONS

__all__ = ["REAL_MODELS", "Asset", "real_assets", "tiny_assets", "token_ids"]

REAL_MODELS = ("smollm2-135m-q4_1", "gemma3-270m-q4_k_m")
# How a vocabulary writes a space inside a piece, by its kind: byte-level BPE, or else SentencePiece.
_SPACES = {"gpt2": "\u0120"}
_SPACE_OTHERWISE = "\u2581"
_PIECE_LENGTH_MAX = 32
_KEYS = frozenset(
    {
        "general.architecture",
        "general.file_type",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.bos_token_id",
    }
)
# The numbers of general.file_type that people meet most. Source: enum llama_ftype of llama.h.
_FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m",
    13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 32: "bf16",
}  # fmt: skip


@dataclass(frozen=True)
class Asset:
    """A model and what its file says of itself; `prompts` are (token ids, text) by name."""

    model: ModelFile
    family: str
    quantization: str
    vocabulary: int
    prompts: dict[str, tuple[list[int], str]]

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return self.model.name


def tiny_assets(
    plan: IdentityPlan, registered: str, *, families: Sequence[str], quantizations: Sequence[str], only: Sequence[str]
) -> tuple[list[Asset], dict[str, str]]:
    """Make the tiny models.

    Args:
        plan: the plan, for its prompts.
        registered: the registered digest, for the prompts' placeholder.
        families: architectures to keep, empty for all.
        quantizations: the same, of `f32`, `f16`, `q8_0`, `q4_0`.
        only: names of cells to keep, empty for all.

    Returns: the assets, and the reason of each asked family without a tiny model.
    Raises: UsageError for a name that exists nowhere.
    """
    known = set(known_architectures()) | set(TINY_ARCHITECTURES)
    _refuse_unknown("--family", families, known)
    _refuse_unknown("--quant", quantizations, set(TINY_QUANTIZATIONS))
    names = [
        f"tiny-{family}-{quantization}"
        for family in TINY_ARCHITECTURES
        for quantization in TINY_QUANTIZATIONS
        if (not families or family in families) and (not quantizations or quantization in quantizations)
    ]
    _refuse_unknown("--only", only, set(names))
    chosen = [name for name in names if not only or name in only]
    skipped = untried(sorted(families or known))
    return [_asset(name, plan, registered) for name in chosen], {} if only else skipped


def real_assets(
    plan: IdentityPlan, registered: str, models: Sequence[str], *, families: Sequence[str], only: Sequence[str]
) -> list[Asset]:
    """Find models by name or path, and keep those of the asked families and names.

    Raises: UsageError for a model that is not there, or a family or name that none of them has.
    """
    assets = [_asset(name, plan, registered) for name in models]
    _refuse_unknown("--family", families, {asset.family for asset in assets})
    _refuse_unknown("--only", only, {asset.cell for asset in assets})
    return [
        asset for asset in assets if (not families or asset.family in families) and (not only or asset.cell in only)
    ]


def token_ids(pieces: Sequence[str], text: str, *, first: int | None, count: int, space: str) -> list[int]:
    """Spell a text with pieces of a vocabulary, always the longest that fits, and repeat it up to a number of ids.

    Args:
        pieces: the vocabulary in id order.
        text: what to spell; a character that no piece begins with is left out.
        first: the id that begins every sequence, or None.
        count: number of ids.
        space: how a space is written in a piece.

    Raises: UsageError where no piece of the text is in the vocabulary.
    """
    by_piece = {piece: token for token, piece in reversed(list(enumerate(pieces)))}
    spelled, left = [], text.replace(" ", space)
    while left:
        length = next((n for n in range(_PIECE_LENGTH_MAX, 0, -1) if len(left) >= n and left[:n] in by_piece), 0)
        if length:
            spelled.append(by_piece[left[:length]])
        left = left[max(length, 1) :]
    if not spelled:
        raise UsageError(f"the vocabulary has no piece of the prompt {text[:40]!r}", hint="give a model of text")
    start = [] if first is None else [first]
    return (start + spelled * (count // len(spelled) + 1))[:count]


def _refuse_unknown(flag: str, asked: Sequence[str], known: set[str]) -> None:
    strangers = [name for name in asked if name not in known]
    if strangers:
        raise UsageError(f"{flag} {strangers[0]!r} does not exist", hint=f"choose from {', '.join(sorted(known))}")


def _asset(name: str, plan: IdentityPlan, registered: str) -> Asset:
    model = resolve_model(name)
    header = read_header(model.path, _KEYS)
    try:
        family, pieces = str(header["general.architecture"]), header["tokenizer.ggml.tokens"]
    except KeyError as error:
        raise UsageError(f"{model.path.name} is no language model: its header lacks {error}") from error
    space = _SPACES.get(header.get("tokenizer.ggml.model", ""), _SPACE_OTHERWISE)
    start = header.get("tokenizer.ggml.bos_token_id")
    prompts = {}
    for key, prompt in plan.prompts.items():
        text = prompt.filled(registered)
        prompts[key] = (token_ids(pieces, text, first=start, count=prompt.tokens, space=space), text)
    quantization = _FILE_TYPES.get(header.get("general.file_type", -1), "other")
    return Asset(model, family, quantization, len(pieces), prompts)
