"""What every test relies on: the repository's root, the `live` marker, repeatable examples, and no silent skip.

A test that cannot run here is listed as a line `NOT RUN: TEST: REASON`, which scripts/gate.sh repeats at its end. With
CI=true such a test is a failure: continuous integration has every program that the tests need, or must be told. Only
what no package can add to a machine, an instruction of its processor, may be missing there too (PROCESSOR).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

PROCESSOR = "this processor lacks"
REPOSITORY = Path(__file__).resolve().parents[1]

# The same examples every time: a failure that comes and goes with a seed says nothing about the change under test.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the repository."""
    return REPOSITORY


def pytest_sessionstart() -> None:
    """Let signals reach the programs that tests start, also where this process was started to ignore them.

    nohup and background jobs of a shell ignore signals, and whatever they start inherits that; a handler that does
    nothing keeps this process as it was and is not inherited.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test under tests/live as `live`."""
    for item in items:
        if (REPOSITORY / "tests" / "live") in item.path.parents:
            item.add_marker(pytest.mark.live)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for every test that was skipped."""
    for name, reason in skips(terminalreporter):
        terminalreporter.write_line(f"NOT RUN: {name}: {reason}")


def skips(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    """Return the skipped tests with their reasons."""
    reports = reporter.stats.get("skipped", [])
    reasons = (one.longrepr[2] if isinstance(one.longrepr, tuple) else str(one.longrepr) for one in reports)
    return [(one.nodeid, said.removeprefix("Skipped: ")) for one, said in zip(reports, reasons, strict=True)]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run where CI=true and a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = [] if reporter is None else [name for name, reason in skips(reporter) if PROCESSOR not in reason]
    if skipped and exitstatus == pytest.ExitCode.OK and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
