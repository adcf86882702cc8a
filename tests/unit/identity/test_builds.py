"""What a build may be called, what its environment keeps, and which builds lie between two."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.identity import chain
from audit.identity.builds import Spec, label_of, parse_spec
from audit.identity.chain import between, first_changed
from audit.identity.running import code_path
from audit.identity.scrub import environment_facts, scrubbed


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("HEAD~1", Spec("git", "HEAD~1")),
        ("v1.2", Spec("git", "v1.2")),
        ("binary:/opt/llama-server", Spec("binary", "/opt/llama-server")),
        ("pypi:xllamacpp==2026.10.11549", Spec("pypi", "xllamacpp==2026.10.11549")),
        ("http://127.0.0.1:8080", Spec("http", "http://127.0.0.1:8080")),
    ],
)
def test_a_build_is_read(text: str, spec: Spec) -> None:
    """Each of the four kinds is told by how it begins."""
    assert parse_spec(text) == spec


@pytest.mark.parametrize("text", ["", "-x", "pypi:numpy==1", "pypi:xllamacpp", "ftp://x", "a b", "binary:", "x:y"])
def test_what_is_no_build_is_refused(text: str) -> None:
    """The error shows what was given."""
    with pytest.raises(UsageError):
        parse_spec(text)


def test_labels_are_short() -> None:
    """A list of versions is told apart by the versions."""
    assert label_of(Spec("pypi", "xllamacpp==2026.4.8929")) == "2026.4.8929"
    assert label_of(Spec("git", "feature/x y")) == "x-y"


def test_the_environment_is_scrubbed_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What builds read does not reach them, and is named; what is kept is named too."""
    for name in ("LLAMA_ARG_THREADS", "GGML_NO_BACKTRACE", "OMP_NUM_THREADS", "LD_PRELOAD", "SECRET"):
        monkeypatch.setenv(name, "1")
    assert {"LLAMA_ARG_THREADS", "GGML_NO_BACKTRACE", "OMP_NUM_THREADS", "LD_PRELOAD", "SECRET"} & set(
        scrubbed()
    ) == set()
    facts = environment_facts()
    assert {"LLAMA_ARG_THREADS", "GGML_NO_BACKTRACE", "OMP_NUM_THREADS", "LD_PRELOAD"} <= set(facts["removed"])
    assert "PATH" in facts["kept"]
    assert "SECRET" not in facts["removed"]


def test_a_code_path_is_read_from_a_log() -> None:
    """Buffers and CPU features are named once, sorted; a log without them says nothing."""
    log = (
        "0.00 I system_info: n_threads = 1 (n_threads_batch = 1) / 2 | CPU : SSE3 = 1 | AVX2 = 1 | AMX = 0 |\n"
        "load_tensors:   CPU_Mapped model buffer size =     1.47 MiB\n"
        "load_tensors:   CPU_REPACK model buffer size =     1.47 MiB\n"
        "llama_kv_cache:        CPU KV buffer size =     0.50 MiB\n"
        "sched_reserve:        CPU compute buffer size =     5.51 MiB\n" + "x" * 100_000 + " model buffer size\n"
    )
    assert code_path(log) == {
        "weights": ["CPU_Mapped", "CPU_REPACK"],
        "cache": ["CPU"],
        "compute": ["CPU"],
        "features": ["AVX2", "SSE3"],
    }
    assert code_path("nothing") is None


def test_the_first_changed_build_is_found_by_halving() -> None:
    """Of ten builds that change once, the first changed one is found with at most five comparisons."""
    builds = [Spec("git", str(number)) for number in range(10)]
    asked: list[tuple[str, str]] = []

    def differs(old: Spec, new: Spec) -> bool:
        asked.append((old.name, new.name))
        return int(new.name) >= 7

    assert first_changed(builds, differs) == Spec("git", "7")
    assert len(asked) <= 5
    assert first_changed(builds, lambda _old, _new: False) is None


def test_versions_between_two_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions count as numbers, both ends are included, and a choice among them is kept."""
    monkeypatch.setattr(chain, "_published", lambda: ["2026.10.1", "2026.4.8672.1", "2026.4.8672", "2026.9.3", "0.2.1"])
    old, new = Spec("pypi", "xllamacpp==2026.4.8672"), Spec("pypi", "xllamacpp==2026.10.1")
    names = [spec.name.partition("==")[2] for spec in between(old, new, repo=None)]
    assert names == ["2026.4.8672", "2026.4.8672.1", "2026.9.3", "2026.10.1"]
    kept = between(old, new, repo=None, among=["2026.9.3"])
    assert [spec.name.partition("==")[2] for spec in kept] == ["2026.4.8672", "2026.9.3", "2026.10.1"]
    with pytest.raises(UsageError, match="no xllamacpp"):
        between(old, new, repo=None, among=["1.1"])
    with pytest.raises(UsageError, match="does not come after"):
        between(new, old, repo=None)


def test_revisions_between_two_are_the_ancestry(tmp_path: Path) -> None:
    """Every commit from the good one to the bad one, oldest first."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "--quiet")
    for number in range(3):
        git("commit", "--quiet", "--allow-empty", "-m", str(number))
    found = between(Spec("git", "HEAD~2"), Spec("git", "HEAD"), repo=tmp_path)
    assert [spec.name for spec in found] == ["HEAD~2", git("rev-parse", "HEAD~1"), git("rev-parse", "HEAD")]
    with pytest.raises(UsageError, match="no builds to look through"):
        between(Spec("git", "HEAD"), Spec("http", "http://x"), repo=tmp_path)
