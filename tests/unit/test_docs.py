"""What the pages say can be followed: links resolve, commands exist, the examples are valid, the tables are the code's.

A page is a Markdown file that git tracks or would add, without those of stored runs. Of a fenced block the language
says what it is: `console` lines that run `determinism` or the verifier must name existing verbs and options, a `toml`
block is a plan, and a `diff` block adds and shows lines that its file really has.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from audit.cli import command_line
from audit.conditions import FAMILIES
from audit.plan import Canary, Plan, Prompt, Sampling
from audit.trial import Entry
from tests.unit.test_architecture import RANKS

REPOSITORY = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
VERIFIER = "scripts/verify.py"
MODELS: dict[str, type[BaseModel]] = {
    "plan": Plan,
    "prompts": Prompt,
    "sampling": Sampling,
    "canary": Canary,
    "conditions": Entry,
}


def page_names() -> list[str]:
    """Return the pages, relative to the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    names = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\0")
    pages = {name for name in names if name and not re.match(r"results/[^/]+/", name)}
    return sorted(name for name in pages if (REPOSITORY / name).is_file())


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language."""
    return [match[2] for match in FENCE.finditer(page) if match[1] == language]


def anchors(page: str) -> set[str]:
    """Return what a link may name behind `#`: the headings, as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ +(.+?)\s*$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(name: str) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    text = FENCE.sub("", (REPOSITORY / name).read_text(encoding="ascii"))
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (REPOSITORY / name).parent / path if path else REPOSITORY / name
        there = target.exists() and target.resolve().is_relative_to(REPOSITORY)
        if not there or (anchor and anchor not in anchors(target.read_text(encoding="ascii"))):
            broken.append(link)
    return broken


def command_lines(block: str) -> list[str]:
    """Return the commands of a console block: what follows `$ ` where any line does, else every line."""
    lines = block.replace("\\\n", " ").splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or lines


def commands(page: str, program: str) -> Iterator[list[str]]:
    """Yield the words after `program` of each console line that runs it, up to a pipe, redirection or comment."""
    for block in blocks(page, "console"):
        for line in command_lines(block):
            words = shlex.split(line, comments=True)
            if program not in words[:4] or (program == "determinism" and words[0] != program):
                continue
            words = words[words.index(program) + 1 :]
            ends = [at for at, word in enumerate(words) if re.fullmatch(r"[|&;]+|\d?>+.*", word)]
            yield words[: min(ends, default=len(words))]


def unknown_words(words: list[str]) -> list[str]:
    """Return the verb that `determinism` does not have, or the options that the verb does not have."""
    command: Any = get_command(command_line())
    rest = list(words)
    while getattr(command, "commands", None) is not None and rest and not rest[0].startswith("-"):
        verb = rest.pop(0)
        if verb not in command.commands:
            return [verb]
        command = command.commands[verb]
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return [word for word in rest if word.startswith("-") and word.partition("=")[0] not in options]


@cache
def verifier_options() -> set[str]:
    """Return the options that the verifier's help names."""
    command = [sys.executable, "-I", "-S", VERIFIER, "--help"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", shown))


def field_rows(page: str) -> dict[str, dict[str, str]]:
    """Return, for each `### NAME` section of the plan's page, the default that its table gives each field."""
    rows: dict[str, dict[str, str]] = {}
    section = ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.strip("#` ")
        elif match := re.match(r"\| `(\w+)` \| [^|]+ \| ([^|]+) \|", line):
            rows.setdefault(section, {})[match[1]] = match[2].strip().strip("`")
    return rows


def shown_default(model: type[BaseModel], name: str) -> str:
    """Return how the plan's page writes a field's default."""
    field: FieldInfo = model.model_fields[name]
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, Sampling):
        return "the defaults below"
    return {"None": "none", "[]": "[]"}.get(str(default), f'"{default}"' if isinstance(default, str) else str(default))


@pytest.mark.parametrize("name", page_names())
def test_every_relative_link_resolves(name: str) -> None:
    """The file is there, inside the repository, and so is the heading that a link names."""
    assert broken_links(name) == []


@pytest.mark.parametrize("name", page_names())
def test_every_command_names_an_existing_verb_and_existing_options(name: str) -> None:
    """A reader can paste each console line; what it starts is there."""
    page = (REPOSITORY / name).read_text(encoding="ascii")
    assert {" ".join(words): odd for words in commands(page, "determinism") if (odd := unknown_words(words))} == {}
    options = {word for words in commands(page, VERIFIER) for word in words if word.startswith("-")}
    assert {option for option in options if option not in verifier_options()} == set()


@pytest.mark.parametrize("name", page_names())
def test_every_toml_block_is_a_plan(name: str) -> None:
    """Examples are complete and valid, and unfold."""
    for block in blocks((REPOSITORY / name).read_text(encoding="ascii"), "toml"):
        plan = Plan.parse(tomllib.loads(block), name=name)
        assert plan.unfold("sha256:" + "0" * 64)


@pytest.mark.parametrize("name", page_names())
def test_every_line_that_a_diff_shows_is_in_its_file(name: str) -> None:
    """Added lines and lines around them are those of the code as it is."""
    for block in blocks((REPOSITORY / name).read_text(encoding="ascii"), "diff"):
        path = ""
        for line in block.splitlines():
            if line.startswith("+++ b/"):
                path = line.removeprefix("+++ b/")
            elif line[:1] in {"+", " "}:
                assert line[1:] in (REPOSITORY / path).read_text(encoding="ascii").splitlines(), path


def test_the_plans_page_gives_every_field_with_its_default() -> None:
    """docs/reference/plan.md has one table a struct, and each field's default is the code's."""
    rows = field_rows((REPOSITORY / "docs/reference/plan.md").read_text(encoding="ascii"))
    for section, model in MODELS.items():
        assert rows[section] == {name: shown_default(model, name) for name in model.model_fields}


def test_the_plans_page_names_every_family_and_what_it_needs() -> None:
    """A family's row names its cells and the fields that an entry of it must give."""
    page = (REPOSITORY / "docs/reference/plan.md").read_text(encoding="ascii").split("## Families")[1]
    for name, family in FAMILIES.items():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` | ")), "")
        assert row, name
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert re.findall(r"`(\w+)`", cells[2]) == list(family.needs), name
        assert re.findall(r"`(\w+)`", cells[1]) == [cell.replace("{level}", "C") for cell in family.conditions], name


def test_the_map_gives_every_module_its_rank() -> None:
    """The table of docs/map.md is the one that tests/unit/test_architecture.py enforces."""
    page = (REPOSITORY / "docs/map.md").read_text(encoding="ascii")
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", page, re.MULTILINE)
    shown = {name: int(rank) for rank, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert shown == {name or "__init__": rank for name, rank in RANKS.items()}


def test_the_map_names_every_module() -> None:
    """Each file of audit/ and scripts/ stands in docs/map.md, so that a new one is not forgotten."""
    page = (REPOSITORY / "docs/map.md").read_text(encoding="ascii")
    files = [*(REPOSITORY / "audit").rglob("*.py"), *(REPOSITORY / "scripts").glob("*")]
    names = [path.relative_to(REPOSITORY).as_posix() for path in files if path.is_file() and path.suffix != ".pyc"]
    skipped = ("audit/__init__.py", "audit/__main__.py")
    assert [name for name in sorted(names) if name not in skipped and f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        ("determinism report RUN --json", []),
        ("determinism --version", []),
        ("determinism plan --quick > plan.txt", []),
        ("determinism run --server a=http://127.0.0.1:1 --port 3", ["--port"]),
        ("determinism sing --loud", ["sing"]),
        ("determinism prereg status prereg/audit --json", []),
        ("determinism prereg burn prereg/audit", ["burn"]),
        ("determinism --loud", ["--loud"]),
        ("$ determinism plan \\\n  --fast", ["--fast"]),
    ],
)
def test_a_wrong_verb_or_option_is_found(line: str, odd: list[str]) -> None:
    """The check itself tells right from wrong."""
    assert [unknown_words(words) for words in commands(f"```console\n{line}\n```\n", "determinism")] == [odd]


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a missing heading and a way out of the repository are broken; addresses are not followed."""
    monkeypatch.setattr(sys.modules[__name__], "REPOSITORY", tmp_path)
    (tmp_path / "there.md").write_text("# One head-line, `here`\n", encoding="ascii")
    text = "[a](there.md) [b](there.md#one-head-line-here) [c](https://example.org/x) [d](gone.md) [e](there.md#no) "
    (tmp_path / "page.md").write_text(text + "[f](../x)\n```text\n[g](gone.md)\n```\n", encoding="ascii")
    assert broken_links("page.md") == ["gone.md", "there.md#no", "../x"]


def coreutils_lines() -> list[str]:
    """Return the lines of the how-to that check a store with coreutils alone, one command each."""
    page = (REPOSITORY / "docs/how-to/verify-someone-elses-run.md").read_text(encoding="ascii")
    section = page.split("\n## ")[1]
    return [line for block in blocks(section, "console") for line in block.splitlines()]


def run_line(line: str, run: Path) -> subprocess.CompletedProcess[str]:
    """Run a console line on a run folder, as a reader would."""
    command = ["bash", "-o", "pipefail", "-c", line.replace("RUN", shlex.quote(str(run)))]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_coreutils_lines_of_the_how_to_hold_of_a_stored_run_and_not_of_a_changed_one(tmp_path: Path) -> None:
    """They are executed: silent but for the seal's digest and the number of streams; one flipped bit fails both."""
    stored = REPOSITORY / "results" / "2026-11-30-skulk-b10434-tiny"
    seal, store, count = coreutils_lines()
    listed = run_line(seal, stored)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.split()[0] == hashlib.sha256((stored / "SHA256SUMS").read_bytes()).hexdigest()
    assert (run_line(store, stored).returncode, run_line(store, stored).stdout) == (0, "")
    assert int(run_line(count, stored).stdout) == len(list((stored / "streams").iterdir()))
    changed = tmp_path / "run"
    shutil.copytree(stored, changed)
    stream = min((changed / "streams").iterdir())
    data = bytearray(stream.read_bytes())
    data[-2] ^= 1
    stream.write_bytes(bytes(data))
    assert run_line(seal, changed).returncode != 0
    assert run_line(store, changed).returncode != 0
