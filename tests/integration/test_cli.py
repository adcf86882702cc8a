"""The command line: data on stdout, conversation on stderr, the verdict as exit code, one clear line an error."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from audit import __version__
from audit.cli import command_line
from audit.fake import FakeSettings, FakeThread, Faults
from tests.integration.auditing import REPOSITORY, fake_of, plan_of, verify
from tests.integration.commands import Command, Done

HEAVY = {"httpx", "matplotlib", "msgspec", "numpy", "pandas", "pydantic", "scipy"}
LINE = command_line()
VERBS = [command.name or "" for command in LINE.registered_commands]
GROUPS = [group.name or "" for group in LINE.registered_groups]
KEY = "sk-secret-0123456789"
SMALL = plan_of({"name": "repeat_greedy", "prompts": ["a"], "count": 2})


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return a small plan's file."""
    path = tmp_path / "plan.json"
    path.write_bytes(SMALL.to_bytes())
    return path


@pytest.fixture
def sealed(tmp_path: Path, plan: Path, command: Command) -> Path:
    """Return the folder of a small sealed run."""
    with fake_of(step_ms=0.0) as fake:
        assert command("run", "--server", f"s={fake.url}", "--plan", plan, "--out", tmp_path / "run").code == 0
    return tmp_path / "run"


def python(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - any argument
    """Run Python in the repository."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False, **more
    )


def assert_one_error(done: Done, message: str) -> None:
    """Check for exit code 2, nothing on stdout, one line of error and at most one line of what to do next."""
    assert done.code == 2
    assert done.out == ""
    first, *rest = done.err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert len(rest) <= 1
    assert all(line.startswith("  ") for line in rest)
    assert done.err.isascii()


def test_help_loads_no_heavy_library() -> None:
    """Help of the program answers with the standard library and typer alone; typer loads pydantic for a verb's help."""
    verbs = [[name, "--help"] for name in [*VERBS, *GROUPS]]
    for lists, allowed in (([["--help"], ["--version"]], set()), (verbs, {"pydantic"})):
        code = f"import sys; from audit.cli import _run; print([_run(a) for a in {lists}]); print(*sys.modules)"
        done = python("-c", code)
        assert done.stderr == ""
        *_, codes, modules = done.stdout.splitlines()
        assert set(json.loads(codes)) == {0}
        assert "typer" in modules.split()
        assert HEAVY & set(modules.split()) <= allowed


@pytest.mark.parametrize("arguments", [[], *[[name] for name in [*VERBS, *GROUPS]]], ids="-".join)
def test_help_is_plain_ascii_without_colour(command: Command, arguments: list[str]) -> None:
    """Every verb explains itself in ASCII, without boxes or escape sequences."""
    done = command(*arguments, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: determinism")
    assert done.out.isascii()
    assert "\x1b" not in done.out


def test_every_verb_of_the_table_is_there() -> None:
    """Those that this version has, in the order of a reader's way."""
    assert VERBS[:7] == ["demo", "serve", "fake", "probe", "plan", "run", "report"]


def test_the_module_is_the_same_program(command: Command) -> None:
    """`python -m audit` says and returns what `determinism` does."""
    for arguments in (["--help"], ["--version"], ["plan", "--quick", "--json"], ["report", "/nowhere"], ["mood"]):
        module, here = python("-m", "audit", *arguments), command(*arguments)
        assert (module.returncode, module.stdout, module.stderr) == here
    assert command("--version").out == f"determinism-audit {__version__}\n"


def test_the_scripts_name_leads_to_the_entry_point(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    """The console script calls `main`, which exits with the verdict."""
    from audit.cli import main

    assert 'determinism = "audit.cli:main"' in (repository / "pyproject.toml").read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["determinism", "report", "/nowhere"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve with a handler of the standard library."""
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """A plain web server that tells nobody what it serves."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Router(BaseHTTPRequestHandler):
    """What a llama-server router says about itself."""

    def do_GET(self) -> None:
        """Answer /props."""
        body = json.dumps({"role": "router", "models": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def closed_port() -> Iterator[str]:
    """Hold a port on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def fake_url(settings: FakeSettings) -> Iterator[str]:
    """Serve a fake."""
    with FakeThread(settings) as fake:
        yield fake.url


SERVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "an unreachable port": (closed_port, "s: /props cannot be reached (connect)"),
    "a wrong key": (lambda: fake_url(FakeSettings(api_key="other")), "s: the server refuses the API key"),
    "a loading server": (
        lambda: fake_url(FakeSettings(faults=Faults(loading_s=600.0))),
        "s: the server is still loading its model",
    ),
    "a plain web server": (lambda: http_server(Quiet), "s: /props answers 404, so this is no llama-server to audit"),
    "a router": (lambda: http_server(Router), "s: this is a llama-server router"),
}


@pytest.mark.parametrize("verb", ["run", "probe"])
@pytest.mark.parametrize("what", SERVERS)
def test_a_server_that_cannot_be_audited_is_one_clear_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Path, what: str, verb: str
) -> None:
    """Which server, what it is instead, and exit code 2; the key is nowhere shown."""
    serve, message = SERVERS[what]
    monkeypatch.setenv("DETERMINISM_API_KEY", KEY)
    more = ["--plan", plan, "--out", tmp_path / "run"] if verb == "run" else []
    with serve() as url:
        done = command(verb, "--server", f"s={url}", *more)
    assert_one_error(done, message)
    assert KEY not in done.err


BAD_PLAN = '{"name":"x","canary":{"prompt":"a"},"prompts":{"a":{"text":"x"}},"conditions":[],"colour":1}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--server", "127.0.0.1:8080"], "--server '127.0.0.1:8080' is not NAME=URL"),
        (["run", "--server", "s=ftp://x"], "is not NAME=URL"),
        (["probe", "--server", "s=http://u:pw@127.0.0.1"], "DETERMINISM_API_KEY"),
        (["run"], "no server is named"),
        (["run", "--server", "s=http://127.0.0.1:1", "--binary", "x"], "--binary x starts a server with a model"),
        (["run", "--server", "s=http://127.0.0.1:1", "--plan", "PLAN", "--quick"], "name two plans"),
        (["run", "--server", "s=http://127.0.0.1:1", "--plan", "BAD"], "plan.toml: colour: "),
        (["run", "--server", "s=http://127.0.0.1:1", "--plan", "/nowhere/plan.toml"], "No such file or directory"),
        (["run", "--server", "s=http://127.0.0.1:1", "--key-file", "/nowhere/key"], "--key-file /nowhere/key"),
        (["run", "--server", "s=http://127.0.0.1:1", "--declare", "/nowhere/d"], "--declare /nowhere/d"),
        (["run", "--local", "no-such-model"], "no-such-model"),
        (["plan", "--plan", "BAD"], "plan.toml: colour: "),
        (["report", "/nowhere"], "/nowhere is no run: it holds no manifest.json"),
        (["report"], "Missing argument"),
        (["fake", "--fault", "mood"], "--fault 'mood' is not known"),
        (["fake", "--fault", "one_ulp=x"], "--fault 'one_ulp=x' needs a number"),
        (["mood"], "No such command 'mood'"),
        (["plan", "--mood"], "No such option: --mood"),
        (["fake", "--slots", "0"], "Invalid value for '--slots'"),
    ],
)
def test_a_command_that_cannot_do_its_job_says_so_in_one_line(
    command: Command, tmp_path: Path, plan: Path, arguments: list[str], message: str
) -> None:
    """What, where and which value; exit code 2 and nothing on stdout."""
    (tmp_path / "plan.toml").write_text(
        'colour = 1\nname = "x"\ncanary = { prompt = "a" }\nprompts = { a = { text = "x" } }\n'
        'conditions = [{ name = "repeat_greedy", prompts = ["a"] }]\n'
    )
    files = {"PLAN": str(plan), "BAD": str(tmp_path / "plan.toml")}
    assert_one_error(command(*(files.get(argument, argument) for argument in arguments)), message)


def test_a_run_is_reported_twice_with_the_same_bytes(command: Command, sealed: Path) -> None:
    """Report is a pure function of the folder: same text, same files, and the verifier agrees."""
    first = command("report", sealed)
    files = {path.name: path.read_bytes() for path in sealed.iterdir() if path.is_file()}
    assert command("report", sealed) == first
    assert {path.name: path.read_bytes() for path in sealed.iterdir() if path.is_file()} == files
    assert first.code == 0
    assert first.out.isascii()
    assert first.out.splitlines()[-1].startswith("sound: 4 cells (")
    assert "next: python3 -I -S scripts/verify.py" in first.err
    assert verify(sealed)[0] == 0


def test_json_is_one_document_and_nothing_else(command: Command, sealed: Path, plan: Path) -> None:
    """Stdout of --json parses whole, and conversation stays away."""
    with fake_of() as fake:
        found = [
            command("report", sealed, "--json"),
            command("plan", "--plan", plan, "--json"),
            command("plan", "--plan", plan, "--resolved"),
            command("probe", "--server", f"s={fake.url}", "--json"),
        ]
    for done in found:
        assert (done.code, done.err) == (0, "")
        assert done.out.isascii()
        assert done.out.endswith("\n")
    report, cells, resolved, probed = (json.loads(done.out) for done in found)
    assert report["seal"]
    assert cells[0]["condition"] == "repeat_greedy"
    assert found[2].out.encode() == plan.read_bytes()
    assert resolved["name"] == "small"
    assert probed[0]["auditable"] is True


def test_an_unsealed_run_is_refused(command: Command, sealed: Path) -> None:
    """Without its seal a run is no evidence, for report and verify alike, and nothing is derived from it."""
    (sealed / "SHA256SUMS").unlink()
    assert_one_error(command("report", sealed), "is unsealed: its run did not end")
    assert verify(sealed)[0] == 2
    assert not (sealed / "findings.json").exists()


def test_evidence_that_contradicts_itself_is_exit_code_four(command: Command, sealed: Path) -> None:
    """A history that was cut after it was sealed."""
    path = sealed / "history.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    done = command("report", sealed)
    assert done.code == 4
    assert "history.jsonl is not the file that was sealed" in done.err
    assert verify(sealed)[0] == 4


def test_an_inconclusive_run_is_exit_code_three(command: Command, tmp_path: Path, plan: Path) -> None:
    """A control that does not diverge; the run itself did its job."""
    with fake_of(step_ms=0.0, seed_ignored=True) as fake:
        assert command("run", "--server", f"s={fake.url}", "--plan", plan, "--out", tmp_path / "run").code == 0
    done = command("report", tmp_path / "run")
    assert done.code == 3
    assert done.out.splitlines()[-1].startswith("inconclusive: ")
    assert verify(tmp_path / "run")[0] == 3


def test_a_bug_is_told_from_a_verdict(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever escapes is exit code 5, with the traceback and where to report it."""

    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("audit.report.plan.plan_text", broken)
    done = command("plan", "--quick")
    assert done.code == 5
    assert "ZeroDivisionError" in done.err
    assert "please report it" in done.err.splitlines()[-1]


def test_the_key_opens_the_server_and_is_nowhere_kept(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Path
) -> None:
    """From the environment, or from a file, which goes before it; no line of output or record holds it."""
    (tmp_path / "key").write_text(f"{KEY}\n")
    for name, options in (("variable", []), ("file", ["--key-file", tmp_path / "key"])):
        monkeypatch.setenv("DETERMINISM_API_KEY", KEY if name == "variable" else "wrong")
        with fake_of(step_ms=0.0, api_key=KEY) as fake:
            out = tmp_path / name
            done = command("run", "--server", f"s={fake.url}", "--plan", plan, "--out", out, *options)
        assert done.code == 0
        assert KEY not in done.out + done.err
        assert not [path for path in out.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_what_the_operator_declares_is_in_the_record(command: Command, tmp_path: Path, plan: Path) -> None:
    """By the server's name; a name that no server has is refused."""
    (tmp_path / "declare.json").write_text(json.dumps({"s": {"argv": ["llama-server", "-np", "8"]}}))
    options = ["--plan", plan, "--declare", tmp_path / "declare.json"]
    with fake_of(step_ms=0.0) as fake:
        assert command("run", "--server", f"s={fake.url}", *options, "--out", tmp_path / "run").code == 0
        refused = command("run", "--server", f"t={fake.url}", *options, "--out", tmp_path / "other")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    name = manifest["servers"][0]["declaration"].removeprefix("sha256:")
    assert json.loads((tmp_path / "run" / "facts" / f"{name}.json").read_bytes())["argv"][1:] == ["-np", "8"]
    assert_one_error(refused, "speaks of 's', which no --server names")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_where_it_is(tmp_path: Path, plan: Path, number: signal.Signals) -> None:
    """The first signal stops after the current unit: exit code 130, an unsealed record, the folder named."""
    out = tmp_path / "run"
    with fake_of(step_ms=20.0) as fake:
        arguments = ["-m", "audit", "run", "--server", f"s={fake.url}", "--plan", str(plan), "--out", str(out)]
        with subprocess.Popen(
            [sys.executable, *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            deadline = time.monotonic() + 60
            while not ((out / "history.jsonl").exists() and b'"invoke"' in (out / "history.jsonl").read_bytes()):
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            child.send_signal(number)
            stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 130
    assert stdout == ""
    assert f"interrupted: {out} is unsealed and keeps every finished attempt" in stderr
    assert verify(out)[0] == 2


def test_the_demo_shows_a_clean_and_a_faulty_server(command: Command, tmp_path: Path) -> None:
    """The whole pipeline without a model: sound, and only the planted fault moved anything."""
    done = command("demo", "--out", tmp_path / "demo")
    assert done.code == 0
    assert done.out.isascii()
    assert done.out.splitlines()[-1].startswith("sound: ")
    findings = json.loads((tmp_path / "demo" / "findings.json").read_bytes())
    moved = {cell["server"] for cell in findings["cells"] if not cell["condition"].startswith("control_")
             and cell["verdict"] in {"divergent", "token-identical"}}  # fmt: skip
    assert moved == {"faulty"}
    assert verify(tmp_path / "demo")[0] == 0
