"""A small accuracy study on a real llama.cpp server: decoded, captured, bounded, checked and verified.

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
from audit.local.models import resolve_model
from scripts.forgery import examine, load_verifier
from tests.integration.commands import Done

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

# Two members and long sequences: a wave must outlast the time in which its requests arrive on a busy machine.
MODEL, MEMBERS, ROWS = "tiny-llama-q4_0", 2, 128
PLAN = 'name = "live"\ncorpus = "{corpus}"\nrecorded = 1\nattempts = 50\n'


def test_a_study_on_a_real_server_is_complete_reproduced_and_verified(
    tmp_path: Path, repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every step is a command; the check is 0 or 1, its verification 0, and the reference comes out the same again."""

    def run(*words: object, accepted: tuple[int, ...] = (0,)) -> Done:
        code = run_command_line([str(word) for word in ["accuracy", *words]])
        done = Done(code, *capfd.readouterr())
        assert code in accepted, done.err
        return done

    decoded, corpus, plan, bounds = (
        tmp_path / name for name in ("f32.gguf", "corpus.json", "plan.toml", "bounds.json")
    )
    run("decode", MODEL, "--out", decoded)
    run("decode", MODEL, "--out", decoded, "--check")
    words = ["--name", "live", "--members", MEMBERS, "--prefill", "12,4,40,20", "--commit", "HEAD"]
    words += ["--model", f"{MODEL}={MODEL}={decoded}:{ROWS}", "--out", corpus]
    program = [sys.executable, "-m", "scripts.make_corpus", *map(str, words)]
    made = subprocess.run(program, cwd=repository, capture_output=True, text=True, check=True)
    plan.write_text(PLAN.format(corpus=made.stdout.split()[0]), encoding="ascii")

    def capture(group: str, *more: object) -> Path:
        folder = tmp_path / f"{'reference' if '--reference' in more else 'server'}-{group}"
        folder.mkdir()
        common = ["--model", MODEL, "--group", group, "--plan", plan, "--threads", 1, "--out", folder]
        run("capture", corpus, *common, *more)
        return folder

    references = [capture(group, "--reference", "--local", decoded) for group in GROUPS]
    original = capture("original", "--local", MODEL)
    run("calibrate", corpus, original, references[0], "--plan", plan, "--out", bounds)
    others = [capture(group, "--local", MODEL, "--bounds", bounds) for group in GROUPS[1:]]
    check = tmp_path / "check"
    words = [*references, original, *others, "--plan", plan, "--bounds", bounds, "--out", check]
    run("check", corpus, *words, accepted=(0, 1))
    findings = json.loads((check / "findings.json").read_bytes())
    assert [cell["rows"] for cell in findings["cells"]] == [MEMBERS * ROWS] * 8
    # The calibration rows are within bounds of 1.5 times their largest by construction.
    assert [cell["failed"] for cell in findings["cells"] if cell["group"] == "original"] == [0, 0]
    assert {source["build"] for source in findings["sources"]} == {findings["sources"][0]["build"]}
    report = examine(load_verifier(), check)
    assert (report["exit"], report["contradictions"]) == (0, []), report["sentence"]
    again = tmp_path / "again"
    again.mkdir()
    done = run("reproduce", references[1], "--local", decoded, "--out", again)
    assert done.out.splitlines()[-1].startswith(f"{MEMBERS * ROWS} of {MEMBERS * ROWS} rows are the same, by xllamacpp")
    assert resolve_model(MODEL).sha256 in (original / "history.jsonl").read_text()
