"""What the integration tests share."""

from __future__ import annotations

import pytest

from audit.cli import _run as run_command_line
from tests.integration.commands import Command, Done


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process."""

    def run(*arguments: object) -> Done:
        code = run_command_line([str(argument) for argument in arguments])
        return Done(code, *capfd.readouterr())

    return run
