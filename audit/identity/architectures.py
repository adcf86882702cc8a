"""Every architecture that this llama.cpp knows: tried with a tiny model, or named with the reason why not.

In goes nothing, or the source tree of a build, out come names with reasons. The list of the installed gguf package and,
for a git revision, that of the tree itself are looked through, so that a new architecture cannot go unnoticed.
"""

import importlib
import re
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.tiny import TINY_ARCHITECTURES

__all__ = ["REASONS", "known_architectures", "not_run_reason", "untried"]

_UNKNOWN = "unknown to this program: no tiny model is written"

# Which tiny model is missing, and what would have to be written for it.
_BY_REASON = {
    "makes no next-token logits (an encoder, or no language model)": """
        bert clip eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert nomic-bert
        nomic-bert-moe pockettts qwen3tts t5encoder wavtokenizer-dec""",
    "needs an encoder pass before it decodes": "t5",
    "denoises whole texts instead of decoding step by step": "dream llada llada-moe rnd1",
    "a draft model, which cannot run by itself": "dflash eagle3 gemma4-assistant",
    "takes images: no tiny model of its text half is written": """
        chameleon clef cogvlm deepseek2-ocr hunyuan_vl paddleocr qwen2vl qwen3vl qwen3vlmoe""",
    "a mixture of experts of which no tiny model is written; qwen3moe stands for experts": """
        afmoe arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 deepseek32 deepseek4 dots1
        dots3note ernie4_5-moe exaone-moe glm-dsa glm4moe glm5-next gpt-oss granitemoe grok grovemoe hunyuan-moe kimi-k3
        laguna llama4 mimo2 minimax-01 minimax-m2 minimax-m3 mistral4 olmoe phimoe qwen2moe smallthinker step35""",
    "recurrent or a hybrid of which no tiny model is written; mamba stands for recurrence": """
        arwkv7 falcon-h1 granitehybrid jamba kimi-linear lfm2 lfm2moe mamba2 nemotron_h nemotron_h_moe plamo2 plamo3
        qwen35 qwen35moe qwen3next rwkv6 rwkv6qwen2 rwkv7""",
    "a dense variation of which no tiny model is written": """
        apertus arcee baichuan bitnet bloom chatglm codeshell cohere2 deci ernie4_5 exaone exaone4 falcon gemma3n gemma4
        glm4 gpt2 gptj gptneox granite_swa graniteswitch hrm_text hunyuan-dense hy_v3 hy_v4 internlm2 jais jais2
        maincoder maple mellum minicpm minicpm3 mistral3 mpt muse-glimmer nanbeige nemotron olmo openelm orion
        pangu-embedded phi2 phi3 plamo plm qwen qwen4exp refact seed_oss spark2_5 stablelm starcoder talkie xverse""",
}
REASONS = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}

_TABLE = re.compile(r"LLM_ARCH_NAMES\s*=\s*\{(.*?)\n\};", re.DOTALL)
_ENTRY = re.compile(r"\{\s*LLM_ARCH_\w+,\s*\"([^\"]+)\"")
_PLACEHOLDER = "(unknown)"


def known_architectures(tree: Path | None = None) -> list[str]:
    """List the architectures of the installed gguf package, or of a llama.cpp source tree, sorted.

    Raises: UsageError where the package is missing, or the tree has no such table.
    """
    if tree is not None:
        path = tree / "src" / "llama-arch.cpp"
        table = _TABLE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        names = _ENTRY.findall(table[1]) if table is not None else []
        if not names:
            raise UsageError(f"{path.name}: no table LLM_ARCH_NAMES: is this a checkout of llama.cpp?")
        return sorted(set(names) - {_PLACEHOLDER})
    try:
        gguf: Any = importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        raise UsageError(
            "the gguf package is missing", hint="install the extra: python -m pip install 'determinism-audit[local]'"
        ) from error
    return sorted(gguf.MODEL_ARCH_NAMES.values())


def not_run_reason(name: str) -> str:
    """Tell why an architecture has no tiny model."""
    return REASONS.get(name, _UNKNOWN)


def untried(names: list[str]) -> dict[str, str]:
    """Return the architectures without a tiny model, each with its reason, by name."""
    return {name: not_run_reason(name) for name in sorted(names) if name not in TINY_ARCHITECTURES}
