"""What must not get out, and what must not get in: keys, terminal escapes, markup, paths, numbers without end."""

from __future__ import annotations

import http.client
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from audit.cli import terminal
from tests.integration.auditing import fake_of, plan_of, verify
from tests.integration.commands import Command, Done

KEY = "sk-planted-0123456789abcdef"
SMALL = plan_of({"name": "repeat_greedy", "prompts": ["a"], "count": 2}, controls=False)
HOSTILE = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>\u202e../../../../tmp/planted\r\n"
Change = Callable[[str, dict[str, str], int, bytes], tuple[int, dict[str, str], bytes]]


@contextmanager
def between(url: str, change: Change) -> Iterator[str]:
    """Stand in front of a server and change what it answers: (path, request headers, status, body) to the same."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            headers = {name: value for name, value in self.headers.items() if name != "Host"}
            upstream = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=60)
            upstream.request(self.command, self.path, self.rfile.read(length), headers)
            reply = upstream.getresponse()
            status, more, body = change(self.path, headers, reply.status, reply.read())
            self.send_response_only(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            upstream.close()

        do_GET = do_POST = answer  # noqa: N815 - the names that the library calls

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def repeats_the_key(path: str, headers: dict[str, str], status: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Answer with the key in a header, in what /props says, in each echo, and in every refusal."""
    sent = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    more = {"Server": f"proxy {sent}", "Process-Start-Time-Unix": sent or "1"}
    if path == "/props":
        body = json.dumps({**json.loads(body), "build_info": sent, "note": {"authorization": sent}}).encode()
    if path == "/completion" and body.startswith(b"{"):
        reply = json.loads(body)
        reply["generation_settings"]["authorization"] = sent
        body = json.dumps({**reply, "model": sent}).encode()
    if path == "/completion" and b"data:" in body:
        return 500, more, json.dumps({"error": {"message": f"who sends {sent}?"}}).encode()
    return status, more, body


@pytest.fixture(params=["variable", "file"])
def key_options(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plant the key in the environment or in a file, and return the options that lead to it."""
    monkeypatch.setattr(terminal, "_keys", set())
    if request.param == "variable":
        monkeypatch.setenv("DETERMINISM_API_KEY", KEY)
        return []
    monkeypatch.delenv("DETERMINISM_API_KEY", raising=False)
    (tmp_path / "key.txt").write_text(f"{KEY}\n")
    return ["--key-file", str(tmp_path / "key.txt")]


def holds_the_key(folder: Path) -> list[str]:
    """Return every file below a folder that holds the key, the key's own left out."""
    return [p.name for p in folder.rglob("*") if p.is_file() and p.name != "key.txt" and KEY.encode() in p.read_bytes()]


def test_a_key_is_in_no_output_and_no_file_although_the_server_repeats_it(
    tmp_path: Path, command: Command, key_options: list[str]
) -> None:
    """Probe, run, interrupted run, resume, report and verify against a server that echoes its Authorization header."""
    plan, out = tmp_path / "plan.json", tmp_path / "run"
    plan.write_bytes(SMALL.to_bytes())
    said: list[Done] = []
    with fake_of(step_ms=0.0, api_key=KEY) as fake, between(fake.url, repeats_the_key) as url:
        server = ["--server", f"s={url}", *key_options]
        said += [command("probe", *server), command("probe", *server, "--json")]
        said.append(command("run", *server, "--plan", plan, "--out", out))
        assert said[-1].code == 0
        said += [command("report", out), command("report", out, "--json", "--trials", tmp_path / "trials.csv")]
        assert (out / "findings.json").is_file()
        (out / "SHA256SUMS").unlink()
        derived = [line.split()[1] for line in (out / "DERIVED.SHA256SUMS").read_text().splitlines()]
        for name in (*derived, "DERIVED.SHA256SUMS"):
            (out / name).unlink()
        history = (out / "history.jsonl").read_bytes()
        (out / "history.jsonl").write_bytes(history[: len(history) * 2 // 3])
        said.append(command("run", "--resume", out, *server))
        assert said[-1].code == 0
    assert verify(out)[0] in {0, 3}
    assert b"who sends Bearer ****" in b"".join(path.read_bytes() for path in (out / "bodies").iterdir())
    for done in said:
        assert KEY not in done.out + done.err
    assert holds_the_key(tmp_path) == []


def test_a_key_is_in_no_error_and_in_no_traceback(
    tmp_path: Path, command: Command, key_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that names it (exit 2) and a bug whose message holds it (exit 5) show it to nobody."""

    def refuses(_path: str, headers: dict[str, str], _status: int, _body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 403, {}, json.dumps({"error": {"message": f"no such key: {headers}"}}).encode()

    with fake_of(step_ms=0.0) as fake, between(fake.url, refuses) as url:
        done = command("run", "--server", f"s={url}", *key_options, "--quick", "--out", tmp_path / "run")
    assert done.code == 2
    assert "no such key" in done.err
    assert KEY not in done.out + done.err

    async def breaks(_order: object, targets: list[Any], *_: object, **__: object) -> None:
        raise RuntimeError(f"header is Bearer {targets[0].address.key}")

    monkeypatch.setattr("audit.capture.capture", breaks)
    done = command("run", "--server", "s=http://127.0.0.1:9", *key_options, "--quick", "--out", tmp_path / "run")
    assert done.code == 5
    assert "RuntimeError: header is Bearer [key]" in done.err
    assert KEY not in done.out + done.err
    assert holds_the_key(tmp_path) == []


def test_the_printed_command_names_the_file_and_never_the_key(tmp_path: Path, key_options: list[str]) -> None:
    """What one is told to type holds no secret."""
    from audit.cli.run import resume_command

    text = resume_command(tmp_path / "a run", ["s=http://127.0.0.1:9"], None, list(key_options))
    assert KEY not in text
    assert shlex.split(text)[2:4] == ["--resume", str(tmp_path / "a run")]


def hostile(path: str, _headers: dict[str, str], status: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Say everything in words that a terminal, a browser or a file system would obey."""
    more = {"Server": "\x1b[31mred", "Process-Start-Time-Unix": "9" * 200}
    if path == "/props":
        props = json.loads(body)
        props |= {"build_info": HOSTILE, "model_path": HOSTILE, "model_alias": HOSTILE, HOSTILE: [HOSTILE]}
        return status, more, json.dumps(props).encode()
    if path == "/metrics":
        return status, more, body + b"\nllamacpp:requests_processing \x1b[2J\n"
    if path == "/completion":
        if b"data:" in body:
            return status, more, body
        reply = json.loads(body)
        return status, more, json.dumps({**reply, "model": HOSTILE, "stop_type": HOSTILE}).encode()
    return status, more, body


def harmless(done: Done) -> bool:
    """Tell whether an output holds nothing that a terminal would obey."""
    return all(char.isprintable() or char == "\n" for char in done.out + done.err)


def test_a_hostile_servers_strings_reach_terminal_report_and_file_names_harmless(
    tmp_path: Path, command: Command
) -> None:
    """Escapes are shown as text, no file has a name of the server's, nothing is written elsewhere, and it verifies."""
    plan, out = tmp_path / "work" / "plan.json", tmp_path / "work" / "run"
    plan.parent.mkdir()
    plan.write_bytes(SMALL.to_bytes())
    with fake_of(step_ms=0.0) as fake, between(fake.url, hostile) as url:
        server = ["--server", f"s={url}"]
        said = [command("probe", *server), command("probe", *server, "--json")]
        said.append(command("run", *server, "--plan", plan, "--out", out))
        assert said[-1].code == 0
    said += [command("report", out), command("report", out, "--trials", tmp_path / "work" / "trials.csv")]
    assert all(map(harmless, said))
    assert "\\x1b" in said[0].out
    assert {path.name for path in tmp_path.iterdir()} == {"work"}
    for path in out.rglob("*"):
        assert all(char.isalnum() or char in "._" for char in path.name), path
    assert verify(out)[1]["contradictions"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/props", b"[" * 50_000),
        ("/props", b'{"total_slots":' + b"9" * 40 + b"}"),
        ("/props", b'{"a":' * 400 + b"1" + b"}" * 400),
        ("/v1/models", b'{"data":[{"meta":{"n_vocab":' + b"9" * 30 + b"}}]}"),
        ("/tokenize", json.dumps({"tokens": [True, 1]}).encode()),
        ("/detokenize", json.dumps({"content": [[[]]]}).encode()),
    ],
    ids=["unclosed", "slots", "nested", "vocabulary", "ids", "text"],
)
def test_numbers_and_nesting_without_end_are_refused_in_one_line(
    tmp_path: Path, command: Command, path: str, body: bytes
) -> None:
    """Before anything is sent: exit 2, no traceback, an empty folder."""

    def change(asked: str, _headers: object, status: int, said: bytes) -> tuple[int, dict[str, str], bytes]:
        return status, {}, body if asked == path else said

    plan = tmp_path / "plan.json"
    plan.write_bytes(SMALL.to_bytes())
    with fake_of(step_ms=0.0) as fake, between(fake.url, change) as url:
        done = command("run", "--server", f"s={url}", "--plan", plan, "--out", tmp_path / "run")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert len(done.err) < 1_000
    assert list((tmp_path / "run").iterdir()) == []


def test_numbers_without_end_in_a_reply_are_kept_as_a_refused_body(tmp_path: Path, command: Command) -> None:
    """A slot of 70 bits, timings of years, settings nested a hundred deep: each trial failed, each body kept."""
    changes: list[dict[str, Any]] = [
        {"id_slot": 2**70},
        {"timings": {"prompt_ms": 1e15}},
        {"generation_settings": {"a": json.loads("[" * 99 + "]" * 99)}},
    ]
    asked = iter(range(10**6))

    def change(path: str, _headers: object, status: int, said: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/completion" and said.startswith(b"{"):
            said = json.dumps({**json.loads(said), **changes[next(asked) % len(changes)]}).encode()
        return status, {}, said

    plan, out = tmp_path / "plan.json", tmp_path / "run"
    plan.write_bytes(SMALL.to_bytes())
    with fake_of(step_ms=0.0) as fake, between(fake.url, change) as url:
        assert command("run", "--server", f"s={url}", "--plan", plan, "--out", out).code == 0
    completes = [json.loads(line) for line in (out / "history.jsonl").read_bytes().splitlines()]
    failures = [line["failure"] for line in completes if line["line"] == "complete" and line["failure"]]
    assert {failure["kind"] for failure in failures} == {"refused"}
    assert len(failures) == 3
    assert all(failure["body"] for failure in failures)
    assert verify(out)[1]["contradictions"] == []
