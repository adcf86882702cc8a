"""A whole accuracy study over a real socket, and every planted fault is refused or fails as it should."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from audit.accuracy.archive import open_capture
from audit.accuracy.bounds import Bounds
from audit.accuracy.corpus import GROUPS
from audit.accuracy.metrics import COLUMNS
from audit.accuracy.packed import pack
from audit.accuracy.record import AccuracyRun
from audit.accuracy.reproduce import compared, order_of
from audit.accuracy.table import rows_table, write_parquet
from audit.cli import _run as run_command_line
from audit.errors import EvidenceError, UsageError
from audit.fake import reply
from audit.rows import Rows
from scripts.forgery import canonical, examine, load_verifier, sha
from tests.integration.accuracy_study import (
    DECODED,
    MEMBERS,
    MODEL,
    QUANTIZED,
    ROWS,
    VOCABULARY,
    Forged,
    Owner,
    Study,
    begin,
    capture_group,
    whole_study,
)
from tests.integration.commands import Command, Done

JSON = Any
VERIFIER = load_verifier()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One complete study, captured once; tests copy what they change."""
    return whole_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def checked(study: Study) -> Path:
    """The sealed check of the study with its findings, made once; tests copy what they change."""
    out = study.root / "check"
    words = ["--bounds", study.bounds, "--plan", study.plan, "--out", out]
    assert run_command_line([str(word) for word in ["accuracy", "check", study.corpus, *study.folders, *words]]) == 0
    return out


def check(command: Command, study: Study, out: Path, *more: object, **instead: Path) -> Done:
    """Run `accuracy check`; `server_fresh=PATH` stands in for a folder, `bounds=PATH` for the bounds."""
    bounds = instead.pop("bounds", study.bounds)
    corpus = instead.pop("corpus", study.corpus)
    names = {name.replace("_", "-"): path for name, path in instead.items()}
    folders = [names.pop(folder.name, folder) for folder in study.folders]
    assert not names
    return command("accuracy", "check", corpus, *folders, "--bounds", bounds, "--plan", study.plan, "--out", out, *more)


def verified(folder: Path, *flags: str) -> JSON:
    """What the verifier reports of a folder."""
    return examine(VERIFIER, folder, *flags)


def test_a_whole_study_is_within_its_bounds_and_verified(study: Study, tmp_path: Path, command: Command) -> None:
    """Four groups, both modes, every row counted; the verifier measures all rows again and agrees."""
    done = check(command, study, tmp_path / "check")
    assert done.code == 0, done.err
    assert done.out.startswith("within: 0 of 384 rows beyond their bounds (reported logprobs against reported logprobs")
    report = verified(tmp_path / "check")
    assert (report["exit"], report["contradictions"]) == (0, [])
    assert report["sentence"] == "sound: within: 0 of 384 rows beyond their bounds"
    counts = {one["name"]: one["count"] for one in report["checks"]}
    assert counts["metrics"] >= 8 * MEMBERS * ROWS
    findings = json.loads((tmp_path / "check" / "findings.json").read_bytes())
    assert [cell["rows"] for cell in findings["cells"]] == [MEMBERS * ROWS] * 8
    assert {(cell["group"], cell["mode"]) for cell in findings["cells"]} == {
        (group, mode) for group in GROUPS for mode in ("serial", "batch")
    }
    assert all(one["clear"] for one in findings["coverage"])


def test_every_capture_verifies_by_itself(study: Study) -> None:
    """A capture is a record of its own: requests, chain, rows and seal."""
    for folder in study.folders:
        report = verified(folder)
        assert (report["exit"], report["contradictions"]) == (0, []), folder


def test_batch_rows_are_noisy_and_serial_ones_exact(checked: Path) -> None:
    """The fake moves logits only in batches, and the bounds come from both modes."""
    findings = json.loads((checked / "findings.json").read_bytes())
    largest = {(cell["group"], cell["mode"]): cell["max_abs"] for cell in findings["cells"]}
    assert all((value == 0) == (mode == "serial") for (_, mode), value in largest.items())
    assert findings["bounds"][MODEL]["max_abs"] == 1.5 * largest["original", "batch"]


def test_asking_for_rows_in_turns_records_every_member_once(study: Study) -> None:
    """Each wave holds all members; two of four ask for rows, until each has been recorded."""
    capture = open_capture(study.folder("fresh"))
    asked = [
        (one.unit.unit, one.trial.prompt)
        for one in capture.planned.values()
        if one.trial.condition == "batch" and one.trial.n_probs == "vocabulary"
    ]
    assert asked == [(f"batch/w{slot // 2}", f"fresh-{slot:02}") for slot in range(MEMBERS)]
    assert all(capture.rows("batch", f"fresh-{slot:02}").shape == (ROWS, VOCABULARY) for slot in range(MEMBERS))


# The planted faults. ----------------------------------------------------------------------------------------------


def beyond(folder: Path, out: Path, change: Callable[[np.ndarray[Any, Any]], None]) -> Path:
    """Copy a server's capture and change the serial rows of member 1, as a forger who seals again."""
    forged = Forged(folder)
    reply = forged.of("complete", trial=f"serial/{folder.name.split('-')[1]}-01")[0]["reply"]
    shape = reply["rows"]["shape"]
    path = f"rows/{reply['rows']['file'][7:]}.f32"
    values = np.frombuffer(forged.files.pop(path), dtype="<f4").reshape(shape).copy()
    change(values)
    rows = Rows(values)
    reply["rows"].update(file=forged.store("rows", rows.to_bytes(), ".f32"), digests=list(rows.digests))
    reply["above_zero"], reply["saturated"] = int((values > 0).sum()), int((values == 0).sum())
    return forged.write(out)


def test_one_value_of_one_row_beyond_the_bound_fails(study: Study, tmp_path: Path, command: Command) -> None:
    """One of 512 values of one of 384 rows: exit 1, and the row is named by group, mode, slot and position."""

    def change(values: np.ndarray[Any, Any]) -> None:
        values[5, 77] -= np.float32(1e-3)

    folder = beyond(study.folder("fresh"), tmp_path / "forged", change)
    done = check(command, study, tmp_path / "check", server_fresh=folder)
    assert done.code == 1, done.err
    assert done.out.startswith("beyond: 1 of 384 rows")
    assert f"failed: {MODEL} fresh serial slot 1 position 5: max_abs" in done.out
    report = verified(tmp_path / "check")
    assert (report["exit"], report["contradictions"]) == (0, [])
    assert "beyond: 1 of 384" in report["sentence"]
    assert verified(tmp_path / "check", "--assert")["exit"] == 1


def test_a_lost_clear_winner_fails_a_row(study: Study, tmp_path: Path, command: Command) -> None:
    """Where the reference has a clear winner, another best token fails the row whatever the distance."""
    reference = open_capture(study.folder("fresh", "reference")).rows("serial", "fresh-01")
    best, second = np.argsort(-reference[0], kind="stable")[:2]

    def change(values: np.ndarray[Any, Any]) -> None:
        values[0, best], values[0, second] = values[0, second], values[0, best]

    folder = beyond(study.folder("fresh"), tmp_path / "forged", change)
    done = check(command, study, tmp_path / "check", server_fresh=folder)
    assert done.code == 1, done.err
    assert "position 0: max_abs, relative_l2, total_variation, winner" in done.out


def test_a_swapped_group_is_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """A capture of short that says it is of long sent other requests than corpus and plan dictate."""
    forged = Forged(study.folder("short"))
    forged.of("captured")[0]["group"] = "long"
    forged.lines = json.loads(json.dumps(forged.lines).replace("/short-", "/long-"))
    folder = forged.write(tmp_path / "forged")
    done = check(command, study, tmp_path / "check", server_long=folder)
    assert (done.code, "sent another request than corpus and plan dictate" in done.err) == (4, True), done.err
    assert not (tmp_path / "check").exists()
    assert {one["check"] for one in verified(folder)["contradictions"]} == {"requests"}


def test_a_fresh_member_in_calibration_is_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """Neither a capture of fresh nor a corpus in which a fresh member moved can set bounds."""
    captures = [study.folder("fresh"), study.folder("fresh", "reference")]
    out = tmp_path / "bounds.json"
    done = command("accuracy", "calibrate", study.corpus, *captures, "--plan", study.plan, "--out", out)
    assert (done.code, "has no place here: only original" in done.err) == (2, True), done.err
    corpus = json.loads(study.corpus.read_bytes())
    moved = next(one for one in corpus["sequences"] if one["id"] == "fresh-02")
    place = next(one for one in corpus["sequences"] if one["id"] == "original-02")
    for key in ("prefill", "teacher"):
        place[key] = moved[key]
    changed = tmp_path / "corpus.json"
    changed.write_bytes(canonical(corpus))
    done = check(command, study, tmp_path / "check", corpus=changed)
    assert (done.code, "original-02" in done.err) == (2, True), done.err
    assert not out.exists()
    assert not (tmp_path / "check").exists()


def test_a_corpus_whose_members_moved_with_their_digests_is_another(
    study: Study, tmp_path: Path, command: Command
) -> None:
    """A forger who makes every digest of the index again is stopped by the plan, and without it by the captures."""
    corpus = json.loads(study.corpus.read_bytes())
    both = [one for one in corpus["sequences"] if one["id"] in {"original-02", "fresh-02"}]
    both[0]["teacher"], both[1]["teacher"] = both[1]["teacher"], both[0]["teacher"]
    for one in both:
        one["digest"] = "sha256:" + sha(canonical({key: value for key, value in one.items() if key != "digest"}))
    changed, plan = tmp_path / "corpus.json", tmp_path / "plan.toml"
    changed.write_bytes(canonical(corpus))
    plan.write_text(study.plan.read_text().replace(sha(study.corpus.read_bytes()), sha(changed.read_bytes())))
    done = check(command, study, tmp_path / "check", corpus=changed)
    assert (done.code, "is for the corpus" in done.err) == (2, True), done.err
    done = check(command, study, tmp_path / "check", "--plan", plan, corpus=changed)
    assert (done.code, "was captured with another corpus" in done.err) == (4, True), done.err


def raised(study: Study, path: Path, factor: float = 2.0) -> Path:
    """Write bounds in which bounds and maxima are raised together, as a forger would."""
    values = json.loads(study.bounds.read_bytes())
    for one in values["models"].values():
        for name in one["maxima"]:
            one["maxima"][name] *= factor
            one["bounds"][name] = 1.5 * one["maxima"][name]
    path.write_bytes(canonical(values))
    return path


def test_doubled_bounds_are_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """Bounds that are not 1.5 times their maxima, or of another factor, are no bounds."""
    values = json.loads(study.bounds.read_bytes())
    values["models"][MODEL]["bounds"]["max_abs"] *= 2
    path = tmp_path / "bounds.json"
    path.write_bytes(canonical(values))
    done = check(command, study, tmp_path / "check", bounds=path)
    assert (done.code, "are not 1.5 times their maxima" in done.err) == (4, True), done.err
    values["factor"] = 3.0
    path.write_bytes(canonical(values))
    assert check(command, study, tmp_path / "check", bounds=path).code == 4


def test_edited_bounds_with_edited_maxima_are_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """The captures name other bounds; and where these are forged too, the calibration rows measured again say no."""
    path = raised(study, tmp_path / "bounds.json")
    done = check(command, study, tmp_path / "check", bounds=path)
    assert (done.code, "was captured under other bounds" in done.err) == (4, True), done.err
    instead = {}
    for group in GROUPS[1:]:
        forged = Forged(study.folder(group))
        forged.store("facts", path.read_bytes(), ".json")
        forged.readdress("sha256:" + sha(study.bounds.read_bytes()), "sha256:" + sha(path.read_bytes()))
        instead[f"server_{group}"] = forged.write(tmp_path / group)
    done = check(command, study, tmp_path / "check", bounds=path, **instead)
    assert (done.code, "do not follow from the rows" in done.err) == (4, True), done.err
    assert not (tmp_path / "check").exists()


def test_bounds_that_were_made_after_a_fresh_capture_are_refused(
    study: Study, tmp_path: Path, command: Command
) -> None:
    """A second calibration freezes other bounds, which no capture knew."""
    again = tmp_path / "original"
    assert capture_group(study, "original", out=again).refused == {}
    path = tmp_path / "bounds.json"
    captures = [again, study.folder("original", "reference")]
    done = command("accuracy", "calibrate", study.corpus, *captures, "--plan", study.plan, "--out", path)
    assert done.code == 0, done.err
    done = check(command, study, tmp_path / "check", bounds=path, server_original=again)
    assert (done.code, "was captured under other bounds" in done.err) == (4, True), done.err


def test_a_fresh_capture_without_bounds_is_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """What comes after calibration has to name what was frozen; and what sets bounds can name none."""
    (tmp_path / "out").mkdir()
    words = ["--model", MODEL, "--out", tmp_path / "out", "--plan", study.plan, "--server", "x=http://127.0.0.1:1"]
    done = command("accuracy", "capture", study.corpus, "--group", "fresh", *words)
    assert (done.code, "needs the frozen bounds" in done.err) == (2, True), done.err
    done = command("accuracy", "capture", study.corpus, "--group", "original", *words, "--bounds", study.bounds)
    assert (done.code, "bounds come after this capture" in done.err) == (2, True), done.err


def test_another_executable_for_one_group_is_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """Captures of one side are of one build; the differing field is named."""
    forged = Forged(study.folder("long"))
    forged.edit_fact(forged.of("server")[0]["declaration"], lambda said: said.update(executable_sha256="2" * 64))
    folder = forged.write(tmp_path / "forged")
    done = check(command, study, tmp_path / "check", server_long=folder)
    assert (done.code, "of another build" in done.err, "executable_sha256 differ" in done.err) == (4, True, True)


def test_a_missing_mode_is_missing(study: Study, tmp_path: Path, command: Command) -> None:
    """A capture without its waves is complete in nothing: exit 2, and the first sequence is named."""
    forged = Forged(study.folder("fresh"))
    forged.lines = [line for line in forged.lines if not str(line.get("unit")).startswith("batch/")]
    folder = forged.write(tmp_path / "forged")
    done = check(command, study, tmp_path / "check", server_fresh=folder)
    assert (done.code, f"{MODEL} fresh server batch fresh-00: not sent" in done.err) == (2, True), done.err
    assert "order" in {one["check"] for one in verified(folder)["contradictions"]}


@pytest.mark.parametrize("group", GROUPS)
def test_a_missing_group_is_missing(study: Study, tmp_path: Path, command: Command, group: str) -> None:
    """Exit 2, and what is missing is named."""
    folders = [folder for folder in study.folders if folder != study.folder(group)]
    words = ["--bounds", study.bounds, "--plan", study.plan, "--out", tmp_path / "check"]
    done = command("accuracy", "check", study.corpus, *folders, *words)
    assert (done.code, f"missing: {MODEL} {group} server" in done.err) == (2, True), done.err


def test_a_changed_row_file_is_refused(study: Study, tmp_path: Path, command: Command) -> None:
    """One bit of a stored row is another file than its digest says."""
    folder = tmp_path / "copy"
    shutil.copytree(study.folder("fresh", "reference"), folder)
    path = min((folder / "rows").iterdir())
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    done = check(command, study, tmp_path / "check", reference_fresh=folder)
    assert (done.code, "holds other bytes than its name says" in done.err) == (4, True), done.err


def test_the_sentinel_refuses_a_sequence(study: Study, tmp_path: Path, command: Command) -> None:
    """A value that stands for probability zero is no logprob that can be compared."""

    def change(values: np.ndarray[Any, Any]) -> None:
        values[2, 3] = np.float32(-3.4028234663852886e38)

    folder = beyond(study.folder("short"), tmp_path / "forged", change)
    done = check(command, study, tmp_path / "check", server_short=folder)
    assert (done.code, "serial short-01 is refused: sentinel" in done.err) == (2, True), done.err


def test_without_a_clear_winner_the_check_fails_although_all_rows_are_within(
    study: Study, tmp_path: Path, command: Command
) -> None:
    """Bounds so wide that no gap exceeds them cover nothing: both fresh modes are named."""
    instead = {}
    for group in ("original", "short", "long", "fresh"):
        for side in ("server", "reference"):
            forged = Forged(study.folder(group, side))
            for line in [*forged.of("complete")]:
                rows = (line["reply"] or {}).get("rows")
                if rows is None:
                    continue
                values = np.frombuffer(forged.files[f"rows/{rows['file'][7:]}.f32"], dtype="<f4")
                values = values.reshape(rows["shape"]).copy()
                # The two best tokens of every row as good as equal.
                order = np.argsort(-values, axis=1, kind="stable")[:, :2]
                at = np.arange(len(values))
                values[at, order[:, 1]] = values[at, order[:, 0]]
                made = Rows(values)
                rows.update(file=forged.store("rows", made.to_bytes(), ".f32"), digests=list(made.digests))
            instead[group, side] = forged
    folders = {}
    for side in ("server", "reference"):
        folders["original", side] = instead["original", side].write(tmp_path / f"original-{side}")
    path = tmp_path / "bounds.json"
    originals = [folders["original", side] for side in ("server", "reference")]
    assert command("accuracy", "calibrate", study.corpus, *originals, "--plan", study.plan, "--out", path).code == 0
    for (group, side), forged in instead.items():
        if group != "original":
            if side == "server":
                forged.store("facts", path.read_bytes(), ".json")
                forged.readdress("sha256:" + sha(study.bounds.read_bytes()), "sha256:" + sha(path.read_bytes()))
            folders[group, side] = forged.write(tmp_path / f"{group}-{side}")
    words = ["--bounds", path, "--plan", study.plan, "--out", tmp_path / "check"]
    done = command("accuracy", "check", study.corpus, *folders.values(), *words)
    assert done.code == 1, done.err
    assert "no clear winner among the fresh rows of toy serial, toy batch" in done.out


def test_an_export_leaves_rows_out_and_still_verifies(checked: Path, tmp_path: Path, command: Command) -> None:
    """Digests, metrics, bounds and captures are in; the verifier judges from the metrics alone."""
    done = command("export", checked, "--digests", tmp_path / "copy")
    assert done.code == 0, done.err
    assert not (tmp_path / "copy" / "rows").exists()
    for page in ("report.html", "report.md"):
        assert (tmp_path / "copy" / page).read_bytes() == (checked / page).read_bytes()
    report = verified(tmp_path / "copy")
    assert (report["exit"], report["contradictions"]) == (0, [])
    assert report["unchecked"]["sequences against their rows"] == 8 * MEMBERS


def test_all_rows_can_be_had_as_one_table(study: Study, checked: Path, tmp_path: Path, command: Command) -> None:
    """One row a compared row, with model, group and mode; Parquet where pyarrow is installed, else a hint."""
    table = rows_table(AccuracyRun.open(checked))
    assert list(table.columns) == ["model", "group", "mode", *COLUMNS]
    assert table.groupby(["group", "mode"]).size().to_dict() == {
        (group, mode): MEMBERS * ROWS for group in GROUPS for mode in ("serial", "batch")
    }
    path = tmp_path / "rows.parquet"
    done = check(command, study, tmp_path / "check", "--parquet", path)
    if importlib.util.find_spec("pyarrow") is None:
        assert (done.code, "the pyarrow package is missing" in done.err, path.exists()) == (2, True, False)
    else:
        assert done.code == 0, done.err
        pd.testing.assert_frame_equal(pd.read_parquet(path), table, check_dtype=False)


def test_without_pyarrow_the_error_says_what_to_install(
    checked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half-written file stays."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="the pyarrow package is missing"):
        write_parquet(AccuracyRun.open(checked), tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()


# The verifier against forged checks. ---------------------------------------------------------------------------------


def edit_metrics(forged: Forged, change: Callable[[list[list[Any]]], object], **line: str) -> None:
    """Change the metrics of one group in one mode."""
    measured = forged.of("measured", **line)[0]
    head, *rows = [
        json.loads(text) for text in forged.files.pop(f"metrics/{measured['metrics'][7:]}.jsonl").splitlines()
    ]
    change(rows)
    measured["metrics"] = forged.store("metrics", b"".join(map(canonical, [head, *rows])), ".jsonl")


def drop_row(rows: list[list[Any]]) -> None:
    """Leave the last row out."""
    rows.pop()


def lower(rows: list[list[Any]]) -> None:
    """Report half of an error."""
    rows[3][2] /= 2


def swap(rows: list[list[Any]]) -> None:
    """Let two rows change places."""
    rows[0], rows[1] = rows[1], rows[0]


@pytest.mark.parametrize(("change", "named"), [(drop_row, "metrics"), (lower, "metrics"), (swap, "metrics")])
def test_forged_metrics_are_a_contradiction(
    checked: Path, tmp_path: Path, change: Callable[[list[list[Any]]], object], named: str
) -> None:
    """With the rows at hand every metric is measured again."""
    forged = Forged(checked)
    edit_metrics(forged, change, group="fresh", mode="batch")
    report = verified(forged.write(tmp_path / "forged"))
    assert (report["exit"], {one["check"] for one in report["contradictions"]}) == (4, {named}), report["sentence"]


def test_a_check_whose_bounds_were_raised_is_a_contradiction(study: Study, checked: Path, tmp_path: Path) -> None:
    """Bounds and maxima raised together still do not follow from the calibration rows, nor did captures know them."""
    forged = Forged(checked)
    path = raised(study, tmp_path / "bounds.json")
    forged.store("facts", path.read_bytes(), ".json")
    forged.readdress("sha256:" + sha(study.bounds.read_bytes()), "sha256:" + sha(path.read_bytes()))
    report = verified(forged.write(tmp_path / "forged"))
    assert report["exit"] == 4
    assert "bounds" in {one["check"] for one in report["contradictions"]}


def test_a_check_with_a_capture_of_another_build_is_a_contradiction(
    study: Study, checked: Path, tmp_path: Path
) -> None:
    """A capture inside a check is walked as strictly as one in a folder of its own."""
    other = Forged(study.folder("long"))
    other.edit_fact(other.of("server")[0]["declaration"], lambda said: said.update(executable_sha256="2" * 64))
    capture = open_capture(other.write(tmp_path / "other"))
    forged = Forged(checked)
    line = next(one for one in forged.of("included") if one["seal"] == open_capture(study.folder("long")).seal)
    forged.files.pop(f"captures/{line['capture'][7:]}.json.gz")
    line.update(seal=capture.seal, capture=forged.store("captures", pack(capture.packed()), ".json.gz"))
    report = verified(forged.write(tmp_path / "forged"))
    assert (report["exit"], {one["check"] for one in report["contradictions"]}) == (4, {"captures"})


def test_a_check_without_one_capture_is_a_contradiction(checked: Path, tmp_path: Path) -> None:
    """Every group of every model on both sides is needed."""
    forged = Forged(checked)
    line = forged.of("included")[3]
    forged.lines.remove(line)
    forged.files.pop(f"captures/{line['capture'][7:]}.json.gz")
    report = verified(forged.write(tmp_path / "forged"))
    assert report["exit"] == 4
    assert "captures" in {one["check"] for one in report["contradictions"]}


def test_wrong_findings_are_a_contradiction(checked: Path, tmp_path: Path) -> None:
    """findings.json is computed again and compared field by field."""
    folder = tmp_path / "copy"
    shutil.copytree(checked, folder)
    path = folder / "findings.json"
    found = json.loads(path.read_bytes())
    found["cells"][5]["failed"] = 1
    path.write_bytes(canonical(found))
    sums = (folder / "DERIVED.SHA256SUMS").read_text().splitlines()
    others = [line for line in sums if not line.endswith("  findings.json")]
    lines = sorted([*others, f"{sha(canonical(found))}  findings.json"], key=lambda line: line[66:])
    (folder / "DERIVED.SHA256SUMS").write_text("".join(f"{line}\n" for line in lines))
    report = verified(folder)
    assert (report["exit"], {one["check"] for one in report["contradictions"]}) == (4, {"findings"})


# What a capture refuses. --------------------------------------------------------------------------------------------


def no_entries(body: dict[str, Any]) -> None:
    """Lose the row of a step."""
    del body["completion_probabilities"]


def another_token(body: dict[str, Any]) -> None:
    """Name another token than the grammar's."""
    body["tokens"] = [body["tokens"][0] ^ 1]


def top(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a row."""
    entries: list[dict[str, Any]] = body["completion_probabilities"][0]["top_logprobs"]
    return entries


def no_number(body: dict[str, Any]) -> None:
    """Write null, as llama-server does for what is no finite number."""
    top(body)[100]["logprob"] = None


def short_row(body: dict[str, Any]) -> None:
    """Leave the last token of the vocabulary out."""
    top(body).pop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_entries, "stream_error: 11 rows came for 12 tokens"),
        (another_token, "mismatched id: the server's tokens are not the teacher's"),
        (no_number, "stream_error: a row holds a logprob that is null or no finite float32"),
        (short_row, "stream_error: a row of 512 tokens has 511 entries, 511 distinct ids"),
    ],
)
def test_a_row_that_is_not_whole_refuses_its_sequence_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    """A hole, another token, no number or a short row: that sequence is refused, the others are not."""
    study = begin(tmp_path)
    study.plan.write_text(study.plan.read_text().replace("attempts = 10", "attempts = 1"))
    clean = reply.event

    def event(stepped: Any, vocabulary: Any) -> dict[str, Any]:  # noqa: ANN401 - the fake's own
        body: dict[str, Any] = clean(stepped, vocabulary)
        prompt = list(stepped.generation.request.prompt)
        if prompt == study.order().corpus.members_of(MODEL, "original")[2].prefill and stepped.count == 7:
            change(body)
        return body

    monkeypatch.setattr(reply, "event", event)
    done = capture_group(study, "original", "reference")
    assert done.refused == {"serial/original-02": reason}
    assert done.seal is not None
    assert "original-02" in verified(study.folder("original", "reference"))["sentence"]


# Reproduction and inputs. -------------------------------------------------------------------


def test_a_reproduced_reference_has_the_same_rows(study: Study, tmp_path: Path) -> None:
    """Each row's digest is the original's, the record keeps the original, and the verifier counts again."""
    original = open_capture(study.folder("short", "reference"))
    assert order_of(original).registered == original.manifest.registered
    done = capture_group(study, "short", "reference", out=tmp_path / "again", reproduces=original.packed())
    assert done.refused == {}
    found = compared(original, tmp_path / "again")
    assert (found.rows, found.differing, found.build) == (MEMBERS * ROWS, (), "fake, the original's executable")
    assert verified(tmp_path / "again")["sentence"].endswith(f"reproduces {MEMBERS * ROWS} of {MEMBERS * ROWS} rows")


def test_a_reproduction_by_another_model_differs_and_says_by_which_executable(study: Study, tmp_path: Path) -> None:
    """The differing rows are named."""
    original = open_capture(study.folder("short", "reference"))
    owner = Owner(DECODED, executable="3" * 64)
    again = tmp_path / "again"
    capture_group(
        study, "short", "reference", out=again, owner=owner, reproduces=original.packed(), faults={"swap_after": 2}
    )
    found = compared(original, again)
    assert found.differing[0] == ("short-02", 0)
    assert len(found.differing) == 2 * ROWS
    assert found.build == "fake, another than the original's executable"


def test_a_capture_needs_an_empty_folder_that_exists(tmp_path: Path, command: Command) -> None:
    """Nothing is made or mixed by mistake."""
    study = begin(tmp_path)
    words = ["--model", MODEL, "--group", "original", "--plan", study.plan, "--server", "x=http://127.0.0.1:1"]
    done = command("accuracy", "capture", study.corpus, *words, "--out", tmp_path / "absent")
    assert (done.code, "must exist and be empty" in done.err) == (2, True), done.err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    done = command("accuracy", "capture", study.corpus, *words, "--out", tmp_path / "full")
    assert (done.code, "is not empty" in done.err) == (2, True), done.err
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("owner", "words"),
    [(Owner("0" * 64), "must serve the file"), (Owner(QUANTIZED, batch=55), "4 prefills of 14 tokens in one batch")],
)
def test_a_server_of_another_model_or_batch_is_refused(tmp_path: Path, owner: Owner, words: str) -> None:
    """Before anything is generated; the folder stays empty."""
    study = begin(tmp_path)
    with pytest.raises(UsageError, match=words):
        capture_group(study, "original", owner=owner)
    assert all(not any(folder.iterdir()) for folder in tmp_path.iterdir() if folder.is_dir())


def test_an_input_that_changes_during_a_capture_leaves_it_unsealed(tmp_path: Path) -> None:
    """The corpus is compared again before the seal."""
    study = begin(tmp_path)
    owner = Owner(DECODED)
    before = study.corpus.read_bytes()

    class Meddler(Owner):
        def declaration(self) -> dict[str, Any]:
            """Change the corpus whenever the server is asked to declare itself."""
            study.corpus.write_bytes(before + b"\n")
            return owner.declaration()

    with pytest.raises(EvidenceError, match="changed while it was in use"):
        capture_group(study, "original", "reference", owner=Meddler(DECODED))
    assert not (study.folder("original", "reference") / "SHA256SUMS").exists()


def test_bounds_are_read_back_as_written_and_never_overwritten(study: Study, tmp_path: Path, command: Command) -> None:
    """Frozen is frozen: calibrating into the same file is refused."""
    bounds = Bounds.parse(study.bounds.read_bytes(), name="bounds.json")
    assert bounds.models[MODEL].rows == 2 * MEMBERS * ROWS
    originals = [study.folder("original", side) for side in ("server", "reference")]
    words = ["--plan", study.plan, "--out", study.bounds]
    done = command("accuracy", "calibrate", study.corpus, *originals, *words)
    assert (done.code, "bounds are frozen" in done.err) == (2, True), done.err
    assert tmp_path.exists()
