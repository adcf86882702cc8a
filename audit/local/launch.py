"""What an owned server is started with: settings in, the words for llama.cpp out (pure).

`LaunchSettings` is the server line of an audit. One function turns it into the arguments of the llama-server binary,
another into the fields of the embedded build's CommonParams; both name the model by its bare file name, because a
server runs inside the model's folder and no path may appear in what it replies. Nothing here starts a process.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal, get_args

from audit.errors import UsageError

__all__ = ["HOST", "CacheType", "FlashAttention", "LaunchSettings", "bare_words", "embedded_fields", "server_arguments"]

# Loopback only: an owned server is never meant to be seen from another machine.
HOST = "127.0.0.1"
# More layers than any model has.
_ALL_LAYERS = 999

FlashAttention = Literal["on", "off", "auto"]
CacheType = Literal["f16", "f32", "bf16", "q8_0"]


@dataclasses.dataclass(frozen=True)
class LaunchSettings:
    """The settings of a server that we start; the defaults are those of an audit.

    Args:
        slots: parallel sequences, >= 1.
        ctx_per_slot: tokens of context in one slot; the whole context is `slots` times that.
        batch: largest logical batch, in tokens.
        ubatch: largest physical batch, in tokens, at most `batch`.
        threads: threads for decode and prefill alike; the processors of this machine by default.
        flash_attn: flash attention.
        kv_unified: one key-value buffer shared by all slots.
        cache_ram_mib: host memory for the prompt cache, in MiB; 0 is off, -1 without limit.
        swa_full: a full-size cache for models with a sliding window.
        cache_type: how keys and values are kept; None says nothing, and the build decides (f16).
        repack: weights may be rearranged for this processor (llama-server: `--repack`).
        gpu: put all layers on an accelerator, if there is one; otherwise keep off any.
        verbosity: how much llama.cpp logs, by its own numbers; None for its default.
        threads_batch: threads for prefill; None for as many as `threads`.
        cont_batching: prompts may be taken in while others decode; None says nothing, and the build decides (yes).
        cache_prompt: what holds for a request that does not say; None says nothing, and the build decides (yes).
        extra_args: further arguments, for the binary only.

    Raises: UsageError for a value out of range.
    """

    slots: int = 8
    ctx_per_slot: int = 1024
    batch: int = 2048
    ubatch: int = 512
    threads: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 2)
    flash_attn: FlashAttention = "on"
    kv_unified: bool = False
    cache_ram_mib: int = 0
    swa_full: bool = False
    repack: bool = True
    cache_type: CacheType | None = None
    gpu: bool = False
    verbosity: int | None = None
    threads_batch: int | None = None
    cont_batching: bool | None = None
    cache_prompt: bool | None = None
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that llama.cpp would silently round, ignore or crash on."""
        for name in ("slots", "ctx_per_slot", "batch", "ubatch", "threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but it must be at least 1")
        if self.threads_batch is not None and self.threads_batch < 1:
            raise UsageError(f"threads_batch is {self.threads_batch}, but it must be at least 1")
        if self.ubatch > self.batch:
            raise UsageError(f"ubatch is {self.ubatch}, more than batch, which is {self.batch}")
        if self.cache_ram_mib < -1:
            raise UsageError(f"cache_ram_mib is {self.cache_ram_mib}, but it must be at least -1")
        if self.flash_attn not in get_args(FlashAttention):
            raise UsageError(f"flash_attn is {self.flash_attn!r}, but it must be on, off or auto")
        if self.cache_type not in {None, *get_args(CacheType)}:
            raise UsageError(f"cache_type is {self.cache_type!r}, but it must be one of f16, f32, bf16, q8_0, or None")


def server_arguments(model_name: str, settings: LaunchSettings, *, port: int, binary: bool = True) -> list[str]:
    """Spell the settings as llama-server's arguments, without the program's name.

    The embedded build gets the same settings as fields, so this is also its declared server line; `binary` adds what
    only a program needs to be told: to keep off any accelerator, and the user's own arguments.
    """
    words = ["-m", model_name, "-a", model_name, "--host", HOST, "--port", str(port)]
    words += ["-np", str(settings.slots), "-c", str(settings.slots * settings.ctx_per_slot)]
    words += ["-kvu" if settings.kv_unified else "-no-kvu"]
    words += ["--cache-ram", str(settings.cache_ram_mib), "--no-cache-idle-slots", "--no-context-shift"]
    words += ["--metrics", "--slots", "-fit", "off", "-fa", settings.flash_attn]
    words += ["-b", str(settings.batch), "-ub", str(settings.ubatch)]
    words += ["-t", str(settings.threads), "-tb", str(settings.threads_batch or settings.threads)]
    if settings.swa_full:
        words.append("--swa-full")
    if not settings.repack:
        words.append("--no-repack")
    if settings.gpu:
        words += ["-ngl", str(_ALL_LAYERS)]
    if settings.verbosity is not None:
        words += ["-lv", str(settings.verbosity)]
    if settings.cache_type is not None:
        words += ["-ctk", settings.cache_type, "-ctv", settings.cache_type]
    for flag, value in (("cont-batching", settings.cont_batching), ("cache-prompt", settings.cache_prompt)):
        if value is not None:
            words.append(f"--{flag}" if value else f"--no-{flag}")
    if binary:
        words += [*([] if settings.gpu else ["--device", "none"]), *settings.extra_args]
    return words


def embedded_fields(model_name: str, settings: LaunchSettings, *, port: int) -> dict[str, Any]:
    """Spell the settings as fields of xllamacpp's CommonParams, by the names that `audit.local.child` understands."""
    more: dict[str, Any] = {"n_gpu_layers": _ALL_LAYERS} if settings.gpu else {}
    for name in ("verbosity", "threads_batch", "cont_batching", "cache_prompt"):
        if getattr(settings, name) is not None:
            more[name] = getattr(settings, name)
    return {
        "model_path": model_name,
        "model_alias": model_name,
        "host": HOST,
        "port": port,
        "n_parallel": settings.slots,
        "n_ctx": settings.slots * settings.ctx_per_slot,
        "kv_unified": settings.kv_unified,
        "cache_ram_mib": settings.cache_ram_mib,
        "cache_idle_slots": False,
        "ctx_shift": False,
        "endpoint_metrics": True,
        "endpoint_slots": True,
        "fit_params": False,
        "flash_attn": settings.flash_attn,
        "n_batch": settings.batch,
        "n_ubatch": settings.ubatch,
        "threads": settings.threads,
        "swa_full": settings.swa_full,
        "no_extra_bufts": not settings.repack,
        **({} if settings.cache_type is None else {"cache_type": settings.cache_type}),
        # Last, since the threads of prefill are set with those of decode first.
        **more,
    }


def bare_words(words: list[str]) -> list[str]:
    """Strip the folders from every argument, so that no path of this machine enters a record."""
    return [_bare(word) for word in words]


def _bare(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{flag}=" + Path(value).name if equals and flag.startswith("-") else Path(word).name or word
