"""A registration is its four files, their digest, and what git says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from audit.errors import PlanError, UsageError
from audit.plan import Plan, registered_digest
from audit.prereg import load_registration
from audit.stream import digest

TOML = """
name = "study"
canary = { prompt = "p" }
prompts = { p = { text = "p" } }
conditions = [{ name = "repeat_greedy", prompts = ["p"] }]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a registration that is in no repository yet."""
    study = tmp_path / "prereg" / "study"
    study.mkdir(parents=True)
    (study / "PREREG.md").write_text("# Study\n")
    (study / "plan.toml").write_text(TOML)
    (study / "plan.json").write_bytes(Plan.load(study / "plan.toml").to_bytes())
    (study / "predictions.json").write_text('{"format":1,"predictions":[]}')
    return study


def git(folder: Path, *arguments: str) -> str:
    """Run git in the repository around a registration."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder.parents[1]), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    """Make a repository with the registration in one commit, and return its id."""
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "prereg: study")
    return git(folder, "rev-parse", "HEAD")


def test_a_registration_without_a_repository_is_uncommitted(folder: Path) -> None:
    """Its files, plan and digest are there all the same."""
    found = load_registration(folder)
    assert (found.name, found.commit, found.status) == ("study", None, "uncommitted")
    assert found.digest == registered_digest(found.files)
    assert found.plan.to_bytes() == found.files["plan.json"]
    assert found.predictions.predictions == []


def test_a_committed_registration_is_registered(folder: Path) -> None:
    """The manifest's entry names the commit that touched it last, and git's own id of every file."""
    first = commit(folder)
    (folder.parents[1] / "other.txt").write_text("later work")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "other")
    found = load_registration(folder)
    assert (found.status, found.commit) == ("registered", first)
    entry = found.entry()
    data = found.files["plan.json"]
    assert entry.files["plan.json"] == {
        "sha256": digest(data),
        "blob": git(folder, "rev-parse", "HEAD:prereg/study/plan.json"),
    }
    assert (entry.name, entry.digest, entry.status) == ("study", found.digest, "registered")
    assert found.entry(overridden=True).status == "overridden"


def test_a_registration_that_was_edited_is_changed(folder: Path) -> None:
    """One character that is not committed is enough, and it changes the digest."""
    commit(folder)
    before = load_registration(folder)
    (folder / "PREREG.md").write_text("# Study.\n")
    after = load_registration(folder)
    assert (after.status, after.commit) == ("changed", before.commit)
    assert after.digest != before.digest


def test_a_file_that_was_never_committed_leaves_it_uncommitted(folder: Path) -> None:
    """A registration is committed as a whole."""
    commit(folder)
    git(folder, "rm", "-q", "--cached", "prereg/study/predictions.json")
    git(folder, "commit", "-q", "-m", "without")
    assert load_registration(folder).status == "uncommitted"


def test_a_registration_lacks_no_file(folder: Path) -> None:
    """The error names the file."""
    (folder / "PREREG.md").unlink()
    with pytest.raises(UsageError, match=r"PREREG\.md"):
        load_registration(folder)


def test_the_resolved_plan_is_that_of_the_toml(folder: Path) -> None:
    """What is run is what was written for people."""
    (folder / "plan.toml").write_text(TOML.replace('"study"', '"study2"'))
    with pytest.raises(PlanError, match=r"plan\.json is not what plan\.toml resolves to"):
        load_registration(folder)
