"""A small accuracy study on a real llama.cpp server: decoded, captured, bounded, checked, reproduced and verified.

Which rows are within their bounds is not asserted: that depends on the processor and the build. That everything is
proven, counted, reproduced and judged alike by the verifier is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from audit.accuracy.corpus import GROUPS
from audit.cli import _run as run_command_line
from scripts.forgery import examine, load_verifier

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

# Two members and longer sequences: a wave must outlast the time in which its requests arrive on a busy machine.
MODEL, MEMBERS, ROWS = "tiny-llama-q4_0", 2, 64
PLAN = 'name = "live"\ncorpus = "{corpus}"\nrecorded = 1\nattempts = 50\n'


def run(*words: object, accepted: tuple[int, ...] = (0,)) -> None:
    """Run one verb of `accuracy`, which must end with an accepted code."""
    assert run_command_line(["accuracy", *map(str, words)]) in accepted


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Every capture of a study in one folder, the server's of short, long and fresh under frozen bounds."""
    root = tmp_path_factory.mktemp("study")
    decoded, corpus = root / "f32.gguf", root / "corpus.json"
    run("decode", MODEL, "--out", decoded)
    run("decode", MODEL, "--out", decoded, "--check")
    words = ["--name", "live", "--members", MEMBERS, "--prefill", "12,4,40,20", "--commit", "HEAD", "--out", corpus]
    program = [sys.executable, "-m", "scripts.make_corpus", *map(str, words)]
    program += ["--model", f"{MODEL}={MODEL}={decoded}:{ROWS}"]
    made = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=True)
    (root / "plan.toml").write_text(PLAN.format(corpus=made.stdout.split()[0]), encoding="ascii")
    for group in GROUPS:
        capture(root, group, "reference", "--reference", "--local", decoded)
    capture(root, "original", "server", "--local", MODEL)
    originals = [root / "server-original", root / "reference-original"]
    run("calibrate", corpus, *originals, "--plan", root / "plan.toml", "--out", root / "bounds.json")
    for group in GROUPS[1:]:
        capture(root, group, "server", "--local", MODEL, "--bounds", root / "bounds.json")
    return root


def capture(root: Path, group: str, side: str, *more: object) -> None:
    """Capture one group of one side, with one thread: several wait for each other at every step."""
    folder = root / f"{side}-{group}"
    folder.mkdir()
    common = ["--model", MODEL, "--group", group, "--plan", root / "plan.toml", "--threads", 1, "--out", folder]
    run("capture", root / "corpus.json", *common, *more)


def test_a_study_on_a_real_server_is_complete_and_verified(root: Path) -> None:
    """The check is 0 or 1, every row is counted, and the verifier agrees after measuring all rows again."""
    folders = [root / f"{side}-{group}" for side in ("server", "reference") for group in GROUPS]
    words = ["--plan", root / "plan.toml", "--bounds", root / "bounds.json", "--out", root / "check"]
    run("check", root / "corpus.json", *folders, *words, accepted=(0, 1))
    findings = json.loads((root / "check" / "findings.json").read_bytes())
    assert [cell["rows"] for cell in findings["cells"]] == [MEMBERS * ROWS] * 8
    # The calibration rows are within bounds of 1.5 times their largest by construction.
    assert [cell["failed"] for cell in findings["cells"] if cell["group"] == "original"] == [0, 0]
    assert {source["build"] for source in findings["sources"]} == {findings["sources"][0]["build"]}
    report = examine(load_verifier(), root / "check")
    assert (report["exit"], report["contradictions"]) == (0, []), report["sentence"]
    counts = {one["name"]: one["count"] for one in report["checks"]}
    assert counts["metrics"] >= 8 * MEMBERS * ROWS


def test_the_reference_comes_out_the_same_again(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Captured again from its own record, every row has its digest, and the build is named."""
    (tmp_path / "again").mkdir()
    run("reproduce", root / "reference-short", "--local", root / "f32.gguf", "--out", tmp_path / "again")
    said = capfd.readouterr().out.splitlines()[-1]
    assert said.startswith(f"{MEMBERS * ROWS} of {MEMBERS * ROWS} rows are the same, by xllamacpp")
    assert examine(load_verifier(), tmp_path / "again")["sentence"].endswith("reproduces 128 of 128 rows")
