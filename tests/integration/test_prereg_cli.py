"""`determinism prereg` from the first template to the commit, and what a run says of the registration that it had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from audit.prereg import load_registration
from tests.integration.auditing import fake_of, verify
from tests.integration.commands import Command
from tests.integration.registering import commit, git, register, repository


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one commit and no registration."""
    (repository(tmp_path / "repository") / "README.md").write_text("a study\n")
    commit(tmp_path / "repository", "begin")
    return tmp_path / "repository"


def test_a_new_registration_can_be_locked_and_committed(command: Command, root: Path) -> None:
    """The template's files on stdout, then the digest alone, then a commit, and status says that it is registered."""
    folder = root / "prereg" / "mine"
    written = command("prereg", "new", folder)
    assert (written.code, written.out.split()) == (
        0,
        [str(folder / name) for name in ("PREREG.md", "plan.toml", "predictions.json")],
    )
    assert f"determinism prereg lock {folder}" in written.err
    locked = command("prereg", "lock", folder)
    assert (locked.code, locked.out) == (0, f"{load_registration(folder).digest}\n")
    assert "before the first run" in locked.err
    assert command("prereg", "status", folder).code == 3
    first = commit(root)
    done = command("prereg", "status", folder)
    assert (done.code, done.err) == (0, "")
    assert dict(line.split(maxsplit=1) for line in done.out.splitlines()) == {
        "name": "mine",
        "status": "registered",
        "commit": first,
        "digest": locked.out.strip(),
        "predictions": "['P1']",
    }


def status(command: Command, folder: Path) -> tuple[int, str, str | None]:
    """Return the exit code of status, the word and the commit."""
    done = command("prereg", "status", folder, "--json")
    assert done.err == ""
    found = json.loads(done.out)
    assert found["digest"] == load_registration(folder).digest
    return done.code, found["status"], found["commit"]


def test_status_follows_the_history_of_the_folder(command: Command, root: Path) -> None:
    """Uncommitted, registered, registered after other work, changed by an edit, and back again."""
    folder = register(root / "prereg" / "tiny")
    assert status(command, folder) == (3, "uncommitted", None)
    first = commit(root)
    assert status(command, folder) == (0, "registered", first)
    (root / "README.md").write_text("later work\n")
    commit(root, "other")
    assert status(command, folder) == (0, "registered", first)
    (folder / "PREREG.md").write_text("# tiny, after all\n")
    assert status(command, folder) == (3, "changed", first)
    git(root, "checkout", "-q", "--", "prereg")
    assert status(command, folder) == (0, "registered", first)


def test_a_second_commit_to_the_folder_is_a_change(command: Command, root: Path) -> None:
    """Even one that restores every byte: whoever may commit twice may commit after the run."""
    folder = register(root / "prereg" / "tiny")
    commit(root)
    original = (folder / "PREREG.md").read_bytes()
    (folder / "PREREG.md").write_text("# tiny, after all\n")
    second = commit(root, "second")
    assert status(command, folder) == (3, "changed", second)
    (folder / "PREREG.md").write_bytes(original)
    assert status(command, folder) == (3, "changed", second)
    third = commit(root, "third")
    assert status(command, folder) == (3, "changed", third)


def test_a_file_beside_the_four_is_a_second_commit_too(command: Command, root: Path) -> None:
    """A registration's folder is committed once."""
    folder = register(root / "prereg" / "tiny")
    commit(root)
    (folder / "notes.md").write_text("thoughts\n")
    notes = commit(root, "notes")
    assert status(command, folder) == (3, "changed", notes)


def test_lock_refuses_to_change_what_is_committed(command: Command, root: Path) -> None:
    """The digest is printed as often as one asks; another plan is one line of error, and plan.json stays."""
    folder = register(root / "prereg" / "tiny")
    commit(root)
    digest, plan = load_registration(folder).digest, (folder / "plan.json").read_bytes()
    assert command("prereg", "lock", folder)[:2] == (0, f"{digest}\n")
    toml = folder / "plan.toml"
    toml.write_text(toml.read_text().replace("count = 2", "count = 3"))
    refused = command("prereg", "lock", folder)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f"error: {folder} is committed, and plan.json would change\n  a new study gets a new folder\n"
    assert (folder / "plan.json").read_bytes() == plan
    stale = command("prereg", "status", folder)
    assert (stale.code, stale.out) == (2, "")
    assert "plan.json is not what plan.toml resolves to" in stale.err


@pytest.mark.parametrize("verb", ["lock", "status"])
def test_a_folder_that_is_no_registration_is_one_line(command: Command, tmp_path: Path, verb: str) -> None:
    """What is missing is named; nothing is on stdout."""
    done = command("prereg", verb, tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert str(tmp_path) in done.err.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


def test_new_does_not_write_over_anything(command: Command, root: Path) -> None:
    """A folder that holds something is refused."""
    folder = register(root / "prereg" / "tiny")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = command("prereg", "new", folder)
    assert (done.code, done.out) == (2, "")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_only_a_run_of_a_registered_plan_is_no_exploration(command: Command, root: Path, tmp_path: Path) -> None:
    """Uncommitted, registered, changed: the run says which it was, keeps the four files, and still answers."""
    folder = register(root / "prereg" / "tiny")
    found = {}
    with fake_of(step_ms=0.0) as fake:
        for name in ("uncommitted", "registered", "changed"):
            if name == "registered":
                commit(root)
            if name == "changed":
                (folder / "PREREG.md").write_text("# tiny, after all\n")
            out = tmp_path / name
            assert command("run", "--server", f"s={fake.url}", "--plan", folder, "--out", out).code == 0
            files = {path.name: path.read_bytes() for path in folder.iterdir()}
            assert {path.name: path.read_bytes() for path in (out / "registration").iterdir()} == files
            done = command("report", out, "--json")
            found[name] = json.loads(done.out)
            assert done.code == 0
    assert {name: findings["exploratory"] for name, findings in found.items()} == {
        "uncommitted": "uncommitted",
        "registered": None,
        "changed": "changed",
    }
    assert {entry["status"] for findings in found.values() for entry in findings["predictions"]} == {"holds"}
    assert command("report", tmp_path / "changed").out.splitlines()[-1].endswith("; exploratory: changed")
    assert "exploratory" not in command("report", tmp_path / "registered").out
    for name in found:
        code, report = verify(tmp_path / name)
        assert (code, report["findings"]["exploratory"]) == (0, found[name]["exploratory"])


@pytest.mark.parametrize("kind", ["audit", "identity", "accuracy"])
def test_every_kind_of_study_can_be_locked(command: Command, tmp_path: Path, kind: str) -> None:
    """plan.json of each published registration is made again from its plan.toml, to the byte."""
    published = Path(__file__).parents[2] / "prereg" / kind
    folder = tmp_path / kind
    shutil.copytree(published, folder)
    (folder / "plan.json").unlink()
    locked = command("prereg", "lock", folder)
    assert (locked.code, locked.out.startswith("sha256:")) == (0, True), locked.err
    assert (folder / "plan.json").read_bytes() == (published / "plan.json").read_bytes()
    status = json.loads(command("prereg", "status", folder, "--json").out)
    named = json.loads((folder / "predictions.json").read_bytes())["predictions"]
    assert status["predictions"] == [one["id"] for one in named]


def test_a_study_of_an_unknown_kind_is_refused_by_name(command: Command, tmp_path: Path) -> None:
    """The kinds that there are stand in the next line."""
    folder = register(tmp_path / "tiny")
    (folder / "predictions.json").write_text('{"format":1,"kind":"mood","predictions":[]}')
    refused = command("prereg", "lock", folder)
    assert (refused.code, refused.out) == (2, "")
    assert "of kind 'mood', which cannot be registered\n  there are audit, identity, accuracy" in refused.err
