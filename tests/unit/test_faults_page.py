"""The page of faults shows every switch and every fault run as the code has them."""

from __future__ import annotations

import pytest

from audit.fake import switches
from scripts import faults_page
from scripts.fault_cases import CASES


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """scripts/faults_page.py would change nothing."""
    assert faults_page.main(["--check"]) == 0
    assert capsys.readouterr().out == "up to date\n"


def test_the_page_names_every_switch_and_every_run() -> None:
    """A row each."""
    page = faults_page.PAGE.read_text(encoding="ascii")
    assert all(page.count(f"\n| `{switch.name}` | ") == 1 for switch in switches())
    assert all(page.count(f"\n| {case.name} | ") == 1 for case in CASES)


def test_a_page_that_lost_a_marker_is_refused() -> None:
    """The error names the marker."""
    page = faults_page.PAGE.read_text(encoding="ascii")
    with pytest.raises(SystemExit, match="<!-- lies -->"):
        faults_page.page_with(page.replace("<!-- lies -->", ""))
