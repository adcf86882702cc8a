"""What sets the architectures of the tiny models apart: their tensors, and the few facts that only they need.

In goes the name of an architecture, out come tensor names with shapes as numpy writes them (rows are outputs), and
calls of the GGUF writer. All are variations of one small transformer, but for the recurrent one. Which weights fill the
tensors is the business of the package's own file.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["CONTEXT", "FEED_FORWARD", "TINY_ARCHITECTURES", "VOCABULARY", "WIDTH", "add_facts", "tensor_shapes"]

VOCABULARY = 512
CONTEXT = 4096
LAYERS = 2
WIDTH = 256
HEADS = 4
HEADS_KV = 2
HEAD_WIDTH = WIDTH // HEADS
FEED_FORWARD = 512
# Shorter than a long prompt of a plan, so that the sliding window of gemma3 really slides.
WINDOW = 256
EXPERTS, EXPERTS_USED, EXPERT_WIDTH = 4, 2, 128
# Of the recurrent architecture, as its smallest published model has them, but for the width.
INNER, STATE, CONVOLUTION, TIME_RANK = 2 * WIDTH, 16, 4, WIDTH // 16

Shape = tuple[int, ...]
Facts = Callable[[Any], None]


class _Architecture(NamedTuple):
    """How an architecture differs from `llama`: tensors that go, tensors that come, facts of its own.

    `model` and `block` hold what is added to the whole and to each block; a name that ends `.` drops all that begin so.
    """

    drop: tuple[str, ...] = ()
    model: Mapping[str, Shape] = {}
    block: Mapping[str, Shape] = {}
    facts: Facts = lambda _: None
    layer_norm: bool = False


_WIDE, _NARROW = HEADS * HEAD_WIDTH, HEADS_KV * HEAD_WIDTH
_BIASES: dict[str, Shape] = {"attn_q.bias": (_WIDE,), "attn_k.bias": (_NARROW,), "attn_v.bias": (_NARROW,)}
_HEAD_NORMS: dict[str, Shape] = {"attn_q_norm.weight": (HEAD_WIDTH,), "attn_k_norm.weight": (HEAD_WIDTH,)}
_POST_NORMS: dict[str, Shape] = {"post_attention_norm.weight": (WIDTH,), "post_ffw_norm.weight": (WIDTH,)}
_TIED = ("output.weight",)


def _window(writer: Any) -> None:  # noqa: ANN401 - the package ships no types
    writer.add_sliding_window(WINDOW)


def _granite(writer: Any) -> None:  # noqa: ANN401 - the package ships no types
    writer.add_attention_scale(HEAD_WIDTH**-0.5)
    writer.add_embedding_scale(2.0)
    writer.add_residual_scale(0.5)
    writer.add_logit_scale(2.0)


def _experts(writer: Any) -> None:  # noqa: ANN401 - the package ships no types
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_USED)
    writer.add_expert_feed_forward_length(EXPERT_WIDTH)


def _recurrent(writer: Any) -> None:  # noqa: ANN401 - the package ships no types
    writer.add_ssm_conv_kernel(CONVOLUTION)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(TIME_RANK)


_ARCHITECTURES = {
    "llama": _Architecture(),
    "qwen2": _Architecture(block=_BIASES),
    "qwen3": _Architecture(block=_HEAD_NORMS),
    "gemma3": _Architecture(block={**_HEAD_NORMS, **_POST_NORMS}, facts=_window),
    "gemma": _Architecture(drop=_TIED),
    "gemma2": _Architecture(drop=_TIED, block=_POST_NORMS, facts=_window),
    "olmo2": _Architecture(
        drop=("attn_norm.weight", "ffn_norm.weight"),
        block={**_POST_NORMS, "attn_q_norm.weight": (_WIDE,), "attn_k_norm.weight": (_NARROW,)},
    ),
    "granite": _Architecture(facts=_granite),
    "smollm3": _Architecture(),
    "starcoder2": _Architecture(
        drop=("ffn_gate.weight",),
        model={"output_norm.bias": (WIDTH,)},
        block={
            **_BIASES,
            "attn_norm.bias": (WIDTH,),
            "attn_output.bias": (WIDTH,),
            "ffn_norm.bias": (WIDTH,),
            "ffn_up.bias": (FEED_FORWARD,),
            "ffn_down.bias": (WIDTH,),
        },
        layer_norm=True,
    ),
    "command-r": _Architecture(
        drop=(*_TIED, "ffn_norm.weight"), facts=lambda writer: writer.add_logit_scale(1.0), layer_norm=True
    ),
    "qwen3moe": _Architecture(
        drop=("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
        block={
            **_HEAD_NORMS,
            "ffn_gate_inp.weight": (EXPERTS, WIDTH),
            "ffn_gate_exps.weight": (EXPERTS, EXPERT_WIDTH, WIDTH),
            "ffn_up_exps.weight": (EXPERTS, EXPERT_WIDTH, WIDTH),
            "ffn_down_exps.weight": (EXPERTS, WIDTH, EXPERT_WIDTH),
        },
        facts=_experts,
    ),
    "mamba": _Architecture(
        drop=("attn_q.", "attn_k.", "attn_v.", "attn_output.", "ffn_"),
        block={
            "ssm_in.weight": (2 * INNER, WIDTH),
            "ssm_conv1d.weight": (INNER, CONVOLUTION),
            "ssm_conv1d.bias": (INNER,),
            "ssm_x.weight": (TIME_RANK + 2 * STATE, INNER),
            "ssm_dt.weight": (INNER, TIME_RANK),
            "ssm_dt.bias": (INNER,),
            "ssm_a": (INNER, STATE),
            "ssm_d": (INNER,),
            "ssm_out.weight": (WIDTH, INNER),
        },
        facts=_recurrent,
    ),
}
TINY_ARCHITECTURES = tuple(_ARCHITECTURES)


def add_facts(writer: Any, architecture: str) -> None:  # noqa: ANN401 - the package ships no types
    """Write the sizes that all share, and what only this architecture needs."""
    known = _ARCHITECTURES[architecture]
    writer.add_vocab_size(VOCABULARY)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS_KV)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_rope_freq_base(10000.0)
    if known.layer_norm:
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(1e-6)
    known.facts(writer)


def tensor_shapes(architecture: str) -> dict[str, Shape]:
    """Name every tensor of a model with its shape as numpy writes it (rows are outputs)."""
    known = _ARCHITECTURES[architecture]
    shapes: dict[str, Shape] = {
        "token_embd.weight": (VOCABULARY, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (VOCABULARY, WIDTH),
    }
    block: dict[str, Shape] = {
        "attn_norm.weight": (WIDTH,),
        "attn_q.weight": (_WIDE, WIDTH),
        "attn_k.weight": (_NARROW, WIDTH),
        "attn_v.weight": (_NARROW, WIDTH),
        "attn_output.weight": (WIDTH, _WIDE),
        "ffn_norm.weight": (WIDTH,),
        "ffn_gate.weight": (FEED_FORWARD, WIDTH),
        "ffn_up.weight": (FEED_FORWARD, WIDTH),
        "ffn_down.weight": (WIDTH, FEED_FORWARD),
    }
    shapes = _without(shapes, known.drop) | dict(known.model)
    block = _without(block, known.drop) | dict(known.block)
    return shapes | {f"blk.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in block.items()}


def _without(shapes: dict[str, Shape], drop: tuple[str, ...]) -> dict[str, Shape]:
    return {name: shape for name, shape in shapes.items() if not name.startswith(drop or ("\0",))}
