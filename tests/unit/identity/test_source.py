"""Git revisions as builds: worktrees with the dumper in them, which are gone afterwards however it ended."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.identity import source
from audit.identity.builds import Spec
from audit.identity.source import built_from_source

REVISIONS = [("old", Spec("git", "HEAD")), ("new", Spec("git", "HEAD"))]


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every program be there: none of these tests builds anything."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "file").write_text("x", encoding="ascii")
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)
    return folder


def worktrees(repo: Path) -> int:
    """Count the worktrees besides the repository itself."""
    done = subprocess.run(["git", "-C", str(repo), "worktree", "list"], capture_output=True, text=True, check=True)
    return len(done.stdout.splitlines()) - 1


def test_both_worktrees_hold_the_dumper_and_are_removed(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the context lasts there are two trees with the program's source; afterwards there is none."""
    monkeypatch.setattr(source, "_build_all", lambda *_: None)
    with built_from_source(REVISIONS, repo, tmp_path / "work", keep=False, say=lambda _: None) as (builds, tree):
        assert worktrees(repo) == 2
        assert (tree / "determinism-dump" / "dump.cpp").is_file()
        assert {build.rows for build in builds} == {"logits"}
        assert {len(build.entry.commit or "") for build in builds} == {40}
    assert worktrees(repo) == 0
    assert not list((tmp_path / "work").glob("source*"))


def test_a_failed_build_shows_its_log_and_leaves_no_worktree(repo: Path, tmp_path: Path) -> None:
    """A tree that is no llama.cpp cannot be configured; what cmake said is the hint."""
    with (
        pytest.raises(UsageError, match="failed with code") as caught,
        built_from_source(REVISIONS, repo, tmp_path / "work", keep=False, say=lambda _: None),
    ):
        pass
    assert caught.value.hint
    assert worktrees(repo) == 0


def test_ctrl_c_leaves_no_worktree(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt inside the context, or while both build, takes the trees away as well."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source, "_build_all", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        built_from_source(REVISIONS, repo, tmp_path / "work", keep=False, say=lambda _: None),
    ):
        pass
    assert worktrees(repo) == 0


def test_an_unknown_revision_is_named(repo: Path, tmp_path: Path) -> None:
    """The error says which revision the checkout does not have, and nothing is left."""
    unknown = [("old", Spec("git", "no-such-branch")), *REVISIONS[1:]]
    with (
        pytest.raises(UsageError, match="no-such-branch"),
        built_from_source(unknown, repo, tmp_path / "work", keep=False, say=lambda _: None),
    ):
        pass
    assert worktrees(repo) == 0


def test_a_term_signal_is_an_interrupt() -> None:
    """SIGTERM unwinds like Ctrl-C, and the handlers are given back."""
    from audit.cli.identity import interruptible

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
