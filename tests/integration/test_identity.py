"""The identity gate on fake builds: what it says, what the verifier says, and which holes are closed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from audit.errors import UsageError
from audit.identity import compare, evidence, findings, judge
from audit.identity.findings import exit_code, identity_findings
from audit.identity.parity import candidates
from audit.identity.record import CaptureFailure
from audit.identity.running import Answer, Outcome
from audit.identity.text import headline, identity_text
from audit.stream import canonical
from tests.integration.comparing import (
    CPU,
    PLAN,
    VOCABULARY,
    Numbers,
    build,
    failed,
    plain,
    record,
    run_of,
    same,
    verdicts,
    verify,
)


def one_ulp_in(family: str) -> Callable[[str, int, Outcome], Outcome]:
    """Return a change of a build of which one family computes one value of one row one ULP lower, every time."""

    def change(asked: str, _run: int, came: Outcome) -> Outcome:
        answers = []
        for answer in came.answers:
            assert answer.rows is not None
            rows = answer.rows.copy()
            if asked == family and answer.job.prompt == "short":
                rows[2, 9] = np.nextafter(rows[2, 9], np.float32(-np.inf))
            answers.append(dataclasses.replace(answer, rows=rows))
        return dataclasses.replace(came, answers=answers)

    return change


def unsteady_in(family: str) -> Numbers:
    """Return the numbers of a build of which one family computes something else in every process."""
    return lambda asked, run: plain(1 + run if asked == family else 1)(asked, run)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return three records: the same numbers, one ULP in one family, a family that does not repeat itself."""
    root = tmp_path_factory.mktemp("records")
    made = {
        "same": build("new"),
        "one-ulp": build("new", change=one_ulp_in("gemma2")),
        "unsteady": build("new", unsteady_in("gemma2")),
    }
    for name, new in made.items():
        record(root / name, build("old"), new, families=("llama", "gemma2", "gemma2 q8_0"))
    return {name: root / name for name in made}


def outcome(folder: Path) -> tuple[bool, int, dict[str, str]]:
    """Return what a record comes to: whether it is sound, the exit code, and the verdict of each family."""
    found = identity_findings(run_of(folder))
    return found["sound"], exit_code(found, require_all=False), verdicts(found)


EXPECTED = {
    "same": (True, 0, {"llama": "IDENTICAL", "gemma2": "IDENTICAL"}),
    "one-ulp": (True, 1, {"llama": "IDENTICAL", "gemma2": "DIFFERENT"}),
    "unsteady": (True, 1, {"llama": "IDENTICAL", "gemma2": "DIFFERENT"}),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_case_comes_out_as_it_must_and_the_verifier_agrees(folders: dict[str, Path], name: str) -> None:
    """Exactly the changed family differs, and a second program derives every field from the bytes."""
    assert outcome(folders[name]) == EXPECTED[name]
    code, report = verify(folders[name])
    assert (code, report["contradictions"]) == (0, [])
    assert report["findings"]["pairs"][0]["counts"] == identity_findings(run_of(folders[name]))["pairs"][0]["counts"]
    assert verify(folders[name], "--assert")[0] == EXPECTED[name][1]


def test_a_difference_of_one_ulp_is_shown_with_its_place(folders: dict[str, Path]) -> None:
    """The report names prompt, step, token and both values in hex, one value of one row."""
    found = identity_findings(run_of(folders["one-ulp"]))
    cell = next(cell for cell in found["pairs"][0]["cells"] if cell["family"] == "gemma2")
    moved = cell["difference"]
    assert (moved["rows"][0], moved["values"][0], moved["ulp_max"], moved["begins"]) == (1, 1, 1, "decode")
    first = moved["first"]
    assert abs(int(first["old_hex"], 16) - int(first["new_hex"], 16)) == 1
    run = run_of(folders["one-ulp"])
    text = identity_text(found, run.manifest, run.asked)
    assert f"token {first['token']}" in text
    assert f"0x{first['old_hex']}" in text
    assert "looks like rounding" in text
    assert headline(found["pairs"][0], run.manifest, run.asked) == "DIFFERENT, 512 logprobs x 2 prompts x 5 rows"


def test_a_build_that_does_not_repeat_itself_is_said_first(folders: dict[str, Path]) -> None:
    """The section on determinism counts it, and its cell is never IDENTICAL."""
    found = identity_findings(run_of(folders["unsteady"]))
    counts = {entry["build"]: entry["not_identical"] for entry in found["determinism"]}
    assert counts == {"old": 0, "new": 1}


# The comparator, mutated: what each change would let through.
MUTATIONS: dict[str, tuple[object, str, object]] = {
    "every build repeats itself": (judge, "repeats", lambda _rounds, _prompts: True),
    "rows never differ": (findings, "compare_rows", lambda _parts: None),
    "ULP are not counted": (compare, "ordinals", lambda values: np.zeros(values.shape, np.int32)),
    "only the prefill is compared": (
        judge,
        "compared_captures",
        lambda old, new, name: (old.captures["free", name], new.captures["free", name], 1),
    ),
    "only tokens are compared": (
        evidence,
        "_capture",
        lambda line, _cell, _rows: evidence.Capture(tuple(line.tokens), tuple(map(str, line.tokens)), None, (0, 0)),
    ),
    "a difference is no verdict": (findings, "PRECEDENCE", ("IDENTICAL", "WITHIN TOLERANCE", "DIFFERENT", "NOT RUN")),
    "the CPU may do what it likes": (findings, "_repeats", lambda *_: True),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_comparator_is_caught(folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mutation changes what at least one of the three cases comes to, or its findings."""
    where, attribute, value = MUTATIONS[name]
    monkeypatch.setattr(where, attribute, value)
    changed = []
    for case, folder in folders.items():
        found = canonical(identity_findings(run_of(folder)))
        changed.append(outcome(folder) != EXPECTED[case] or found != (folder / "findings.json").read_bytes())
    assert any(changed)


def only_new_fails(number: int, kind: str = "crash") -> Callable[[str, int, Outcome], Outcome]:
    """Return a change that lets the n-th process of gemma2 fail."""
    return lambda family, run, came: failed(kind) if family == "gemma2" and run == number else came


def test_only_one_side_runs_is_different(tmp_path: Path) -> None:
    """A build that cannot run a cell which the other runs is not the same build."""
    found = record(
        tmp_path / "r", build("old"), build("new", change=lambda f, _r, c: failed("start") if f == "gemma2" else c)
    )
    assert verdicts(found) == {"llama": "IDENTICAL", "gemma2": "DIFFERENT"}
    assert exit_code(found, require_all=False) == 1
    assert verify(tmp_path / "r")[0] == 0


def test_neither_side_runs_is_not_run(tmp_path: Path) -> None:
    """What nobody ran is no result, and a failure with --require-all."""
    change = lambda f, _r, c: failed("start") if f == "gemma2" else c  # noqa: E731 - used twice in a line each
    found = record(tmp_path / "r", build("old", change=change), build("new", change=change))
    assert verdicts(found) == {"llama": "IDENTICAL", "gemma2": "NOT RUN"}
    assert (exit_code(found, require_all=False), exit_code(found, require_all=True)) == (0, 3)
    assert verify(tmp_path / "r")[0] == 0


def test_nothing_ran_is_two(tmp_path: Path) -> None:
    """A skip is not a pass."""
    change = lambda _f, _r, _c: failed("start")  # noqa: E731 - used twice in a line each
    found = record(tmp_path / "r", build("old", change=change), build("new", change=change))
    assert exit_code(found, require_all=False) == 2
    assert verify(tmp_path / "r")[0] == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_failed_run_forbids_identical(tmp_path: Path, number: int) -> None:
    """Whichever of the two runs fails: nobody knows whether the build repeats itself."""
    found = record(tmp_path / "r", build("old"), build("new", change=only_new_fails(number)))
    assert verdicts(found)["gemma2"] == ("DIFFERENT" if number == 0 else "NOT RUN")
    assert verify(tmp_path / "r")[0] == 0


def short_rows(family: str, _run: int, came: Outcome) -> Outcome:
    """Take the rows of gemma2 away: fewer than tokens."""
    if family != "gemma2":
        return came
    failure = CaptureFailure(kind="rows", message="4 rows came for 5 tokens")
    return dataclasses.replace(came, answers=[Answer(job=answer.job, failure=failure) for answer in came.answers])


def nan_rows(family: str, _run: int, came: Outcome) -> Outcome:
    """Put a value that is no number into the rows of gemma2."""
    if family != "gemma2":
        return came
    answers = []
    for answer in came.answers:
        assert answer.rows is not None
        rows = answer.rows.copy()
        rows[0, 0] = np.nan
        answers.append(dataclasses.replace(answer, rows=rows))
    return dataclasses.replace(came, answers=answers)


def on_device(family: str, _run: int, came: Outcome) -> Outcome:
    """Say that gemma2's weights lie on another device."""
    return dataclasses.replace(came, path={**CPU, "weights": ["Vulkan0"]}) if family == "gemma2" else came


def says_nothing(family: str, _run: int, came: Outcome) -> Outcome:
    """Say nothing of the code path of gemma2."""
    return dataclasses.replace(came, path=None) if family == "gemma2" else came


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(short_rows, "NOT RUN"), (nan_rows, "DIFFERENT"), (on_device, "NOT RUN"), (says_nothing, "NOT RUN")],
)
def test_what_is_not_there_is_equal_to_nothing(
    tmp_path: Path, change: Callable[[str, int, Outcome], Outcome], verdict: str
) -> None:
    """Fewer rows than tokens, a value that is no number, another device: never IDENTICAL."""
    found = record(tmp_path / "r", build("old"), build("new", change=change))
    assert verdicts(found)["gemma2"] == verdict
    assert verify(tmp_path / "r")[0] == 0


def test_both_sides_broken_alike_are_not_identical(tmp_path: Path) -> None:
    """Two equal dumps of no number are not equal."""
    found = record(tmp_path / "r", build("old", change=nan_rows), build("new", change=nan_rows))
    assert verdicts(found)["gemma2"] == "NOT RUN"


def test_another_code_path_is_flagged(tmp_path: Path) -> None:
    """Equal rows along another path stay IDENTICAL, and it is said."""
    repacked = lambda _f, _r, came: dataclasses.replace(came, path={**CPU, "weights": ["CPU_REPACK"]})  # noqa: E731
    found = record(tmp_path / "r", build("old"), build("new", change=repacked))
    assert [cell["path_differs"] for cell in found["pairs"][0]["cells"]] == [True, True]
    run = run_of(tmp_path / "r")
    assert "report different code paths" in identity_text(found, run.manifest, run.asked)
    assert verify(tmp_path / "r")[0] == 0


def jitter(nats: float) -> Callable[[str, int, Outcome], Outcome]:
    """Return a change that moves one value of each row of gemma2 by another amount in each process."""

    def change(family: str, run: int, came: Outcome) -> Outcome:
        if family != "gemma2":
            return came
        answers = []
        for answer in came.answers:
            assert answer.rows is not None
            rows = answer.rows.copy()
            rows[:, 7] -= np.float32(nats * (run + 1))
            answers.append(dataclasses.replace(answer, rows=rows))
        return dataclasses.replace(came, answers=answers)

    return change


def test_a_build_that_is_near_itself_is_within_tolerance_at_best(tmp_path: Path) -> None:
    """Twice its own run-to-run difference, tokens and argmax exact; and still 1, since a CPU must repeat itself."""
    found = record(tmp_path / "r", build("old", change=jitter(1e-3)), build("new", change=jitter(1.1e-3)))
    assert verdicts(found) == {"llama": "IDENTICAL", "gemma2": "WITHIN TOLERANCE"}
    assert exit_code(found, require_all=False) == 1
    assert exit_code({**found, "device": "vulkan"}, require_all=False) == 3
    assert verify(tmp_path / "r")[0] == 0


def test_farther_than_twice_its_own_difference_is_different(tmp_path: Path) -> None:
    """The tolerance is the cell's own, and not a wish."""
    found = record(tmp_path / "r", build("old", change=jitter(1e-3)), build("new", change=jitter(9e-3)))
    cell = next(cell for cell in found["pairs"][0]["cells"] if cell["family"] == "gemma2")
    assert cell["tolerance_nats"] == pytest.approx(18e-3, rel=0.01)
    assert cell["verdict"] == "WITHIN TOLERANCE"
    far = record(
        tmp_path / "far", build("old", change=jitter(1e-3)), build("new", change=lambda f, r, c: jitter(0.5)(f, 0, c))
    )
    assert verdicts(far)["gemma2"] == "DIFFERENT"
    assert verify(tmp_path / "far")[0] == 0


def test_a_free_run_is_compared_up_to_its_first_other_token(tmp_path: Path) -> None:
    """With other tokens every row still compares, since the new build is forced to the old one's."""
    found = record(tmp_path / "r", build("old"), build("new", plain(2)), families=("llama",))
    cell = found["pairs"][0]["cells"][0]
    assert cell["verdict"] == "DIFFERENT"
    assert cell["rows"] == [0, len(PLAN.prompts) * PLAN.rows]
    assert cell["tokens"] == [0, len(PLAN.prompts)]


def test_epochs_are_classes_of_equal_rows(tmp_path: Path) -> None:
    """Builds with equal rows share a class, whatever lies between them; one that did not run is in none."""
    builds = [
        build("v1", change=lambda _f, _r, _c: failed("start")),
        build("v2", plain(1)),
        build("v3", plain(2)),
        build("v4", plain(1)),
    ]
    found = record(tmp_path / "r", *builds, families=("llama",))
    entry = found["classes"][0]
    assert entry["classes"] == [["v2", "v4"], ["v3"]]
    assert entry["not_run"] == ["v1"]
    run = run_of(tmp_path / "r")
    assert "2 class(es)" in identity_text(found, run.manifest, run.asked)
    assert verify(tmp_path / "r")[0] == 0


def test_a_running_server_is_asked_and_not_restarted(tmp_path: Path) -> None:
    """It says nothing of its path, which the report admits, and it qualifies for no parity record."""
    found = record(
        tmp_path / "r",
        build(
            "old",
            source="http",
            name="http",
            archive=None,
            restarts=False,
            change=lambda _f, _r, c: dataclasses.replace(c, path=None, executable=None),
        ),
        build("new"),
        families=("llama",),
    )
    assert verdicts(found) == {"llama": "IDENTICAL"}
    run = run_of(tmp_path / "r")
    assert "ran already" in identity_text(found, run.manifest, run.asked)
    entries, refused = candidates(run)
    assert entries == []
    assert "pinned by no digest" in refused[0]
    assert verify(tmp_path / "r")[0] == 0


def test_candidates_are_only_families_that_qualify(folders: dict[str, Path]) -> None:
    """The identical family is written with both builds; of the other the refusal says why."""
    entries, refused = candidates(run_of(folders["one-ulp"]))
    assert [entry["family"] for entry in entries] == ["llama"]
    assert entries[0]["from"]["name"] == "binary:old"
    assert refused == ["gemma2 is DIFFERENT"]


def test_two_kinds_of_rows_are_refused(tmp_path: Path) -> None:
    """Logits of one side and logprobs of the other cannot be compared."""
    logits = dataclasses.replace(build("new"), rows="logits")
    with pytest.raises(UsageError, match="cannot be compared"):
        record(tmp_path / "r", build("old"), logits)


def test_without_its_rows_a_record_is_judged_from_digests(folders: dict[str, Path]) -> None:
    """At digest level verdicts are the same; what only rows can show is counted as unchecked."""
    code, report = verify(folders["one-ulp"], "--level", "digests")
    assert (code, report["contradictions"]) == (0, [])
    assert report["findings"]["pairs"][0]["families"][1]["verdict"] == "DIFFERENT"
    assert report["unchecked"]["captures against their rows"] > 0


def test_a_stopped_run_stays_unsealed(tmp_path: Path) -> None:
    """What was captured is kept, and nothing is judged."""
    from audit.identity.capture import capture_identity
    from tests.integration.comparing import ORDER, asset

    count = iter(range(100))
    sealed = capture_identity(
        ORDER,
        [build("old"), build("new")],
        [asset("llama")],
        tmp_path / "r",
        not_run={},
        report=lambda _: None,
        stopped=lambda: next(count) > 1,
    )
    assert sealed is None
    assert not (tmp_path / "r" / "SHA256SUMS").exists()
    assert VOCABULARY == 512
    assert same("", 0, failed("crash")).failure is not None
