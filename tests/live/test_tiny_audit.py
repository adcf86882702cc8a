"""The instrument on two real llama.cpp servers: it holds, whatever the servers are found to be.

No verdict of a real server is asserted here: which cells are identical depends on the processor and the build. Proofs,
controls, canaries, accounting and exit codes do not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from audit.cli import _run as run_command_line
from audit.client import Address
from audit.local.launch import LaunchSettings
from audit.local.models import resolve_model
from audit.local.owned import OwnedServer, start_embedded
from audit.sitting import Target
from tests.integration.auditing import Found, judge, plan_of, run, verify

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

MODELS = ("tiny-llama-f32", "tiny-qwen2-q8_0")
# One thread: several wait for each other at every step, which takes minutes where other programs use the processor.
SETTINGS = LaunchSettings(slots=4, ctx_per_slot=512, threads=1)
# A tiny model makes 64 steps in some 20 ms, of which a released wave overlaps well more than half.
PLAN = plan_of(
    {"name": "first_request", "prompts": ["a"], "count": 2},
    {"name": "repeat_greedy", "prompts": ["a", "b"], "count": 3},
    {"name": "repeat_seeded", "prompts": ["a"], "count": 2},
    {"name": "other_slot", "prompts": ["a"], "levels": [2]},
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2, 4], "again": 1},
    {"name": "concurrent_seeded", "prompts": ["b"], "levels": [4]},
    {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["b"]},
    {"name": "cache", "prompts": ["story"], "opener": "b"},
    {"name": "prefill_vs_decode", "prompts": ["b"]},
    {"name": "stream_vs_whole", "prompts": ["a"]},
    {"name": "without_logprobs", "prompts": ["a"]},
    {"name": "restart", "prompts": ["a"]},
    steps=64,
    n_probs=10,
)
CHECKS = ("control_prompt", "control_seed", "control_temperature", "canary", "float32", "top_k", "settings")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OwnedServer]]:
    """Two embedded servers with models of random weights."""
    logs = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(start_embedded(resolve_model(name), SETTINGS, log_dir=logs)) for name in MODELS
        }


@pytest.fixture(scope="module")
def found(servers: dict[str, OwnedServer], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Both servers audited in one run, on which the two programs agree field by field."""
    folder = tmp_path_factory.mktemp("record") / "run"
    targets = [Target(address=Address(label=name, url=server.url), owned=server) for name, server in servers.items()]
    assert run(folder, PLAN, *targets) is not None
    return judge(folder)


def test_the_record_is_sound(found: Found) -> None:
    """Every control diverged, both canaries of each server are equal to the bit, and the verifier says the same."""
    entries = found.document["instrument"]
    held = {(entry["server"], entry["check"]) for entry in entries if entry["status"] == "held"}
    assert {(name, check) for name in MODELS for check in CHECKS} <= held
    assert found.document["sound"] is True
    assert verify(found.run.folder)[0] == 0


def test_nothing_is_tainted_and_nothing_crossed(found: Found) -> None:
    """Idle before and after each unit, every token accounted for, the same server throughout, no foreign reply."""
    for cell in found.document["cells"]:
        excluded = cell["excluded"]
        assert (excluded["tainted"], excluded["cross-talk"], excluded["failed"], excluded["unsupported"]) == (
            0,
            0,
            0,
            0,
        )
        assert cell["verdict"] not in {"tainted", "cross-talk", "unsupported", "not run"}


def test_every_reply_is_what_was_asked(found: Found) -> None:
    """All settings are echoed as sent, all logprobs are float32, no reply failed, and none has a hole."""
    for check in ("settings", "float32", "top_k"):
        for entry in found.document["instrument"]:
            if entry["check"] == check:
                assert 0 < entry["k"] == entry["n"]
    completes = found.lines("complete")
    assert [line["failure"] for line in completes] == [None] * len(completes)
    assert {line["reply"]["holes"] for line in completes} == {0}
    assert {line["reply"]["truncated"] for line in completes} == {False}


def test_every_restart_is_a_new_process_of_the_same_server(found: Found) -> None:
    """What the operator declares and the server attests stays; the process differs each time."""
    for name in MODELS:
        lines = [line for line in found.lines("server") if line["server"] == name]
        assert [line["phase"] for line in lines] == ["start", "restart", "restart", "end"]
        processes = [json.dumps(line["attested"]["process"]) for line in lines]
        assert len(set(processes)) == 3
        assert len({line["attested"]["props"] for line in lines}) == 1
        for condition in ("first_request", "restart"):
            assert "process" not in found.cell(condition, name)["reasons"]


def test_a_server_of_our_own_is_declared(found: Found) -> None:
    """Model digest and build are facts of the record, with no path of this machine in any of them."""
    for entry in found.run.manifest.servers:
        assert entry.owned
        declared = found.run.fact(entry.declaration or "")
        assert declared["model_sha256"] == resolve_model(entry.label).sha256
    text = b"".join(path.read_bytes() for path in found.run.folder.rglob("*.json*"))
    assert str(Path.home()).encode() + b"/" not in text


def test_run_report_and_verify_agree_on_the_exit_code(
    tmp_path: Path, servers: dict[str, OwnedServer], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line against the same servers as anybody else's: no restart, nothing owned, still sound."""
    (tmp_path / "plan.json").write_bytes(PLAN.to_bytes())
    options = [text for name, server in servers.items() for text in ("--server", f"{name}={server.url}")]
    arguments = ["run", *options, "--plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run")]
    assert run_command_line(arguments) == 0
    reported = run_command_line(["report", str(tmp_path / "run")])
    assert reported == verify(tmp_path / "run")[0] == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("sound: ")
    seen = judge(tmp_path / "run")
    assert {line["reason"] for line in seen.lines("skip")} == {"not owned"}
    assert seen.cell("restart", MODELS[0])["verdict"] == "not run"


def test_the_probe_finds_a_real_server_auditable(
    servers: dict[str, OwnedServer], capsys: pytest.CaptureFixture[str]
) -> None:
    """Full precision, logprobs, slots, metrics; four slots are few, and that is said."""
    assert run_command_line(["probe", "--server", f"s={servers[MODELS[0]].url}", "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert account["replies"]["logprobs"] == account["replies"]["logprobs_float32"] == 80
    assert account["attested"]["slots"] == 4
    assert account["warnings"] == ["4 slots: waves of more requests are vacuous and not sent"]


def test_the_command_of_the_readme_runs_to_its_end(repository: Path) -> None:
    """`./reproduce.sh --tiny` starts two servers, audits, reports, verifies, and exits 0 on a sound record."""
    if not (repository / ".venv" / "bin" / "determinism").exists():
        pytest.skip("there is no .venv yet; ./scripts/gate.sh makes it")
    before = {path.name for path in (repository / "results" / "local").glob("*")}
    done = subprocess.run(
        ["./reproduce.sh", "--tiny"],
        cwd=repository, capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = {path.name for path in (repository / "results" / "local").glob("*")} - before
    assert f"the record is results/local/{made} (exit 0)" in done.stderr
    assert done.stdout.count("sound: ") == 2
    assert verify(repository / "results" / "local" / made)[0] == 0
    shutil.rmtree(repository / "results" / "local" / made)
