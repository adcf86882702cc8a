"""A template is three files that lock accepts as they are, and a committed registration is never written to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from audit.analyse.cells import sizes
from audit.errors import PlanError, UsageError
from audit.lock import write_resolved
from audit.plan import Plan, registered_digest
from audit.prereg import load_registration
from audit.prereg.template import write_template

FILES = ["PREREG.md", "plan.toml", "predictions.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a fresh template."""
    write_template(tmp_path / "prereg" / "mine")
    return tmp_path / "prereg" / "mine"


def commit(folder: Path) -> None:
    """Make a repository around a registration and commit it."""
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "prereg: mine"]):
        subprocess.run(["git", "-C", str(folder.parents[1]), *arguments], check=True, capture_output=True)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_template_is_three_ascii_files_with_the_studys_name(tmp_path: Path) -> None:
    """Their paths are returned, and plan.json is not among them."""
    folder = tmp_path / "prereg" / "mine"
    assert write_template(folder) == [folder / name for name in FILES]
    assert sorted(files_of(folder)) == FILES
    assert all(data.isascii() and data.endswith(b"\n") for data in files_of(folder).values())
    assert (folder / "PREREG.md").read_text().startswith("# mine\n")
    assert Plan.load(folder / "plan.toml").name == "mine"


def test_a_template_says_what_a_registration_has_to_say(folder: Path) -> None:
    """Each of the questions has a heading."""
    headings = [line for line in (folder / "PREREG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings == [
        "## Status of data",
        "## Plan, size, stopping rule",
        "## Predictions",
        "## Exclusions",
        "## When a control fails",
        "## What would kill the claim",
    ]


def test_lock_accepts_a_template(folder: Path) -> None:
    """With plan.json it is a whole registration, and its digest is that of the four files."""
    write_resolved(folder)
    found = load_registration(folder)
    assert (found.name, found.status, found.commit) == ("mine", "uncommitted", None)
    assert found.digest == registered_digest(files_of(folder))
    assert found.plan.to_bytes() == (folder / "plan.json").read_bytes()


def test_the_prediction_of_a_template_can_come_true(folder: Path) -> None:
    """The plan has the cells that it speaks of, in the size that it needs, and the controls that it requires."""
    write_resolved(folder)
    found = load_registration(folder)
    planned = sizes(found.plan)
    (prediction,) = found.predictions.predictions
    assert {planned[name].minimum >= prediction.minimum for name in prediction.conditions} == {True}
    assert {check for check in prediction.requires if check.startswith("control_")} <= set(planned)


@pytest.mark.parametrize(
    ("name", "plan"),
    [("My Study_2.b", "my-study_2-b"), ("_x", "x"), ("caf\u00e9", "caf-"), ("\u00e9", "study"), ("n" * 80, "n" * 64)],
)
def test_a_folder_of_any_name_gets_a_plan_with_a_name_of_its_kind(tmp_path: Path, name: str, plan: str) -> None:
    """A plan's name holds fewer letters than a folder's, and lock has to accept what new wrote."""
    write_template(tmp_path / name)
    write_resolved(tmp_path / name)
    assert load_registration(tmp_path / name).plan.name == plan


@pytest.mark.parametrize("name", ["PREREG.md", "notes.txt"])
def test_a_folder_that_holds_something_is_refused(tmp_path: Path, name: str) -> None:
    """A new study gets a new folder, and what is there stays."""
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(UsageError, match="is not empty"):
        write_template(tmp_path)
    assert files_of(tmp_path) == {name: b"mine"}


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    """A file in the folder's place is one line of error."""
    (tmp_path / "mine").write_bytes(b"")
    with pytest.raises(UsageError, match="a registration cannot be written here: File exists"):
        write_template(tmp_path / "mine")


def test_lock_follows_the_plan_until_it_is_committed(folder: Path) -> None:
    """Before the commit an edited plan.toml is resolved anew; twice the same is no change."""
    write_resolved(folder)
    first = (folder / "plan.json").read_bytes()
    write_resolved(folder)
    assert (folder / "plan.json").read_bytes() == first
    toml = folder / "plan.toml"
    toml.write_text(toml.read_text().replace("steps = 32", "steps = 16"))
    write_resolved(folder)
    assert json.loads((folder / "plan.json").read_bytes())["steps"] == 16


def test_lock_never_changes_a_committed_registration(folder: Path) -> None:
    """What is committed is locked: the same plan is accepted, another one refused, and nothing is written."""
    write_resolved(folder)
    commit(folder)
    before = files_of(folder)
    write_resolved(folder)
    assert files_of(folder) == before
    toml = folder / "plan.toml"
    toml.write_text(toml.read_text().replace("steps = 32", "steps = 16"))
    with pytest.raises(UsageError, match=r"is committed, and plan\.json would change"):
        write_resolved(folder)
    assert (folder / "plan.json").read_bytes() == before["plan.json"]


def test_a_template_that_was_committed_without_its_plan_gets_none_afterwards(folder: Path) -> None:
    """A registration is committed as a whole, or a new one is begun."""
    commit(folder)
    with pytest.raises(UsageError, match="is committed"):
        write_resolved(folder)
    assert sorted(files_of(folder)) == FILES


def test_lock_names_what_is_wrong_with_the_plan(folder: Path) -> None:
    """A missing file, or a field that a plan does not have, is an error of the plan, and nothing is written."""
    toml = folder / "plan.toml"
    toml.write_text("colour = 1\n" + toml.read_text())
    with pytest.raises(PlanError, match=r"plan\.toml: colour"):
        write_resolved(folder)
    toml.unlink()
    with pytest.raises(PlanError, match=r"plan\.toml"):
        write_resolved(folder)
    assert not (folder / "plan.json").exists()


def test_a_plan_that_cannot_be_written_is_named(folder: Path) -> None:
    """A folder in its place is one line of error."""
    (folder / "plan.json").mkdir()
    with pytest.raises(UsageError, match=r"plan\.json: cannot be written: Is a directory"):
        write_resolved(folder)
