"""A copy of a run shows no prompt, token id or stream, and keeps manifest, history and seal as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.export import export_digests
from audit.plan import Plan
from audit.store import Run, write_derived
from tests.unit.make_run import Made
from tests.unit.toy_plan import Trial, canonical, plan, sha

FAILED = "repeat_greedy/a/1"
BODY = b"what the server said instead, quoting a prompt"
FAILURE = {"kind": "status", "message": "HTTP 500", "body": "sha256:" + sha(BODY)}
HIDDEN = {"plan.json", "registration/plan.json", "registration/plan.toml"}


def fail(trial: Trial) -> dict[str, Any] | None:
    """Let one trial fail."""
    return FAILURE if trial["id"] == FAILED else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a registered run of every family, in which one request failed with a body."""
    made = Made(plan(), fail=fail)
    made.files[f"bodies/{sha(BODY)}"] = BODY
    return made.write(tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def copy(folder: Path) -> Path:
    """Return its copy."""
    export_digests(folder, folder.parent / "copy")
    return folder.parent / "copy"


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its path."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def facts_of(folder: Path) -> dict[str, Any]:
    """Return the facts of a folder by path."""
    return {path: json.loads(data) for path, data in files_of(folder).items() if path.startswith("facts/")}


def secrets_of(folder: Path) -> set[bytes]:
    """Return what no copy may show: words of prompts and runs of token ids, as JSON and as a grammar writes them."""
    lists, found = [], set()
    for fact in facts_of(folder).values():
        if "ids" in fact and "text" in fact:
            lists.append(fact["ids"])
            found.add(json.dumps(fact["text"])[1:-1].encode())
    streams = [path.read_bytes().splitlines()[1:] for path in (folder / "streams").iterdir()]
    lists += [[json.loads(line)[0] for line in steps] for steps in streams]
    for ids in lists:
        if len(ids) > 3:
            found |= {",".join(map(str, ids)).encode(), " ".join(f"<[{token}]>" for token in ids).encode()}
    for prompt in plan()["prompts"].values():
        words = [prompt["text"], *(turn["content"] for turn in prompt["chat"] or [])]
        found |= {json.dumps(word)[1:-1].replace("{block} ", "").encode() for word in words if word}
    return found


def test_what_the_copy_holds_is_the_same_bytes(folder: Path, copy: Path) -> None:
    """Manifest, history, seal, the registered words and all facts that show no prompt are those of the run."""
    original, copied = files_of(folder), files_of(copy)
    assert set(copied) - set(original) == {"omitted.json"}
    assert {path: data for path, data in copied.items() if path != "omitted.json"} == {
        path: original[path] for path in copied if path != "omitted.json"
    }
    assert {"manifest.json", "history.jsonl", "SHA256SUMS"} <= set(copied)
    assert {"registration/PREREG.md", "registration/predictions.json"} <= set(copied)


def test_the_list_names_exactly_what_is_missing(folder: Path, copy: Path, tmp_path: Path) -> None:
    """Every sealed file is here or listed with its sealed digest, and the count is returned."""
    listed = json.loads((copy / "omitted.json").read_bytes())
    sealed = {path: f"sha256:{digest}" for digest, path in
              (line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines())}  # fmt: skip
    here = files_of(copy)
    assert listed["format"] == 1
    assert listed["files"] == {path: digest for path, digest in sealed.items() if path not in here}
    assert (copy / "omitted.json").read_bytes() == canonical(listed)
    assert export_digests(folder, tmp_path / "again") == len(listed["files"])
    assert files_of(tmp_path / "again") == here


def test_no_stream_row_or_body_is_in_the_copy(folder: Path, copy: Path) -> None:
    """Three stores are left out whole, and so are the files that hold the plan's words."""
    left_out = set(json.loads((copy / "omitted.json").read_bytes())["files"])
    stores = {path for path in files_of(folder) if path.startswith(("streams/", "rows/", "bodies/"))}
    assert stores
    assert f"bodies/{sha(BODY)}" in stores
    assert stores | HIDDEN <= left_out
    assert {path for path in left_out - stores - HIDDEN if not path.startswith("facts/")} == set()


def test_no_word_and_no_list_of_ids_is_in_the_copy(folder: Path, copy: Path) -> None:
    """Neither prompts nor streams can be read from any file, nor from the grammar that a server repeated."""
    secrets = secrets_of(folder)
    whole = b"".join(files_of(folder).values())
    found = [secret for secret in secrets if secret in whole]
    assert len(found) > 10
    assert any(secret.startswith(b"<[") for secret in found)
    shown = {(path, secret) for path, data in files_of(copy).items() for secret in secrets if secret in data}
    assert shown == set()


def test_facts_that_show_no_prompt_stay(folder: Path, copy: Path) -> None:
    """Settings, properties and declarations are kept; frozen prompts, requests and echoed grammars are not."""
    gone = {path: fact for path, fact in facts_of(folder).items() if path not in facts_of(copy)}
    kinds = {"ids" if "ids" in fact else "prompt" if "prompt" in fact else "grammar" for fact in gone.values()}
    assert kinds == {"ids", "prompt", "grammar"}
    assert all(fact["grammar"] for fact in gone.values() if not {"ids", "prompt"} & set(fact))
    kept = facts_of(copy).values()
    assert {"argv": []} in kept
    assert any(fact.get("total_slots") == 8 for fact in kept)
    assert any(fact.get("speculative.types") == "none" for fact in kept)


def test_the_plan_without_words_unfolds_as_the_plan_does(folder: Path, copy: Path) -> None:
    """Blocks, order, seeds and prompt keys are the same, so that a reader can still follow the history."""
    bare = Plan.parse(json.loads((copy / "omitted.json").read_bytes())["plan"])
    run = Run.open(folder)
    registered = run.manifest.registered
    blocks = run.plan.unfold(registered)
    assert bare.unfold(registered) == blocks
    trials = [(trial, block.block) for block in blocks for unit in block.units for trial in unit.trials]
    assert [bare.prompt_key(*one) for one in trials] == [run.plan.prompt_key(*one) for one in trials]
    assert {prompt.text for prompt in bare.prompts.values()} == {"", "{registered}", "{block}"}


def test_derived_files_are_copied_with_a_list_of_their_own(folder: Path, tmp_path: Path) -> None:
    """Findings and cells go along; any other derived file stays behind, and without any there is no list."""
    run = Made(plan([{"name": "repeat_greedy"}])).write(tmp_path / "run")
    export_digests(run, tmp_path / "bare")
    assert not (tmp_path / "bare" / "DERIVED.SHA256SUMS").exists()
    write_derived(run, {"findings.json": b"{}\n", "cells.csv": b"server\n", "trials.csv": b"trial\n"})
    export_digests(run, tmp_path / "copy")
    listed = (tmp_path / "copy" / "DERIVED.SHA256SUMS").read_text().splitlines()
    assert listed == [f"{sha(b'server' + bytes([10]))}  cells.csv", f"{sha(b'{}' + bytes([10]))}  findings.json"]
    assert (tmp_path / "copy" / "findings.json").read_bytes() == b"{}\n"
    assert not (tmp_path / "copy" / "trials.csv").exists()


def test_an_unsealed_run_is_not_exported(tmp_path: Path) -> None:
    """It is no evidence, and no folder is made."""
    run = Made(plan([{"name": "repeat_greedy"}])).write(tmp_path / "run", sealed=False)
    with pytest.raises(UsageError, match="is unsealed: its run did not end"):
        export_digests(run, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("what", ["a folder", "an empty folder", "a file"])
def test_what_is_there_already_is_not_touched(folder: Path, tmp_path: Path, what: str) -> None:
    """A copy gets a folder of its own."""
    target = tmp_path / "copy"
    if what == "a file":
        target.write_bytes(b"mine")
    else:
        target.mkdir()
    if what == "a folder":
        (target / "manifest.json").write_bytes(b"mine")
    before = files_of(tmp_path)
    with pytest.raises(UsageError, match="the copy cannot be written: File exists"):
        export_digests(folder, target)
    assert files_of(tmp_path) == before


def test_a_copy_is_not_exported_again(copy: Path, tmp_path: Path) -> None:
    """What it leaves out cannot be looked at, so that it could not be said what has to go."""
    with pytest.raises(UsageError, match="is a copy that leaves files out"):
        export_digests(copy, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
