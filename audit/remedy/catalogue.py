"""The catalogue of settings: what can be changed about a server, in the order in which it is tried.

In: nothing. Out: `CATALOGUE`, one row a setting, and the pairs that make sense. A row is data: how the setting is
written on a llama-server's command line, which launch settings or environment variables it changes, what it does there,
and what it may cost. Whether it helps is not known here; it is measured.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from audit.errors import UsageError

__all__ = ["CATALOGUE", "Setting", "chosen", "named", "pairs_of"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One change of a server.

    Args:
        name: what the record calls it.
        knob: what it turns; two settings of one knob exclude each other.
        words: how it is written on the command line of llama-server, or as NAME=VALUE for an environment variable.
        what: what it does.
        cost: what it may cost.
        changes: fields of the launch settings and their values.
        environment: variables of the server's process and their values.
        field: the field of the embedded build that it needs, where that is another than a launch setting's own.
    """

    name: str
    knob: str
    words: tuple[str, ...]
    what: str
    cost: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    field: str | None = None


def _flag(name: str, words: str, what: str, cost: str, *, field: str, knob: str = "", **changes: object) -> Setting:
    """Return a setting of the command line; its knob is its field unless told otherwise."""
    split = tuple(words.split())
    return Setting(name=name, knob=knob or field, words=split, what=what, cost=cost, changes=changes, field=field)


def _variable(name: str, variable: str, value: str, what: str, cost: str) -> Setting:
    return Setting(
        name=name, knob=variable, words=(f"{variable}={value}",), what=what, cost=cost, environment={variable: value}
    )


_LESS_BATCHED = "speed where several requests are served, more the smaller it is"
_SPEED = "speed, on this device perhaps much"

CATALOGUE: tuple[Setting, ...] = (
    _flag("no-repack", "--no-repack", "weights stay as they are in the file, and are not rearranged for this processor",
          "speed of prefill and of batches, on some processors", field="no_extra_bufts", repack=False),
    _flag("fa-off", "-fa off", "attention by separate matrix products", "memory and speed at long contexts",
          field="flash_attn_type", flash_attn="off"),
    _flag("fa-on", "-fa on", "attention in one fused operation", "nothing where the device has it",
          field="flash_attn_type", flash_attn="on"),
    _variable("tiled-mm-off", "GGML_CPU_TILED_MM", "0", "no tiled matrix product on the CPU", _SPEED),
    _variable("cpu-fusion-off", "GGML_CPU_DISABLE_FUSION", "1", "operations of the CPU are not fused", _SPEED),
    _flag("kv-f32", "-ctk f32 -ctv f32", "keys and values are kept as float32", "twice the memory of the cache",
          field="cache_type_k", cache_type="f32"),
    _flag("kv-q8_0", "-ctk q8_0 -ctv q8_0", "keys and values are quantized to 8 bits", "accuracy",
          field="cache_type_k", cache_type="q8_0"),
    _flag("kvu", "-kvu", "one buffer of keys and values for all slots", "the slots share one context",
          field="kv_unified", kv_unified=True),
    _flag("no-kvu", "-no-kvu", "each slot has a buffer of its own", "memory", field="kv_unified", kv_unified=False),
    _flag("ub-64", "-ub 64", "at most 64 tokens in one physical batch", "speed of long prompts",
          field="n_ubatch", ubatch=64),
    _flag("b-64", "-b 64 -ub 64", "at most 64 tokens in one decode", "speed of long prompts",
          field="n_batch", knob="n_ubatch", batch=64, ubatch=64),
    _flag("no-cont-batching", "--no-cont-batching", "no prompt is taken in while others decode",
          "requests wait for each other", field="cont_batching", cont_batching=False),
    _flag("t-1", "-t 1 -tb 1", "one thread for everything", _SPEED, field="cpuparams", threads=1, threads_batch=1),
    _flag("tb-1", "-tb 1", "one thread for prefill", "speed of prefill",
          field="cpuparams_batch", knob="cpuparams", threads_batch=1),
    _flag("no-cache-prompt", "--no-cache-prompt", "no prompt is reused unless a request asks for it",
          "every prompt is computed again", field="cache_prompt", cache_prompt=False),
    _flag("cache-ram-0", "--cache-ram 0", "no prompt is kept in host memory", "every prompt that left its slot",
          field="cache_ram_mib", cache_ram_mib=0),
    _flag("swa-full", "--swa-full", "a full cache also for layers with a sliding window", "memory",
          field="swa_full", swa_full=True),
    _variable("graph-reuse-off", "LLAMA_GRAPH_REUSE_DISABLE", "1", "the graph of operations is built anew each time",
              "a little time a token"),
    _variable("attn-rot-off", "LLAMA_ATTN_ROT_DISABLE", "1", "no rotation before keys and values are quantized",
              "accuracy of quantized caches"),
    _variable("cuda-graphs-off", "GGML_CUDA_DISABLE_GRAPHS", "1", "no CUDA graphs", "speed"),
    _variable("cuda-cublas", "GGML_CUDA_FORCE_CUBLAS", "1", "matrix products by cuBLAS alone", "speed"),
    _variable("vk-coopmat-off", "GGML_VK_DISABLE_COOPMAT", "1", "no matrix units through Vulkan", "speed"),
    _variable("vk-fusion-off", "GGML_VK_DISABLE_FUSION", "1", "operations are not fused in Vulkan", "speed"),
    _variable("metal-fusion-off", "GGML_METAL_FUSION_DISABLE", "1", "operations are not fused in Metal", "speed"),
    _flag("np-1", "-np 1", "one slot: requests wait for each other", "all that serving several at once gains",
          field="n_parallel", slots=1),
    _flag("ub-1", "-ub 1", "one token in each physical batch: nothing is computed together", _LESS_BATCHED,
          field="n_ubatch", ubatch=1),
)  # fmt: skip


def named(names: Iterable[str]) -> tuple[Setting, ...]:
    """Return the settings of these names, in the order of the names.

    Raises: UsageError for a name that the catalogue does not have.
    """
    known = {setting.name: setting for setting in CATALOGUE}
    found = []
    for name in names:
        if name not in known:
            raise UsageError(f"no setting is called {name!r}", hint=f"one of {', '.join(known)}")
        found.append(known[name])
    return tuple(found)


def chosen(names: Sequence[str] | None) -> tuple[Setting, ...]:
    """Return the settings that are asked for, or all of them."""
    return CATALOGUE if not names else named(names)


def pairs_of(settings: Sequence[Setting]) -> list[tuple[Setting, Setting]]:
    """Return the pairs of settings that do not exclude each other, those of the first settings first."""
    order = {setting.name: at for at, setting in enumerate(settings)}
    pairs = [pair for pair in combinations(settings, 2) if pair[0].knob != pair[1].knob]
    return sorted(pairs, key=lambda pair: sum(order[setting.name] for setting in pair))
