"""The commands and snippets of README.md and docs/ are executed; what is marked `recorded` is what stored runs say.

In: the fenced blocks of every page. A `console` block is run line by line by bash, in a folder of links that looks like
a checkout, page by page, in order; servers are look-alikes, so that seconds suffice. A `python` block is run beside the
stored runs. A block below `<!-- recorded -->` shows commands after `$ ` with their output, which is compared; a line
`...` stands for any rest. What cannot be run in a test is listed in NOT_RUN, with the test or script that does run it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.fake import FakeSettings, FakeThread
from audit.report import derive
from audit.report.wave_plots import growth_plot
from tests.integration.auditing import REPOSITORY, plan_of, target
from tests.integration.auditing import run as run_plan
from tests.unit.test_docs import FENCE, blocks, command_lines, page_names

RECORDED = re.compile(r"^<!-- recorded -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT_AFTER = re.compile(r"^```python\n(.*?)^```$(.*?)(?=^```python|^#|\Z)", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240
# Commands that no test may run, and who runs them.
NOT_RUN = {
    r"\./scripts/gate\.sh": "it runs this test",
    r"\./reproduce\.sh": "tests/live, on tiny models",
    r"determinism serve ": "it serves until it is ended: tests/live/test_local.py",
    r"determinism fake --port": "it serves until it is ended: tests/integration/test_cli.py",
    r"determinism run --resume ": "it needs a run that did not end: tests/integration/test_stopping.py",
    r"determinism remedy --resume ": "it needs a remedy that did not end: tests/integration/test_remedy_resume.py",
    r".*--(?:ca|key-file) ": "tests/integration/test_tls.py, with a certificate of its own",
    r"\.venv/bin/python -m pytest": "it is what runs this",
    r"python scripts/accuracy_study\.py ": "minutes to hours: tests/live/test_accuracy.py runs a smaller cut",
    r"determinism remedy --model ": "minutes: tests/live/test_remedy.py",
    r"determinism isolate |python3 -I -S scripts/verify\.py results/local/remedy": "tests/integration/test_isolate.py, "
    "and test_remedy.py",
    r"determinism accuracy |python scripts/make_corpus\.py ": "tests/integration/test_accuracy.py",
    r"python3 -I -S scripts/verify\.py check$|determinism export check ": "tests/integration/test_accuracy.py",
}
# What a page leaves to its reader, and the reader of a test.
PLACES = {
    r"http://(?:127\.0\.0\.1|192\.0\.2\.7):80\d\d": "{url}",
    r"--local tiny-llama-f32": "--server tiny-llama-f32={url}",
    r"\bresults/RUN\b|(?<![\w/:-])RUN\b": "results/given",
    r"sha256:DEPOSITED_DIGEST": "{seal}",
    r"\bTRIAL\b": "baseline/greedy/a",
    r"\b(?:ONE|OTHER)\.jsonl": "{stream}",
}
EXITS = {"--fault seed_ignored": 3, "prereg status": 3, "streams/1a6e": 1}


def console_pages() -> list[str]:
    """Return the pages with a console block."""
    return [name for name in page_names() if blocks((REPOSITORY / name).read_text(encoding="ascii"), "console")]


def executed(name: str) -> list[str]:
    """Return the commands of a page that are run, without those of recorded blocks."""
    page = RECORDED.sub("", (REPOSITORY / name).read_text(encoding="ascii"))
    lines = [line for block in blocks(page, "console") for line in command_lines(block)]
    return [line for line in lines if not any(re.match(pattern, line) for pattern in NOT_RUN)]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeThread]:
    """Serve a look-alike that answers at once."""
    with FakeThread(FakeSettings(step_ms=0.5)) as served:
        yield served


@pytest.fixture(scope="module")
def given(fake: FakeThread, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small reported run, which stands for the reader's."""
    folder = tmp_path_factory.mktemp("given") / "run"
    assert run_plan(folder, plan_of({"name": "repeat_greedy", "prompts": ["a"], "count": 2}), target(fake.url))
    derive(folder)
    return folder


@pytest.fixture
def checkout(tmp_path: Path, given: Path) -> Path:
    """Return a folder that looks like a checkout, and into which results and plans can be written."""
    for path in REPOSITORY.iterdir():
        if path.name not in {"results", "prereg", "my-plan.toml"}:
            (tmp_path / path.name).symlink_to(path)
    for folder in ("results", "prereg"):
        (tmp_path / folder).mkdir()
        for path in (REPOSITORY / folder).iterdir():
            if path.name != "local":
                (tmp_path / folder / path.name).symlink_to(path)
    (tmp_path / "results" / "given").symlink_to(given)
    (tmp_path / "declared.json").write_text('{"mine": {"argv": ["llama-server"]}}')
    plans = blocks((REPOSITORY / "docs/how-to/write-a-plan.md").read_text(encoding="ascii"), "toml")
    (tmp_path / "my-plan.toml").write_text(plans[0])
    return tmp_path


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one line as a reader would, with this project's program first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env={**os.environ, "PATH": path, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("name", console_pages())
def test_the_commands_of_a_page_work_in_their_order(name: str, checkout: Path, given: Path, fake: FakeThread) -> None:
    """Each exits as it should; `run` goes where the page says and is found there by what follows."""
    seal = shell("determinism seal results/given", checkout).stdout.strip()
    stream = next((given / "streams").iterdir()).name
    for line in executed(name):
        command = line
        for pattern, value in PLACES.items():
            command = re.sub(pattern, value.format(url=fake.url, seal=seal, stream=stream), command)
        done = shell(command, checkout)
        expected = next((code for words, code in EXITS.items() if words in line), 0)
        assert done.returncode == expected, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def recorded() -> list[tuple[str, str]]:
    """Return the recorded blocks with the name of their page."""
    pages = {name: (REPOSITORY / name).read_text(encoding="ascii") for name in page_names()}
    return [(name, block) for name, page in pages.items() for block in RECORDED.findall(page)]


@pytest.mark.parametrize(("name", "block"), recorded(), ids=[name for name, _ in recorded()])
def test_what_is_recorded_is_what_a_stored_run_says(name: str, block: str) -> None:
    """The command is run again on the stored run, and says exactly what the page shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        assert "results/2" in command, f"{name}: {command} names no stored run"
        done = shell(command, REPOSITORY)
        said = [line.rstrip() for line in done.stdout.splitlines()]
        lines = [line.rstrip() for line in shown.rstrip("\n").splitlines()]
        if lines and lines[-1] == "...":
            lines.pop()
            said = said[: len(lines)]
        assert said == lines, f"{name}: {command}\n{done.stderr}"


def snippets() -> list[tuple[str, str, str | None]]:
    """Return the Python blocks of all pages, with the text block that shows what one prints, if there is one."""
    found = []
    for name in page_names():
        for code, after in OUTPUT_AFTER.findall((REPOSITORY / name).read_text(encoding="ascii")):
            shown = [match[2] for match in FENCE.finditer(after.lstrip("\n")) if match[1] == "text"]
            found.append((name, code, shown[0] if shown else None))
    return found


@pytest.mark.parametrize(
    ("name", "code", "shown"), snippets(), ids=[f"{name}-{at}" for at, (name, _, _) in enumerate(snippets())]
)
def test_every_snippet_runs_and_prints_what_is_shown(name: str, code: str, shown: str | None, tmp_path: Path) -> None:
    """In a folder beside the stored runs, so that nothing is written into the repository."""
    (tmp_path / "results").symlink_to(REPOSITORY / "results")
    (tmp_path / "snippet.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "snippet.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{name}\n{done.stderr}"
    assert done.stdout
    if shown is not None:
        assert done.stdout == shown


def test_the_pandas_page_repeats_the_figure_of_the_report() -> None:
    """The numbers that its snippet prints are those of the plot, before the plot rounds them outwards."""
    found = json.loads((REPOSITORY / "results/2026-11-30-embedded-b11549/findings.json").read_text())
    servers = list(dict.fromkeys(cell["server"] for cell in found["cells"]))
    plot = growth_plot(
        found["cells"], servers, lambda verdict: verdict in {"identical", "token-identical", "divergent"}
    )
    assert plot is not None
    greedy = plot.data[plot.data["kind"] == "greedy"]
    page = (REPOSITORY / "docs/how-to/load-in-pandas.md").read_text(encoding="ascii")
    (table,) = (block for block in blocks(page, "text") if "divergent" in block)
    rows = [line.split() for line in table.splitlines()[1:]]
    assert [(row[0], float(row[1]), int(row[2]), int(row[3])) for row in rows] == [
        (row["server"], row["level"], row["waves moved"], row["waves"]) for _, row in greedy.iterrows()
    ]
    assert all(abs(float(row[5]) - low) <= 0.0005 for row, low in zip(rows, greedy["low"], strict=True))
