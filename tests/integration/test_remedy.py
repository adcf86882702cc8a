"""A remedy on look-alikes whose faults respond to settings: what helps, what only serializes, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.cli import _run as run_command_line
from audit.cli.remedy import perform
from audit.derived import files_of
from audit.export import export_digests
from audit.remedy.catalogue import named
from audit.remedy.measure import measure
from audit.remedy.page import derive_remedy
from audit.remedy.text import remedy_text
from audit.stream import canonical, digest
from tests.integration.auditing import verify
from tests.integration.remedying import FakeLauncher, Remedied, measured, remedy_plan

JSON = Any
SLOW = {"step_ms": 12.0}  # windows long enough to overlap on a machine that others use too
WAVE = "concurrent_greedy_c4"
CACHES = ("cache_warm1", "cache_warm2")


def one_helps(names: frozenset[str]) -> dict[str, JSON]:
    """Let no-repack cure batches and np-1 serialize; nothing cures the cache, and kvu cures nothing."""
    if "np-1" in names:
        return {**SLOW, "jitter_cached": True, "serialized": True}
    return {**SLOW, "jitter_cached": True, "jitter_concurrent": "no-repack" not in names}


def both_help(names: frozenset[str]) -> dict[str, JSON]:
    """Let only fa-off and kvu together cure batches."""
    return {**SLOW, "jitter_concurrent": not {"fa-off", "kvu"} <= names}


def only_waves(waves: int = 2, **more: JSON) -> Any:  # noqa: ANN401 - a RemedyPlan
    """Return a plan of nothing but waves of equal requests."""
    plan = remedy_plan(waves=waves, **more)
    kept = [entry for entry in plan.confirm.conditions if not entry.name.startswith(("cache", "cross"))]
    return type(plan).of(plan.confirm.model_copy(update={"conditions": kept}), rounds=1, confirmed_max=3)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Remedied:
    """A remedy in which one setting helps, one serializes, one does nothing, and three cannot be tried."""
    return measured(
        tmp_path_factory.mktemp("remedy") / "run", one_helps, "no-repack", "np-1", "swa-full", "no-kvu", "t-1",
        unknown=frozenset({"swa-full"}), same=frozenset({"no-kvu"}), broken=frozenset({"t-1"}),
    )  # fmt: skip


def test_the_setting_that_helps_is_confirmed_between_two_starts_without_it(found: Remedied) -> None:
    """A-B-A: the same waves diverge before and after, and none with it; the bound counts the waves."""
    roles = [(arm["role"], arm["setting"]) for arm in found.document["arms"]]
    at = roles.index(("confirm", "no-repack"))
    assert roles[0] == ("before", "")
    assert roles[at + 1] == ("after", "")
    (cell,) = (cell for cell in found.document["settings"][0]["cells"] if cell["condition"] == WAVE)
    assert cell["status"] == "remedy"
    assert (cell["before"]["divergent"], cell["by_wave"]["divergent"], cell["after"]["divergent"]) == (2, 0, 2)
    assert cell["by_wave"] == {"divergent": 0, "n": 2, "low": 0.0, "high": 0.776394}


def test_a_setting_that_only_serializes_is_told_apart(found: Remedied) -> None:
    """One request at a time is identical to itself, which says nothing about batches."""
    assert found.statuses("np-1") == dict.fromkeys([WAVE, "cross_batch_together"], "serialized") | dict.fromkeys(
        CACHES, "diverges"
    )


def test_the_guilty_factor_is_the_one_setting_that_switches_it(found: Remedied) -> None:
    """Batches have a factor, the cache has none."""
    assert found.condition(WAVE)["factor"] == "no-repack"
    assert [found.condition(name)["factor"] for name in CACHES] == [None, None]


def test_the_table_is_best_first_and_says_what_was_not_tried(found: Remedied) -> None:
    """One row is best; what is unknown, the same, or does not start is listed with its reason."""
    rows = found.document["settings"]
    assert [row["setting"] for row in rows if row["pareto"]] == [rows[0]["setting"]] == ["no-repack"]
    assert {one["setting"]: one["reason"] for one in found.document["untried"]} == {
        "swa-full": "unknown flag", "no-kvu": "as without it",
    }  # fmt: skip
    assert [one["setting"] for one in found.document["failed"]] == ["t-1"]
    text = remedy_text(found.document)
    assert "llama-server -m fake --no-repack" in text
    assert "failed: t-1" in text


def test_speed_and_memory_are_those_of_the_records(found: Remedied) -> None:
    """Tokens a second follow from recorded times, memory is the largest of any start that proves something."""
    row = next(row for row in found.document["settings"] if row["setting"] == "no-repack")
    confirm = next(arm for arm in found.document["arms"] if (arm["role"], arm["setting"]) == ("confirm", "no-repack"))
    assert row["together"] == confirm["together"]
    assert row["together"]["tokens"] == 2 * 4 * 12
    assert row["memory_bytes"] == 101 << 20
    assert found.document["without"]["memory_bytes"] == 100 << 20


def test_every_start_is_an_audit_of_its_own(found: Remedied) -> None:
    """The audit's verifier takes each arm by itself, sealed as the history says."""
    arm = found.document["arms"][0]["arm"]
    code, report = verify(found.folder / "arms" / arm)
    assert (code, report["contradictions"]) == (0, [])
    lines = [json.loads(line) for line in (found.folder / "history.jsonl").read_bytes().splitlines()]
    assert report["seal"] == next(line["seal"] for line in lines if line.get("arm") == arm)


def test_a_pair_is_tried_where_no_single_setting_helps(tmp_path: Path) -> None:
    """Both together are the factor; either alone diverges."""
    seen = measured(tmp_path / "run", both_help, "fa-off", "kvu", plan=only_waves())
    assert seen.condition(WAVE)["factor"] == "fa-off + kvu"
    assert [seen.statuses(name)[WAVE] for name in ("fa-off", "kvu")] == ["diverges", "diverges"]


def test_a_divergence_that_does_not_come_back_remedies_nothing(tmp_path: Path) -> None:
    """Without A after B the change may have had another cause."""
    starts: list[frozenset[str]] = []

    def wanes(names: frozenset[str]) -> dict[str, JSON]:
        starts.append(names)
        return {**SLOW, "jitter_concurrent": len(starts) == 1}

    seen = measured(tmp_path / "run", wanes, "no-repack", plan=only_waves())
    assert seen.statuses("no-repack")[WAVE] == "not reproduced"
    assert seen.condition(WAVE)["remedies"] == []


def test_where_nothing_diverges_nothing_is_tried(tmp_path: Path) -> None:
    """There is nothing to remedy, which is a sound answer."""
    seen = measured(tmp_path / "run", lambda _: dict(SLOW), "no-repack", plan=only_waves())
    assert [arm["role"] for arm in seen.document["arms"]] == ["before"]
    assert seen.document["settings"] == []
    assert seen.document["sound"]


def test_what_the_time_does_not_allow_is_listed(tmp_path: Path) -> None:
    """With no time left the start without settings is all there is."""
    seen = measured(tmp_path / "run", one_helps, "no-repack", "np-1", plan=only_waves(), budget_s=0.0)
    assert [(one["setting"], one["reason"]) for one in seen.document["untried"]] == [
        ("no-repack", "time"), ("np-1", "time"),
    ]  # fmt: skip


def relink(folder: Path, edit: Callable[[list[JSON]], None]) -> None:
    """Edit the history of a remedy, link it again and seal it again: what an owner of the folder could forge."""
    path = folder / "history.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    edit(lines)
    prev = digest((folder / "manifest.json").read_bytes())
    parts = []
    for number, line in enumerate(lines):
        parts.append(canonical({**line, "n": number, "prev": prev}))
        prev = digest(parts[-1])
    path.write_bytes(b"".join(parts))
    for name in ("DERIVED.SHA256SUMS", "findings.json", "report.html", "report.md", "SHA256SUMS"):
        (folder / name).unlink(missing_ok=True)
    reseal(folder)


def reseal(folder: Path) -> None:
    """Write the list of sums anew."""
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    sums = [f"{digest((folder / name).read_bytes())[7:]}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


def arms_of(lines: list[JSON]) -> list[JSON]:
    """Return the lines of starts."""
    return [line for line in lines if line["line"] == "arm"]


def _other_seal(lines: list[JSON]) -> None:
    arms_of(lines)[1]["seal"] = "sha256:" + "0" * 64


def _bare_confirmed(lines: list[JSON]) -> None:
    arms_of(lines)[0].update(role="confirm")


def _other_words(lines: list[JSON]) -> None:
    arms_of(lines)[1].update(settings=["fa-off"], words=["-fa off"])


def _other_line(lines: list[JSON]) -> None:
    arms_of(lines)[1]["argv"] = ["llama-server", "--no-repack"]


def _screened_as_confirmed(lines: list[JSON]) -> None:
    arms_of(lines)[1]["role"] = "confirm"


def _not_asked(lines: list[JSON]) -> None:
    arms_of(lines)[1]["asked"] = arms_of(lines)[1]["asked"][:1]


def _start_dropped(lines: list[JSON]) -> None:
    lines.remove(arms_of(lines)[-1])


@pytest.mark.parametrize(
    "edit",
    [_other_seal, _bare_confirmed, _other_words, _other_line, _screened_as_confirmed, _not_asked, _start_dropped],
)
def test_a_forged_history_is_refused(found: Remedied, tmp_path: Path, edit: Callable[[list[JSON]], None]) -> None:
    """Linked and sealed again it still contradicts the audits that it names."""
    shutil.copytree(found.folder, tmp_path / "run")
    relink(tmp_path / "run", edit)
    code, report = verify(tmp_path / "run")
    assert code == 4, report["sentence"]
    assert {one["check"] for one in report["contradictions"]} & {"starts", "store"}


def test_an_arm_whose_reply_was_edited_is_refused(found: Remedied, tmp_path: Path) -> None:
    """A moved stream turned into the baseline's, sealed again inside and outside, contradicts its own store."""
    folder = tmp_path / "run"
    shutil.copytree(found.folder, folder)
    arm = folder / "arms" / found.document["arms"][0]["arm"]
    lines = [json.loads(line) for line in (arm / "history.jsonl").read_bytes().splitlines()]
    base = next(x["reply"] for x in lines if x["line"] == "complete" and x["trial"] == "baseline/greedy/a")
    for line in lines:
        if line["line"] == "complete" and line["trial"].startswith("concurrent"):
            line["reply"].update(logprob=base["logprob"], token=base["token"])
    prev, parts = digest((arm / "manifest.json").read_bytes()), []
    for line in lines:
        parts.append(canonical({**line, "prev": prev}))
        prev = digest(parts[-1])
    (arm / "history.jsonl").write_bytes(b"".join(parts))
    reseal(arm)
    seal = digest((arm / "SHA256SUMS").read_bytes())
    relink(folder, lambda outer: arms_of(outer)[0].update(seal=seal))
    code, report = verify(folder)
    assert code == 4
    assert "store" in {one["check"] for one in report["contradictions"]}


@pytest.mark.parametrize("change", [{"pareto": False}, {"remedied": 4}, {"memory_bytes": 1}])
def test_findings_that_say_something_else_are_refused(found: Remedied, tmp_path: Path, change: dict[str, JSON]) -> None:
    """The table is computed again from the starts."""
    folder = tmp_path / "run"
    shutil.copytree(found.folder, folder)
    document = json.loads((folder / "findings.json").read_bytes())
    document["settings"][0] |= change
    (folder / "findings.json").write_bytes(canonical(document))
    sums = (folder / "DERIVED.SHA256SUMS").read_text().splitlines()
    named = [f"{digest((folder / line[66:]).read_bytes())[7:]}  {line[66:]}\n" for line in sums]
    (folder / "DERIVED.SHA256SUMS").write_text("".join(named))
    code, report = verify(folder)
    assert code == 4
    assert {one["check"] for one in report["contradictions"]} == {"findings"}


def test_a_copy_without_rows_is_still_judged(found: Remedied, tmp_path: Path) -> None:
    """An export leaves the rows of every start out, and the verifier finds the same."""
    assert export_digests(found.folder, tmp_path / "copy") >= len(found.document["arms"])
    assert not list((tmp_path / "copy").rglob("*.f32"))
    code, report = verify(tmp_path / "copy")
    assert (code, report["contradictions"]) == (0, [])
    assert report["findings"] == found.document
    assert derive_remedy(tmp_path / "copy") == found.document
    assert verify(tmp_path / "copy")[0] == 0


def test_a_start_can_be_reported_by_itself(found: Remedied, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is derived there is listed there; a derived file that nobody lists is still refused."""
    shutil.copytree(found.folder, tmp_path / "run")
    arm = tmp_path / "run" / "arms" / found.document["arms"][0]["arm"]
    assert run_command_line(["report", str(arm)]) == 0
    assert "concurrent_greedy_c4" in capsys.readouterr().out
    assert verify(tmp_path / "run")[0] == 0
    (arm / "notes.txt").write_text("a stranger")
    code, report = verify(tmp_path / "run")
    assert (code, report["contradictions"][0]["check"]) == (4, "files")


def test_the_report_is_a_pure_function_of_the_folder(found: Remedied) -> None:
    """Twice the same bytes, in ASCII, with the table, the factor and the exact command line."""
    first, second = files_of(found.folder)[1], files_of(found.folder)[1]
    assert first == second
    for name in ("report.html", "report.md"):
        page = first[name].decode("ascii")
        assert "no-repack" in page
        assert "llama-server -m fake --no-repack" in page
        assert "rate at most 0.776394" in page


def test_the_seal_of_a_record_of_any_kind_is_printed(
    found: Remedied, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what one deposits, whatever the kind."""
    stored = ("2026-11-30-identity-self", "2026-11-30-accuracy-tiny-llama-q4_0")
    for folder in (found.folder, *(repository / "results" / name for name in stored)):
        assert run_command_line(["seal", str(folder)]) == 0
        assert capsys.readouterr().out.strip() == digest((folder / "SHA256SUMS").read_bytes())


def test_an_audit_that_holds_starts_is_refused(found: Remedied, tmp_path: Path) -> None:
    """Only a remedy has folders within."""
    arm = found.folder / "arms" / found.document["arms"][0]["arm"]
    shutil.copytree(arm, tmp_path / "run")
    shutil.copytree(arm, tmp_path / "run" / "arms" / "0000-before")
    reseal(tmp_path / "run")
    code, report = verify(tmp_path / "run")
    assert (code, report["contradictions"][0]["check"]) == (4, "paths")


def test_the_command_measures_reports_and_asserts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 for a sound record, 1 with --assert where a divergence has no remedy; `report` shows the same again."""
    launcher = FakeLauncher(faults=lambda _: {**SLOW, "jitter_concurrent": True})
    assert perform(only_waves(), launcher, tmp_path / "run", names=["kvu"], strict=True) == 1
    shown = capsys.readouterr().out
    assert "no setting that was tried to the end remedies any of them" in shown
    assert run_command_line(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == shown
    assert run_command_line(["report", "--assert", str(tmp_path / "run")]) == 1


def test_a_record_that_was_stopped_is_unsealed(tmp_path: Path) -> None:
    """Nothing is judged, and what is there says so."""
    launcher = FakeLauncher(faults=lambda _: dict(SLOW))
    seal = measure(
        only_waves(), launcher, named(["kvu"]), tmp_path / "run",
        perform=lambda work: work.close(), say=lambda _: None, stopped=lambda: True,
    )  # fmt: skip
    assert seal is None
    code, report = verify(tmp_path / "run")
    assert code == 2
    assert report["sentence"].startswith("unsealed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "tiny-llama-f32", "--setting", "faster"], "no setting is called 'faster'"),
        (["--model", "tiny-llama-f32", "--budget", "soon"], "--budget 'soon' is no time"),
        (["--model", "nothing"], "nothing is neither a model"),
        ([], "no model is named"),
    ],
)
def test_a_wrong_command_says_what_to_change(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 before anything is started."""
    assert run_command_line(["remedy", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_catalogue_is_printed_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a setting, with what it does and costs."""
    assert run_command_line(["remedy", "--list-settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["no-repack", "--no-repack:"]
    assert all("; costs " in line for line in lines)
