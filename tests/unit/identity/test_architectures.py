"""No architecture goes unnoticed: each is tried with a tiny model, or listed with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.identity.architectures import REASONS, known_architectures, not_run_reason, untried
from audit.tiny import TINY_ARCHITECTURES


def test_every_architecture_is_in_exactly_one_list() -> None:
    """What the gguf package names is tiny or has a reason, and nothing is in both."""
    pytest.importorskip("gguf")
    known = set(known_architectures())
    assert len(known) > 100
    assert known - set(TINY_ARCHITECTURES) - set(REASONS) == set()
    assert set(TINY_ARCHITECTURES) & set(REASONS) == set()
    assert len(TINY_ARCHITECTURES) >= 8


def test_an_architecture_of_neither_list_says_so() -> None:
    """A new one is NOT RUN with a reason of its own, never silently left out."""
    assert untried(["llama", "brand-new"]) == {"brand-new": not_run_reason("brand-new")}
    assert "unknown" in not_run_reason("brand-new")


def test_the_list_of_a_source_tree_is_read(tmp_path: Path) -> None:
    """The table of llama-arch.cpp counts, without its placeholder."""
    (tmp_path / "src").mkdir()
    text = """
static const std::map<llm_arch, const char *> LLM_ARCH_NAMES = {
    { LLM_ARCH_CLIP,             "clip"             }, // dummy
    { LLM_ARCH_BRAND_NEW,        "brand-new"        },
    { LLM_ARCH_UNKNOWN,          "(unknown)"        },
};
static const std::map<llm_kv, const char *> LLM_KV_NAMES = { { LLM_KV_X, "x" } };
"""
    (tmp_path / "src" / "llama-arch.cpp").write_text(text, encoding="ascii")
    assert known_architectures(tmp_path) == ["brand-new", "clip"]


def test_a_tree_without_the_table_is_refused(tmp_path: Path) -> None:
    """Not every folder is a checkout of llama.cpp."""
    with pytest.raises(UsageError, match="LLM_ARCH_NAMES"):
        known_architectures(tmp_path)
