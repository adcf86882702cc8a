"""Owning a process: started, confirmed, restarted, stopped, with a few lines of Python in the place of llama-server."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.errors import ServerError, UsageError
from audit.local import owned
from audit.local.launch import HOST, LaunchSettings
from audit.local.models import ModelFile
from audit.local.owned import OwnedServer, start_binary, start_embedded
from audit.local.process import free_port, is_port_free

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script with a first line")

STAND_IN = """
    import http.server, json, os, signal, sys
    words = sys.argv[1:]
    print("stand-in", os.getcwd(), sys.stdin.read() == "", flush=True)
    if "--die" in words:
        sys.exit("error: invalid argument: --die")
    if "--illegal" in words:
        os.kill(os.getpid(), signal.SIGILL)
    if "--deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    name = "other.gguf" if "--other" in words else words[words.index("-m") + 1]
    slots = int(words[words.index("-np") + 1])
    status = 503 if "--loading" in words else 200
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"model_path": name, "total_slots": slots}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    http.server.HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
"""

Start = Callable[..., OwnedServer]


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    """A file that stands for a model."""
    path = tmp_path / "models" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    return ModelFile(name="m", path=path, sha256="0" * 64)


@pytest.fixture
def start(tmp_path: Path, model: ModelFile) -> Start:
    """Start the stand-in with its own flags."""
    binary = tmp_path / "llama-server"
    binary.write_text(f"#!{sys.executable}\n" + textwrap.dedent(STAND_IN), encoding="ascii")
    binary.chmod(0o755)

    def run(*flags: str, port: int = 0, deadline_s: float = 30.0) -> OwnedServer:
        settings = LaunchSettings(slots=2, threads=1, extra_args=flags)
        return start_binary(binary, model, settings, port=port, deadline_s=deadline_s, log_dir=tmp_path / "logs")

    return run


def test_a_started_server_runs_in_the_models_folder(start: Start, model: ModelFile) -> None:
    """It is ready when the call returns, has read nothing from our pipe, and its log is kept."""
    with start() as server:
        assert server.is_running
        assert server.url == f"http://127.0.0.1:{server.port}"
        assert server.log_path.read_text().startswith(f"stand-in {model.path.parent} True")
        assert 0 < server.ready_ms < 30_000


def test_leaving_the_context_ends_the_process(start: Start) -> None:
    """The port is free, the process is gone, asking for it is an error, and stopping again is allowed."""
    with start() as server:
        port = server.port
    assert is_port_free(HOST, port)
    assert not server.is_running
    server.stop()
    with pytest.raises(ServerError, match="was stopped"):
        _ = server.pid
    with pytest.raises(ServerError, match="has ended"):
        server.declaration()


def test_a_restart_is_a_new_process_on_the_same_port(start: Start) -> None:
    """Port and settings stay, process and log are new."""
    with start() as server:
        before = (server.pid, server.log_path)
        url = server.url
        server.restart()
        assert server.url == url
        assert server.pid != before[0]
        assert server.log_path != before[1]
        assert server.is_running


def test_a_server_that_ignores_sigterm_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace comes SIGKILL, and stop returns only when the process is gone."""
    monkeypatch.setattr(owned, "_GRACE_SECONDS", 0.05)
    server = start("--deaf")
    server.stop()
    assert is_port_free(HOST, server.port)


def test_an_unknown_flag_shows_the_servers_own_words(start: Start) -> None:
    """The error says that it ended, the hint quotes its log."""
    with pytest.raises(ServerError, match="ended with code 1 while it started") as caught:
        start("--die")
    assert "error: invalid argument: --die" in str(caught.value.hint)


def test_a_build_for_another_processor_is_recognised(start: Start) -> None:
    """SIGILL is told in words, since nothing in a log does."""
    with pytest.raises(ServerError, match="an instruction that this processor lacks"):
        start("--illegal")


def test_the_deadline_ends_a_server_that_loads_for_ever(start: Start) -> None:
    """When the deadline passes the process is stopped, not left behind."""
    port = free_port(HOST)
    with pytest.raises(ServerError, match=r"was not ready after 0\.5 s"):
        start("--loading", deadline_s=0.5, port=port)
    assert is_port_free(HOST, port)


def test_a_server_with_another_model_is_refused(start: Start) -> None:
    """What it attests must be what was asked for; both are shown."""
    with pytest.raises(ServerError, match=r"other\.gguf.*not.*m\.gguf"):
        start("--other")


def test_a_port_in_use_is_a_usage_error(start: Start) -> None:
    """A port that the user chose is never replaced silently."""
    with start() as server, pytest.raises(UsageError, match=f"port {server.port} is in use"):
        start(port=server.port)


def test_a_lost_race_for_the_port_is_run_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody else answers on the port we found, another port is tried, and his server is not taken for ours."""
    with start() as first:
        ports = iter([first.port, free_port(HOST)])
        monkeypatch.setattr(owned, "free_port", lambda host: next(ports))
        with start() as second:
            assert second.port != first.port
            assert second.pid != first.pid


def test_a_race_lost_each_time_is_an_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tries are counted."""
    with start() as first:
        monkeypatch.setattr(owned, "free_port", lambda host: first.port)
        with pytest.raises(ServerError, match="taken by somebody else each time"):
            start()


def test_the_embedded_build_takes_no_extra_arguments(model: ModelFile) -> None:
    """They would be dropped silently."""
    with pytest.raises(UsageError, match="the embedded build takes none"):
        start_embedded(model, LaunchSettings(extra_args=("--jinja",)))


def test_the_declaration_holds_no_path(start: Start, model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is plain JSON with bare names only, whatever paths the arguments hold."""
    monkeypatch.setenv("LLAMA_ARG_SOMETHING", "secret")
    with start("--lora", "/home/me/a.gguf") as server:
        declared = server.declaration()
    text = json.dumps(declared)
    assert declared["argv"][:3] == ["llama-server", "-m", "m.gguf"]
    assert declared["argv"][-2:] == declared["settings"]["extra_args"] == ["--lora", "a.gguf"]
    assert declared["build"] == "binary:llama-server"
    assert "LLAMA_ARG_SOMETHING" in declared["environment_present"]
    assert "secret" not in text
    assert "/" not in text
    assert sorted(declared) == [
        "argv", "build", "environment_present", "executable_sha256", "libraries", "libraries_source", "model_file",
        "model_sha256", "settings",
    ]  # fmt: skip


def run_child(order: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the child with an order and see how it ends."""
    command = [sys.executable, "-P", str(owned._CHILD)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps(order) + "\n")
        child.stdin.flush()
        # The pipe stays open until the child has ended by itself: closing it would end the child.
        words = child.stderr.read()
        return subprocess.CompletedProcess(command, child.wait(), "", words)


def test_a_child_whose_parent_is_gone_leaves() -> None:
    """A parent that died before the child could tie itself to it is noticed."""
    done = run_child({"parent_pid": os.getpid() + 1, "folder": "/", "binary": None, "fields": {}})
    assert done.returncode == 1
    assert "the parent process is gone" in done.stderr


def test_a_setting_that_the_build_lacks_is_named() -> None:
    """An embedded build that cannot be told a setting is not started without it."""
    pytest.importorskip("xllamacpp")
    order = {"parent_pid": os.getpid(), "folder": "/", "binary": None, "fields": {"no_such_thing": 1}}
    done = run_child(order)
    assert done.returncode == 1
    assert "this xllamacpp has no setting no_such_thing" in done.stderr


def test_a_start_that_is_aborted_ends_soon_and_leaves_no_process(start: Start) -> None:
    """Another thread waits for readiness that never comes; it gives up at once, and nothing is started any more."""
    server = start()
    server.settings = LaunchSettings(slots=2, threads=1, extra_args=("--loading",))
    waiting = threading.Thread(target=lambda: failures.append(failure_of(server.restart)))
    failures: list[str] = []
    waiting.start()
    while server.start_count < 2 or not server.is_running:
        assert waiting.is_alive()
    server.abort()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert len(failures) == 1
    assert "was stopped while it started" in failure_of(server.restart)
    assert not server.is_running


def failure_of(act: Callable[[], None]) -> str:
    """Return the message with which something fails."""
    with pytest.raises(ServerError) as caught:
        act()
    return caught.value.message
