"""What every test relies on: the repository's root, the `live` marker, repeatable examples, and no silent skip.

A test that cannot run here is listed as a line `NOT RUN: TEST: REASON`, which scripts/gate.sh repeats at its end. With
CI=true such a test is a failure: continuous integration has every program that the tests need, or must be told.
"""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# The same examples every time: a failure that comes and goes with a seed says nothing about the change under test.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the repository."""
    return REPOSITORY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test under tests/live as `live`."""
    for item in items:
        if (REPOSITORY / "tests" / "live") in item.path.parents:
            item.add_marker(pytest.mark.live)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for every test that was skipped."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"NOT RUN: {report.nodeid}: {reason.removeprefix('Skipped: ')}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run where CI=true and a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter is not None and bool(reporter.stats.get("skipped"))
    if skipped and exitstatus == pytest.ExitCode.OK and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
