"""An exported copy is verified as it stands: what is here is checked, what is not is counted, and no list can lie."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.capture import capture
from audit.cli import _run as run_command_line
from audit.export import export_digests
from audit.prereg.choose import chosen_order
from audit.record import Invoke
from audit.store import Run
from audit.stream import canonical, digest
from tests.integration.auditing import JSON, Owner, compared, fake_of, judge, target, verify
from tests.integration.registering import PLAN, register

MORE = """
[prompts.story]
text = "{block} is the number on the door of the archive; behind it lie the letters of a family that moved every year"

[[conditions]]
name = "concurrent_greedy"
prompts = ["a"]
levels = [2]
again = 1

[[conditions]]
name = "cache"
prompts = ["story"]
opener = "b"

[[conditions]]
name = "prefill_vs_decode"
prompts = ["a"]

[[conditions]]
name = "restart"
prompts = ["a"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sealed run of a registration against an owned fake, judged by both programs."""
    root = tmp_path_factory.mktemp("export")
    order = chosen_order(register(root / "prereg" / "tiny", plan=PLAN + MORE))
    with fake_of() as fake:
        asyncio.run(capture(order, [target(fake.url, owned=Owner(fake))], root / "run", report=lambda _: None))
    assert judge(root / "run").document["sound"] is True
    return root / "run"


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Return a fresh copy."""
    export_digests(folder, tmp_path / "copy")
    return tmp_path / "copy"


def omitted_of(copy: Path) -> dict[str, JSON]:
    """Return what omitted.json holds."""
    return dict(json.loads((copy / "omitted.json").read_bytes()))


def test_the_verifier_accepts_a_copy_and_counts_what_it_cannot_check(copy: Path) -> None:
    """Exit 0, nothing contradicts, and each file that is left out stands in one of the counts."""
    code, report = verify(copy)
    assert (code, report["contradictions"]) == (0, [])
    left_out = Counter(path.split("/")[0] for path in omitted_of(copy)["files"])
    assert {"streams", "rows", "facts", "registration", "plan.json"} == set(left_out)
    counted = {what: count for what, count in report["unchecked"].items() if what.startswith("files left out")}
    assert counted == {f"files left out, {name}": count for name, count in left_out.items()}
    invokes = sum(isinstance(line, Invoke) for line in Run.open(copy).lines())
    assert report["unchecked"]["requests"] == invokes
    assert report["unchecked"]["prompts"] > 0


def test_a_copy_is_judged_as_its_run_is(folder: Path, copy: Path) -> None:
    """Cells, waves and predictions are the same but for what needs streams; checks of streams are incomplete."""
    whole, found = (verify(one)[1]["findings"] for one in (folder, copy))
    without = [{**cell, "witness": None} for cell in compared(whole)["cells"]]
    assert [{**cell, "witness": None} for cell in compared(found)["cells"]] == without
    assert [cell["witness"] for cell in found["cells"]] == [None] * len(without)
    assert (found["waves"], found["predictions"]) == (whole["waves"], whole["predictions"])
    assert [entry["status"] for entry in found["predictions"]] == ["holds"]
    statuses = {entry["check"]: entry["status"] for entry in found["instrument"]}
    assert {check for check, status in statuses.items() if status == "held"} == {
        "control_prompt",
        "control_seed",
        "control_temperature",
        "canary",
    }
    assert set(statuses.values()) == {"held", "incomplete"}


def test_a_copy_of_a_run_that_was_never_reported_is_verified_too(folder: Path, tmp_path: Path) -> None:
    """Derived files are no part of the evidence."""
    shutil.copytree(folder, tmp_path / "run")
    for name in ("findings.json", "cells.csv", "DERIVED.SHA256SUMS"):
        (tmp_path / "run" / name).unlink()
    export_digests(tmp_path / "run", tmp_path / "copy")
    assert verify(tmp_path / "copy")[0] == 0


def test_the_deposited_digest_is_that_of_the_copy(folder: Path, copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The seal is the same file, so that a deposit speaks of both."""
    assert (run_command_line(["seal", str(folder)]), run_command_line(["seal", str(copy)])) == (0, 0)
    first, second = capfd.readouterr().out.splitlines()
    assert first == second == Run.open(folder).seal


def test_the_verb_says_how_many_files_are_left_out(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The folder on stdout, the rest on stderr; a second time, or an unsealed run, is one line of error."""
    copy = tmp_path / "copy"
    assert run_command_line(["export", str(folder), "--digests", str(copy)]) == 0
    out, err = capfd.readouterr()
    assert out == f"{copy}\n"
    assert err.splitlines()[0] == f"{len(omitted_of(copy)['files'])} files are left out, listed in omitted.json"
    assert run_command_line(["export", str(folder), "--digests", str(copy)]) == 2
    assert capfd.readouterr().err.startswith(f"error: {copy}: the copy cannot be written: File exists")
    shutil.copytree(folder, tmp_path / "unsealed")
    (tmp_path / "unsealed" / "SHA256SUMS").unlink()
    assert run_command_line(["export", str(tmp_path / "unsealed"), "--digests", str(tmp_path / "other")]) == 2
    assert "is unsealed" in capfd.readouterr().err


def first(files: dict[str, str], prefix: str) -> str:
    """Return the first path of a store."""
    return next(path for path in sorted(files) if path.startswith(prefix))


def change_a_digest(listed: dict[str, Any]) -> None:
    """Say another digest than the sealed one."""
    listed["files"][first(listed["files"], "streams/")] = "sha256:" + "0" * 64


def forget_a_file(listed: dict[str, Any]) -> None:
    """Leave a file out and say nothing of it."""
    del listed["files"][first(listed["files"], "rows/")]


def list_what_was_never_sealed(listed: dict[str, Any]) -> None:
    """Name a stream that the seal does not."""
    listed["files"][f"streams/{'0' * 64}.jsonl"] = "sha256:" + "0" * 64


def leave_the_plan_out(listed: dict[str, Any]) -> None:
    """Put no plan in the place of plan.json."""
    del listed["plan"]


def plan_another_order(listed: dict[str, Any]) -> None:
    """Plan one repeat more than was sent."""
    listed["plan"]["conditions"][0]["count"] += 1


def plan_other_steps(listed: dict[str, Any]) -> None:
    """Plan fewer steps than the replies have."""
    listed["plan"]["steps"] -= 1


def add_a_field(listed: dict[str, Any]) -> None:
    """Say something that the format does not know."""
    listed["note"] = "all is well"


@pytest.mark.parametrize(
    "edit",
    [
        change_a_digest,
        forget_a_file,
        list_what_was_never_sealed,
        leave_the_plan_out,
        plan_another_order,
        plan_other_steps,
        add_a_field,
    ],
)
def test_a_list_that_lies_is_refused(copy: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Exit 4 with the check that found it."""
    listed = omitted_of(copy)
    edit(listed)
    (copy / "omitted.json").write_bytes(canonical(listed))
    code, report = verify(copy)
    assert code == 4
    assert report["contradictions"]


def test_a_file_that_is_listed_and_here_is_refused(folder: Path, copy: Path) -> None:
    """A copy leaves a file out or holds it."""
    path = first(omitted_of(copy)["files"], "rows/")
    (copy / path).parent.mkdir()
    shutil.copyfile(folder / path, copy / path)
    assert verify(copy)[0] == 4


@pytest.mark.parametrize(("name", "code"), [("history.jsonl", 4), ("manifest.json", 2)])
def test_what_holds_the_verdicts_cannot_be_left_out(copy: Path, name: str, code: int) -> None:
    """Without its history a copy contradicts its seal, and without its manifest it is no run."""
    listed = omitted_of(copy)
    listed["files"][name] = digest((copy / name).read_bytes())
    (copy / name).unlink()
    (copy / "omitted.json").write_bytes(canonical(listed))
    assert verify(copy)[0] == code
