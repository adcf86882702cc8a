"""Settings to words: the server line of an audit, spelled once for the binary and once for the embedded build."""

from typing import Any

import pytest

from audit.errors import UsageError
from audit.local.launch import LaunchSettings, bare_words, embedded_fields, server_arguments


def test_the_default_line_is_that_of_an_audit() -> None:
    """Every option that affects numbers or traffic is spelled out, the model by its bare name."""
    line = " ".join(server_arguments("m.gguf", LaunchSettings(threads=2), port=9))
    assert line == (
        "-m m.gguf -a m.gguf --host 127.0.0.1 --port 9 -np 8 -c 8192 -no-kvu --cache-ram 0 --no-cache-idle-slots "
        "--no-context-shift --metrics --slots -fit off -fa on -b 2048 -ub 512 -t 2 -tb 2 --device none"
    )


def test_each_setting_changes_the_line() -> None:
    """No setting is dropped on its way to the binary."""
    changes: list[dict[str, Any]] = [
        {"slots": 4},
        {"ctx_per_slot": 512},
        {"batch": 1024},
        {"ubatch": 1},
        {"threads": 3},
        {"flash_attn": "off"},
        {"kv_unified": True},
        {"cache_ram_mib": 64},
        {"swa_full": True},
        {"repack": False},
        {"threads_batch": 1},
        {"cont_batching": False},
        {"cache_prompt": False},
        {"cache_type": "q8_0"},
        {"extra_args": ("--jinja",)},
    ]
    lines = [tuple(server_arguments("m", LaunchSettings(**{"threads": 2} | change), port=9)) for change in changes]
    assert len({*lines, tuple(server_arguments("m", LaunchSettings(threads=2), port=9))}) == len(changes) + 1


def test_each_setting_changes_the_embedded_fields() -> None:
    """No setting but the arguments of a binary is dropped on its way to the embedded build."""
    settings = LaunchSettings(
        slots=3, ctx_per_slot=512, batch=64, ubatch=32, threads=5, flash_attn="off", kv_unified=True, cache_ram_mib=7,
        swa_full=True, repack=False,
    )  # fmt: skip
    assert embedded_fields("m.gguf", settings, port=9) == {
        "model_path": "m.gguf",
        "model_alias": "m.gguf",
        "host": "127.0.0.1",
        "port": 9,
        "n_parallel": 3,
        "n_ctx": 1536,
        "kv_unified": True,
        "cache_ram_mib": 7,
        "cache_idle_slots": False,
        "ctx_shift": False,
        "endpoint_metrics": True,
        "endpoint_slots": True,
        "fit_params": False,
        "flash_attn": "off",
        "n_batch": 64,
        "n_ubatch": 32,
        "threads": 5,
        "swa_full": True,
        "no_extra_bufts": True,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"ctx_per_slot": -1}, "ctx_per_slot is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"ubatch": 4096}, "ubatch is 4096, more than batch"),
        ({"cache_ram_mib": -2}, "cache_ram_mib is -2"),
        ({"threads_batch": 0}, "threads_batch is 0"),
        ({"cache_type": "q4"}, "cache_type is 'q4'"),
        ({"flash_attn": "yes"}, "flash_attn is 'yes'"),
    ],
)
def test_a_value_out_of_range_is_refused(change: dict[str, Any], words: str) -> None:
    """The error names the setting and shows the value."""
    with pytest.raises(UsageError, match=words):
        LaunchSettings(**change)


def test_arguments_lose_their_folders() -> None:
    """No path of a machine enters a record, also not behind an equals sign; other words stay as they are."""
    words = ["/opt/x/llama-server", "--lora", "/home/me/a.gguf", "--lora=/home/me/a.gguf", "-np", "8", "--x=1", "/"]
    assert bare_words(words) == ["llama-server", "--lora", "a.gguf", "--lora=a.gguf", "-np", "8", "--x=1", "/"]
