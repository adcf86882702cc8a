"""The catalogue: every row is startable, unlike the next, and told apart by what a build understands."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from audit.errors import ServerError, UsageError
from audit.local.launch import LaunchSettings, embedded_fields, server_arguments
from audit.local.models import ModelFile
from audit.remedy.catalogue import CATALOGUE, Setting, chosen, named, pairs_of
from audit.remedy.launcher import Known, LlamaLauncher

BASE = LaunchSettings(threads=2)
FLAGS = [setting for setting in CATALOGUE if setting.changes]
HELP = "usage:\n  -fa,   --flash-attn [on|off|auto]\n  --no-repack   keep\n -ub N, -b N\n"


def launcher(binary: Path | None = None) -> LlamaLauncher:
    """Return a launcher that starts nothing here."""
    return LlamaLauncher(file=ModelFile(name="m", path=Path("m.gguf"), sha256="0" * 64), base=BASE, binary=binary)


@pytest.mark.parametrize("setting", FLAGS, ids=lambda setting: setting.name)
def test_a_setting_is_on_the_line_as_it_is_written(setting: Setting) -> None:
    """The words of the catalogue are those that a server gets, side by side; the verifier looks for them there."""
    changed = dataclasses.replace(BASE, **setting.changes)
    line = " ".join(server_arguments("m", changed, port=1))
    assert f" {' '.join(setting.words)} " in f" {line} "


@pytest.mark.parametrize("setting", FLAGS, ids=lambda setting: setting.name)
def test_a_setting_reaches_the_embedded_build_too(setting: Setting) -> None:
    """What changes the line changes the fields, and what does not changes neither."""
    changed = dataclasses.replace(BASE, **setting.changes)
    lines, fields = (
        [spell("m", settings, port=1) for settings in (BASE, changed)] for spell in (server_arguments, embedded_fields)
    )
    assert (lines[0] == lines[1]) == (fields[0] == fields[1])


def test_names_are_distinct_and_fit_for_a_folder() -> None:
    """A start's folder is called after its settings."""
    names = [setting.name for setting in CATALOGUE]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for name in names)


def test_pairs_do_not_turn_one_knob_twice() -> None:
    """Settings that exclude each other are no pair, and pairs of what comes first come first."""
    pairs = [(one.name, two.name) for one, two in pairs_of(named(["no-repack", "fa-off", "fa-on", "kvu"]))]
    assert pairs == [
        ("no-repack", "fa-off"), ("no-repack", "fa-on"), ("no-repack", "kvu"), ("fa-off", "kvu"), ("fa-on", "kvu"),
    ]  # fmt: skip


def test_all_settings_are_tried_unless_some_are_named() -> None:
    """A name that nobody knows is refused."""
    assert chosen(None) == CATALOGUE
    assert [setting.name for setting in chosen(["kvu"])] == ["kvu"]
    with pytest.raises(UsageError, match="no setting is called 'x'"):
        chosen(["x"])


@pytest.mark.parametrize(
    ("name", "understood"), [("no-repack", True), ("fa-off", True), ("kvu", False), ("b-64", True), ("np-1", False)]
)
def test_a_program_understands_what_its_help_names(name: str, understood: bool) -> None:
    """Each flag as a whole word: `-np` is not `--no-repack`."""
    known = Known(build="b", help={"help": HELP}, variables=frozenset())
    (setting,) = named([name])
    assert launcher(Path("llama-server")).understands(known, setting) is understood


def test_the_embedded_build_understands_its_fields_and_any_build_the_variables_in_its_files() -> None:
    """A variable that occurs nowhere would be measured under its name without doing anything."""
    known = Known(build="b", help={"fields": ["kv_unified"]}, variables=frozenset({"GGML_CPU_TILED_MM"}))
    understood = [
        launcher().understands(known, one) for one in named(["kvu", "no-repack", "tiled-mm-off", "vk-fusion-off"])
    ]
    assert understood == [True, False, True, False]


def test_a_setting_that_a_bare_server_has_differs_from_nothing() -> None:
    """The line of an audit has a buffer a slot already; a variable always differs."""
    differs = {one.name: launcher().differs(one) for one in named(["no-kvu", "cache-ram-0", "kvu", "tiled-mm-off"])}
    assert differs == {"no-kvu": False, "cache-ram-0": False, "kvu": True, "tiled-mm-off": True}


def test_a_program_says_what_it_understands(tmp_path: Path) -> None:
    """Its help is a fact of the record, and its files are searched for whole names."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho '--no-repack'; : GGML_CPU_TILED_MM GGML_VK_DISABLE_COOPMAT2\n")
    program.chmod(0o755)
    known = launcher(program).known()
    assert known == Known(
        build="binary:llama-server", help={"help": "--no-repack\n"}, variables=frozenset({"GGML_CPU_TILED_MM"})
    )


def test_a_program_that_fails_at_its_help_is_named_with_its_words(tmp_path: Path) -> None:
    """Nothing is started with a build that cannot say what it is."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho no such instruction >&2; exit 3\n")
    program.chmod(0o755)
    with pytest.raises(ServerError, match="exit 3") as raised:
        launcher(program).known()
    assert raised.value.hint == "no such instruction"
