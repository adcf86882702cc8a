"""Every fault can be switched on from the command line, and is listed there with what it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from audit.cli import command_line
from audit.cli.fake import parse_faults
from audit.errors import UsageError
from audit.fake import FakeSettings, Faults, Switch, switches
from tests.unit.test_docs import page_names

LISTED = re.compile(r"--fault (\w+)")


@pytest.mark.parametrize("switch", switches(), ids=lambda switch: switch.name)
def test_every_switch_can_be_given(switch: Switch) -> None:
    """A boolean by its name alone, a count or a time with a value; the others stay off."""
    name, default = switch.name, switch.default
    word, value = (name, True) if isinstance(default, bool) else (f"{name}=3", 3)
    wanted: dict[str, Any] = {name: value}
    faults = parse_faults([word])
    assert faults == Faults(**wanted) != Faults()
    assert FakeSettings(faults=faults).faults == faults


def test_a_boolean_can_be_said_to_be_off() -> None:
    """So that a list of switches may be written out in full."""
    assert parse_faults(["seed_ignored=false", "serialized=yes"]) == Faults(serialized=True)


@pytest.mark.parametrize("word", ["one_ulp", "one_ulp=", "one_ulp=1.5", "loading_s=soon"])
def test_a_count_needs_a_number(word: str) -> None:
    """The error names the switch and shows how."""
    with pytest.raises(UsageError, match=r"needs a number, as in \w+=3"):
        parse_faults([word])


def test_all_switches_are_listed_with_what_they_do() -> None:
    """One line each: group, name, sentence."""
    shown = CliRunner().invoke(command_line(), ["fake", "--list-faults"])
    assert shown.exit_code == 0
    lines = [re.split(r"\s{2,}", line, maxsplit=2) for line in shown.stdout.splitlines()]
    assert lines == [[switch.group, switch.name, switch.text] for switch in switches()]


def test_the_pages_name_faults_that_exist(repository: Path) -> None:
    """`--fault NAME` anywhere in the docs is a switch."""
    known = {switch.name for switch in switches()}
    named = {name for page in page_names() for name in LISTED.findall((repository / page).read_text(encoding="ascii"))}
    assert named - {"NAME"} <= known
    assert {"one_ulp", "serialized"} <= named
