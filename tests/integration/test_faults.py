"""Faults planted and caught: every run of the table ends as the table says, in the audit and in the verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.errors import ServerError
from audit.fake import switches
from scripts.fault_cases import CASES, Case
from scripts.fault_cases.running import Judged, judge, record
from tests.integration.auditing import lines

# What a wave needs time for, a machine that others use may not give: the run then says that nothing was shown, and is
# made again. Nothing but these reasons is excused, and never that something moved.
WAVES = ("concurrent_", "oversubscribed_", "wave_repeat", "cross_batch_")
BUSY = {"windows", "queue", "busy"}
TRIES = 8


def run_and_judge(case: Case, folder: Path) -> tuple[Judged, Path]:
    """Run a case, again where only the machine kept a wave from happening."""
    late: set[str] = set()
    for number in range(TRIES):
        at = folder / f"run{number}"
        record(at, case.plan_of, case.settings, direct=case.direct)
        judged = judge(at)
        vacuous = {name for name, verdict in judged.verdicts.items() if verdict == "vacuous"}
        late = {name for name in vacuous if name.startswith(WAVES) and case.verdicts[name] != "vacuous"}
        late = {name for name in late if set(judged.cells[name]["reasons"]) <= BUSY}
        if not late:
            return judged, at
        assert judged.disagreements == []
    pytest.fail(f"in {TRIES} runs the machine was too busy for {sorted(late)}")


@pytest.mark.parametrize("case", [case for case in CASES if not case.error], ids=lambda case: case.name)
def test_both_programs_find_what_the_table_says(case: Case, tmp_path: Path) -> None:
    """Verdicts, reasons, instrument, witness and exit code are the table's, and both programs agree in every field."""
    judged, folder = run_and_judge(case, tmp_path)
    assert judged.verdicts == case.verdicts
    assert judged.instrument == case.instrument
    assert (judged.code, judged.other["exit"]) == (case.code, case.code)
    assert judged.disagreements == []
    for condition, reasons in case.reasons.items():
        assert judged.cells[condition]["reasons"] == reasons
    for condition, qualifiers in case.qualifiers.items():
        assert judged.cells[condition]["qualifiers"] == qualifiers
    if case.witness:
        witnesses = [judged.cells[name]["witness"] for name in case.cells if judged.cells[name]["witness"]]
        assert case.witness.items() <= witnesses[0].items()
    if case.failed:
        assert_failed(case, folder)


def assert_failed(case: Case, folder: Path) -> None:
    """Check that the record names the failure of the one request, and keeps what arrived of its body."""
    assert case.failed is not None
    (line,) = (line for line in lines(folder, "complete") if line["trial"] == case.failed.trial)
    failure: dict[str, Any] = line["failure"]
    assert failure["kind"] == case.failed.kind
    assert case.failed.message in failure["message"]
    if case.failed.kept is not None:
        assert (failure["body"] is not None) is case.failed.kept
    if failure["body"] is not None:
        assert (folder / "bodies" / failure["body"].removeprefix("sha256:")).stat().st_size > 0


@pytest.mark.parametrize("case", [case for case in CASES if case.error], ids=lambda case: case.name)
def test_a_run_that_cannot_go_on_ends_with_an_error_and_keeps_what_it_has(case: Case, tmp_path: Path) -> None:
    """The error names server and route; there is no seal, and every request that was answered is a line."""
    with pytest.raises(ServerError, match=case.error) as caught:
        record(tmp_path / "run", case.plan_of, case.settings, direct=False)
    assert caught.value.exit_code == case.code
    assert not (tmp_path / "run" / "SHA256SUMS").exists()
    after = case.settings.faults.refuses_after
    if after is None:
        assert list((tmp_path / "run").iterdir()) == []
    else:
        answered = [line for line in lines(tmp_path / "run", "complete") if line["reply"] is not None]
        assert len(answered) == after


def test_every_switch_has_a_run_of_its_own() -> None:
    """No fault is shipped that nothing was shown to catch; the oldest jitter stands in the tests of the capture."""
    tried = {name for case in CASES for name in case.faults}
    assert {switch.name for switch in switches()} - tried == {"jitter_concurrent"}
    assert len({case.name for case in CASES}) == len(CASES) >= 40
