"""`determinism probe`: a clean server is auditable, what it lacks is a warning, and what ruins an audit is a reason."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from audit.cli import _run as run_command_line
from audit.client import Address
from audit.probe import NOT_ATTESTED, probe, probe_text
from tests.integration.auditing import fake_of

Edit = Callable[[dict[str, Any]], int | None]


def probed(url: str) -> dict[str, Any]:
    """Probe a server."""
    return asyncio.run(probe(Address(label="s", url=url)))


@contextmanager
def behind(url: str, path: str, edit: Edit) -> Iterator[str]:
    """Stand before a server and edit what it answers on one path; an edit may return another status."""
    port = int(url.rsplit(":", 1)[1])

    class Between(BaseHTTPRequestHandler):
        """Passes requests on."""

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            there = HTTPConnection("127.0.0.1", port)
            there.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = there.getresponse()
            status, data = answer.status, answer.read()
            there.close()
            if self.path == path:
                value = json.loads(data)
                status = edit(value) or status
                data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _pass_on  # noqa: N815 - the names that the library asks for

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Between) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_clean_server_is_auditable() -> None:
    """Full precision, the cache off when it is to be off, who the server is, and what it cannot attest."""
    with fake_of(step_ms=0.0) as fake:
        found = probed(fake.url)
    assert (found["server"], found["auditable"], found["reasons"], found["warnings"]) == ("s", True, [], [])
    assert found["attested"] == {
        "build_info": "b0-fake",
        "model": "fake-512",
        "n_ctx": 1024,
        "slots": 8,
        "vocabulary": 512,
    }
    assert found["offers"] == {"health": 200, "metrics": True, "slots": True}
    replies = found["replies"]
    assert (replies["steps"], replies["top_k"]) == (8, [10])
    assert replies["logprobs"] == replies["logprobs_float32"] == 80
    assert replies["cache_off_reused"] == 0
    assert replies["cache_on_reused"] > 0
    assert (replies["speculative"], replies["drafted"]) == ("none", None)
    assert found["not_attested"] == list(NOT_ATTESTED) == sorted(NOT_ATTESTED, key=str.casefold)


def test_what_a_server_does_not_offer_is_a_warning() -> None:
    """Without metrics, slots to look at, or slots for the largest wave, evidence is weak or missing, and it is said."""
    with fake_of(step_ms=0.0, metrics=False, slots_endpoint=False, slots=2) as fake:
        found = probed(fake.url)
    assert (found["auditable"], found["reasons"]) == (True, [])
    assert found["offers"] == {"health": 200, "metrics": False, "slots": False}
    metrics, slots, few = found["warnings"]
    assert metrics.startswith("/metrics is off")
    assert slots.startswith("/slots is off")
    assert few.startswith("2 slots: waves of more requests are vacuous")


def test_the_account_is_told_in_lines() -> None:
    """The word first, each warning and each fact on a line, all of it ASCII."""
    with fake_of(step_ms=0.0, metrics=False) as fake:
        found = probed(fake.url)
    first, warning, *facts = probe_text(found).splitlines()
    assert first == "auditable  s"
    assert warning == f"  warning: {found['warnings'][0]}"
    assert "  attested: slots = 8" in facts
    assert "  offers:   metrics = False" in facts
    assert "  replies:  logprobs_float32 = 80" in facts
    assert facts[-1] == f"  it cannot attest: {', '.join(NOT_ATTESTED)}"
    assert probe_text(found).isascii()


def steps_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the logprob entries of a reply."""
    return list(reply["completion_probabilities"])


def rounded(reply: dict[str, Any]) -> None:
    """Write logprobs with four digits, as a gateway does that formats numbers anew."""
    for step in steps_of(reply):
        step["logprob"] = round(step["logprob"], 4)
        step["top_logprobs"] = [{**one, "logprob": round(one["logprob"], 4)} for one in step["top_logprobs"]]


def shorter(reply: dict[str, Any]) -> None:
    """Keep nine of ten."""
    for step in steps_of(reply):
        del step["top_logprobs"][-1]


def without_logprobs(reply: dict[str, Any]) -> None:
    """Drop them all."""
    del reply["completion_probabilities"]


def after_sampling(reply: dict[str, Any]) -> None:
    """Give probabilities that were formed after sampling."""
    for step in steps_of(reply):
        step["prob"] = 0.5


def cached(reply: dict[str, Any]) -> None:
    """Reuse a cache that was switched off."""
    reply["timings"]["cache_n"] = 5


def drafted(reply: dict[str, Any]) -> None:
    """Draft tokens."""
    reply["timings"]["draft_n"] = 3


def speculative(reply: dict[str, Any]) -> None:
    """Name a way of speculative decoding in the echo."""
    reply["generation_settings"]["speculative.types"] = "draft-simple"


def broken(reply: dict[str, Any]) -> int:
    """Fail."""
    reply.clear()
    reply["error"] = {"code": 500, "message": "out\nof memory", "type": "server_error"}
    return 500


def without_vocabulary(models: dict[str, Any]) -> None:
    """Do not say how many tokens the model has."""
    for model in models["data"]:
        del model["meta"]["n_vocab"]


NOT_AUDITABLE: dict[str, tuple[str, Edit, str]] = {
    "rounded": ("/completion", rounded, "logprobs are no float32 values: they were rounded or reformatted on the way"),
    "too few": ("/completion", shorter, "asked for 10 logprobs a step, got [9]"),
    "none": ("/completion", without_logprobs, "replies hold no logprobs"),
    "after sampling": (
        "/completion",
        after_sampling,
        "s: the reply holds post-sampling probabilities (`prob`), which are no logprobs",
    ),
    "cache": ("/completion", cached, "the prompt cache is used although it was switched off in the request"),
    "drafted": ("/completion", drafted, "speculative decoding is on, which ruins logprobs"),
    "speculative": ("/completion", speculative, "speculative decoding is on, which ruins logprobs"),
    "broken": ("/completion", broken, "s: a completion fails: HTTP 500: out of memory"),
    "vocabulary": (
        "/v1/models",
        without_vocabulary,
        "/v1/models does not name the vocabulary's size, which the canary needs",
    ),
}


@pytest.mark.parametrize("what", NOT_AUDITABLE)
def test_what_ruins_an_audit_is_a_reason_and_exit_code_two(capfd: pytest.CaptureFixture[str], what: str) -> None:
    """The verb says so on stdout, with the reason, and a clean server beside it does not outweigh it."""
    path, edit, reason = NOT_AUDITABLE[what]
    with fake_of(step_ms=0.0) as fake, behind(fake.url, path, edit) as url:
        code = run_command_line(["probe", "--server", f"clean={fake.url}", "--server", f"s={url}"])
        out, err = capfd.readouterr()
        as_json = run_command_line(["probe", "--server", f"s={url}", "--json"])
    assert (code, as_json, err) == (2, 2, "")
    lines = out.splitlines()
    assert lines[0] == "auditable  clean"
    assert lines[lines.index("NOT AUDITABLE  s") + 1] == f"  because {reason}"
    (found,) = json.loads(capfd.readouterr().out)
    assert found["auditable"] is False
    assert reason in found["reasons"]


def test_a_server_behind_something_that_changes_nothing_is_auditable() -> None:
    """What stands between is not what is found: the edits above are."""
    with fake_of(step_ms=0.0) as fake, behind(fake.url, "/completion", lambda _: None) as url:
        assert probed(url)["auditable"] is True
