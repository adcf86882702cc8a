"""What a server says of itself becomes facts without paths; what is no server to audit gets one clear line."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from audit.client import Address, Client
from audit.errors import DeterminismError, PlanError, ServerError
from audit.fake import FakeSettings, FakeThread, Faults
from audit.plan import Message, Prompt
from audit.record import Attested, Process, PromptFact
from audit.server import METRICS, State, attest, freeze, last_component, observe
from audit.stream import digest
from tests.unit.stub_server import Asked, reply, stub

PROPS: dict[str, Any] = {
    "default_generation_settings": {"n_ctx": 1024, "params": {"seed": 1}}, "total_slots": 4, "build_info": "b7-abc",
    "model_alias": "/home/ann/models/secret-m.gguf", "model_path": "/home/ann/models/secret-m.gguf",
    "chat_template": "{{ a/b }}", "media_marker": "<__media_1__>", "is_sleeping": False,
}  # fmt: skip
MODELS: dict[str, Any] = {
    "models": [{"name": "C:\\models\\m.gguf", "model": "org/m"}], "object": "list",
    "data": [{"id": "/home/ann/m.gguf", "aliases": ["/home/ann/m.gguf", "m"], "created": 17, "meta": {"n_vocab": 512}}],
}  # fmt: skip
METRICS_TEXT = (
    b"# HELP llamacpp:prompt_tokens_total Number of prompt tokens.\n# TYPE llamacpp:prompt_tokens_total counter\n"
    b"llamacpp:prompt_tokens_total 20\nllamacpp:n_decode_total 1e+06\nother:tokens_predicted_total 5\n"
    b"llamacpp:requests_processing 0\n"
)
SLOTS = [{"id": 0, "is_processing": False}, {"id": 1, "is_processing": True, "n_prompt_tokens": 20, "prompt": "secret"}]
Routes = dict[str, bytes]


def encoded(value: object) -> bytes:
    """Return JSON as a reply."""
    return reply(json.dumps(value).encode(), headers="Server: llama.cpp\r\n")


def routes(**changes: Any) -> Routes:  # noqa: ANN401 - any JSON
    """Return what a llama-server answers to each path, changed."""
    metrics = reply(METRICS_TEXT, headers="Process-Start-Time-Unix: 4711\r\n")
    usual: Routes = {
        "/props": encoded(PROPS),
        "/v1/models": encoded(MODELS),
        "/metrics": metrics,
        "/slots": encoded(SLOTS),
        "/health": encoded({"status": "ok"}),
        "/tokenize": encoded({"tokens": [1, 2, 3]}),
        "/detokenize": encoded({"content": "abc"}),
        "/apply-template": encoded({"prompt": "<user>hi"}),
    }
    return {**usual, **{f"/{path.replace('v1_', 'v1/')}": value for path, value in changes.items()}}


def talk(
    told: Routes, question: Callable[[Client, Callable[[bytes], str]], Any]
) -> tuple[Any, list[bytes], list[Asked]]:
    """Ask a scripted server a question; return the answer, the facts that were kept, and what was sent."""
    facts: list[bytes] = []

    def keep(data: bytes) -> str:
        facts.append(data)
        return digest(data)

    def answer(asked: Asked) -> bytes:
        return told.get(asked.line.split()[1], reply(b"not here", status="404 Not Found"))

    async def run() -> tuple[Any, list[bytes], list[Asked]]:
        async with stub(answer) as server, Client(Address(label="a", url=server.url), timeout_s=5.0) as client:
            return await question(client, keep), facts, server.asked

    return asyncio.run(run())


def attested(**changes: Any) -> tuple[Attested, list[bytes]]:  # noqa: ANN401 - any JSON
    """Return who a scripted server says it is, and the kept facts."""
    found, facts, _ = talk(routes(**changes), attest)
    return found, facts


def observed(**changes: Any) -> State:  # noqa: ANN401 - any JSON
    """Return what a scripted server says it is doing."""
    state: State = talk(routes(**changes), lambda client, keep: observe(client, keep, health=True))[0]
    return state


def frozen(prompt: Prompt, **changes: Any) -> tuple[PromptFact, list[Asked]]:  # noqa: ANN401 - any JSON
    """Return a prompt that a scripted server has tokenized, and what it was asked."""
    fact, _, asked = talk(routes(**changes), lambda client, keep: freeze(client, prompt, name="p"))
    return fact, asked


def test_a_server_is_who_it_says() -> None:
    """Build, model, context, slots, vocabulary, process: from /props, /v1/models and the header of /metrics."""
    found, facts = attested()
    assert found == Attested(
        build_info="b7-abc",
        model="secret-m.gguf",
        models=digest(facts[0]),
        n_ctx=1024,
        process=Process(start="4711", media_marker="<__media_1__>"),
        props=digest(facts[1]),
        server_header="llama.cpp",
        slots=4,
        vocabulary=512,
    )
    assert len(facts) == 2


def test_no_path_gets_into_a_fact() -> None:
    """Of a path only the last component is kept, and the digest of the whole; other slashes stay."""
    found, facts = attested()
    for fact in facts:
        assert b"ann" not in fact
        assert b"C:" not in fact
        assert b"org/" not in fact
    named = {digest(fact): json.loads(fact) for fact in facts}
    props, models = named[found.props], named[found.models or ""]
    whole = str(PROPS["model_path"])
    assert props["model_path"] == props["model_alias"] == "secret-m.gguf"
    assert props["model_path_sha256"] == hashlib.sha256(whole.encode()).hexdigest()
    assert props["chat_template"] == "{{ a/b }}"
    assert models["data"][0]["id"] == "m.gguf"
    assert models["data"][0]["aliases"] == ["m.gguf", "m"]
    assert models["models"][0]["name"] == "m.gguf"
    assert models["models"][0]["name_sha256"] == hashlib.sha256(b"C:\\models\\m.gguf").hexdigest()


def test_two_paths_with_one_file_name_are_two_servers() -> None:
    """The digest of the whole path tells them apart although the name does not."""
    here, there = attested()[0], attested(props=encoded({**PROPS, "model_path": "/other/secret-m.gguf"}))[0]
    assert here.props != there.props
    assert here.model == there.model


@pytest.mark.parametrize("change", [{"media_marker": "<__media_2__>"}, {"is_sleeping": True}])
def test_what_passes_with_a_process_is_not_part_of_the_server(change: dict[str, Any]) -> None:
    """A restart gives other markers and the same server."""
    assert attested(props=encoded({**PROPS, **change}))[0].props == attested()[0].props
    later = {**MODELS, "data": [{**MODELS["data"][0], "created": 99}]}
    assert attested(v1_models=encoded(later))[0].models == attested()[0].models


@pytest.mark.parametrize(
    "change",
    [{"build_info": "b8"}, {"total_slots": 5}, {"chat_template": ""}, {"novel": 1}, {"model_path": "m.gguf"},
     {"default_generation_settings": {"n_ctx": 1024, "params": {"seed": 2}}}],
)  # fmt: skip
def test_everything_else_that_a_server_says_is_part_of_it(change: dict[str, Any]) -> None:
    """Whatever changes in /props, known to us or not, makes it another server."""
    assert attested(props=encoded({**PROPS, **change}))[0].props != attested()[0].props


def test_what_a_server_does_not_say_is_none() -> None:
    """Nothing is filled in; a value of another type counts as not said."""
    bare, _ = attested(
        props=encoded({"total_slots": 1, "build_info": 7, "default_generation_settings": {"n_ctx": "many"}}),
        v1_models=encoded({"data": []}),
        metrics=reply(b"", status="501 Not Implemented"),
    )
    said = (bare.build_info, bare.model, bare.n_ctx, bare.vocabulary, bare.process.start, bare.process.media_marker)
    assert said == (None,) * 6
    assert attested(props=encoded({"total_slots": 1}))[0].n_ctx is None


NOT_TO_AUDIT: dict[str, tuple[Routes, str]] = {
    "a wrong key": (routes(props=reply(b"{}", status="401 Unauthorized")), "a: the server refuses the API key"),
    "a loading server": (routes(props=reply(b"{}", status="503 Loading")), "a: the server is still loading its model"),
    "a router": (routes(props=encoded({"role": "router"})), "a: this is a llama-server router"),
    "a web page": (routes(props=reply(b"<html>hello</html>")), "a: /props is not the JSON of a llama-server: .*<html>"),
    "a web server": ({}, "a: /props answers 404, so this is no llama-server to audit: b'not here'"),
    "another API": (routes(props=encoded({"object": "list"})), "a: /props names no total_slots"),
    "a list": (routes(props=encoded([])), "a: /props names no total_slots"),
    "no slots": (routes(props=encoded({"total_slots": 0})), "a: /props names no total_slots"),
    "slots that are true": (routes(props=encoded({"total_slots": True})), "a: /props names no total_slots"),
    "no models": (routes(v1_models=reply(b"", status="404 Not Found")), "a: /v1/models answers 404"),
    "a redirect": (routes(props=reply(b"", status="302 Found", headers="Location: /x\r\n")), "a: /props answers 302"),
    "a server error": (
        routes(props=reply(b'{"error":{"message":"proxy\\n error"}}', status="500 Error")),
        "a: /props answers 500, .*: proxy error$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_TO_AUDIT)
def test_what_cannot_be_audited_gets_one_clear_line(what: str) -> None:
    """The label, the path, what was found; and a hint where the user can do something."""
    told, message = NOT_TO_AUDIT[what]
    with pytest.raises(ServerError, match=message) as caught:
        talk(told, attest)
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


def from_fake(settings: FakeSettings, *, key: str | None = None, path: str = "") -> Attested:
    """Ask a fake server who it is."""

    async def run(url: str) -> Attested:
        async with Client(Address(label="a", url=url + path, key=key), timeout_s=5.0) as client:
            return await attest(client, digest)

    with FakeThread(settings) as fake:
        return asyncio.run(run(fake.url))


def test_the_fake_is_a_server_to_audit() -> None:
    """What a llama-server look-alike says is read whole, with its key and prefix."""
    found = from_fake(FakeSettings(slots=3, ctx_per_slot=99, vocabulary=128, api_key="k", api_prefix="/llm"), key="k")
    assert (found.slots, found.n_ctx, found.vocabulary, found.build_info) == (3, 99, 128, "b0-fake")
    assert found.process.start is not None
    assert found.process.media_marker is not None


def test_the_fake_refuses_as_a_llama_server_does() -> None:
    """A wrong key, a model that still loads, a forgotten prefix: each its own line."""
    with pytest.raises(ServerError, match="refuses the API key"):
        from_fake(FakeSettings(api_key="k"), key="other")
    with pytest.raises(ServerError, match="still loading"):
        from_fake(FakeSettings(faults=Faults(loading_s=60.0)))
    with pytest.raises(ServerError, match="/props answers 404"):
        from_fake(FakeSettings(), path="/llm")


def test_an_unreachable_port_gets_one_clear_line() -> None:
    """The label, what failed, and what to look at."""

    async def run(url: str) -> None:
        async with Client(Address(label="a", url=url), timeout_s=5.0) as client:
            await attest(client, digest)

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ServerError, match=r"a: /props cannot be reached \(connect\)") as caught:
            asyncio.run(run(f"http://127.0.0.1:{closed.getsockname()[1]}"))
    assert caught.value.hint == "is llama-server running there?"


def test_a_snapshot_keeps_the_counters_as_they_were_printed() -> None:
    """Known names with the server's prefix, as strings; what is not printed is None, what is not known is left."""
    state = observed()
    known = {"prompt_tokens_total": "20", "n_decode_total": "1e+06", "requests_processing": "0"}
    assert state.metrics == {**dict.fromkeys(METRICS), **known}
    assert state.slots == [(0, False, None), (1, True, 20)]
    assert (state.health, state.process.start) == (200, "4711")
    assert state.props == attested()[0].props


def test_a_snapshot_asks_three_questions_and_health_only_where_told() -> None:
    """Around a unit nothing more is asked of the server than is needed."""
    usual = {"/slots", "/metrics", "/props"}
    for health, expected in ((False, usual), (True, usual | {"/health"})):

        def question(client: Client, keep: Callable[[bytes], str], health: bool = health) -> Awaitable[State]:
            return observe(client, keep, health=health)

        _, _, asked = talk(routes(), question)
        assert {one.line.split()[1] for one in asked} == expected
        assert len(asked) == len(expected)


@pytest.mark.parametrize(
    "slots",
    [reply(b"", status="501 Not Implemented"), reply(b"<html>"), encoded({"a": 1}), encoded([1]), encoded(["a"]),
     encoded([{"id": 0}]), encoded([{"id": "x", "is_processing": False}]), encoded(7), encoded(None)],
)  # fmt: skip
def test_slots_that_cannot_be_read_are_not_offered(slots: bytes) -> None:
    """What is no list of slots is None, and no crash."""
    assert observed(slots=slots).slots is None


@pytest.mark.parametrize("count", ["20", 1.5, True, -1, None])
def test_a_count_of_another_type_is_not_said(count: object) -> None:
    """What the record could not hold does not get into it."""
    slots = encoded([{"id": 0, "is_processing": False, "n_prompt_tokens": count}])
    assert observed(slots=slots).slots == [(0, False, None)]


def test_a_server_that_answers_nothing_is_observed_as_such() -> None:
    """A snapshot never fails: that the server said nothing is the fact."""
    gone = reply(b"gone", status="500 Error")
    state = observed(slots=gone, metrics=gone, props=gone, health=gone)
    assert state == State(
        health=500, slots=None, metrics=None, props=None, process=Process(start=None, media_marker=None)
    )


def test_a_text_is_tokenized_once_with_its_specials() -> None:
    """The ids come from /tokenize, the text of the fact from /detokenize."""
    fact, asked = frozen(Prompt(text="hello"))
    assert fact == PromptFact(ids=[1, 2, 3], text="abc")
    sent = {one.line.split()[1]: json.loads(one.body) for one in asked}
    assert sent == {
        "/tokenize": {"content": "hello", "add_special": True, "parse_special": True},
        "/detokenize": {"tokens": [1, 2, 3]},
    }


def test_a_chat_goes_through_the_template_first() -> None:
    """The template writes its own specials, so that none is added again."""
    _, asked = frozen(Prompt(chat=[Message(role="user", content="hi")]))
    sent = {one.line.split()[1]: json.loads(one.body) for one in asked}
    assert sent["/apply-template"] == {"messages": [{"role": "user", "content": "hi"}]}
    assert sent["/tokenize"] == {"content": "<user>hi", "add_special": False, "parse_special": True}


def test_ids_are_taken_as_they_are_and_only_the_first_are_kept() -> None:
    """Given ids are not tokenized; `tokens` cuts."""
    fact, asked = frozen(Prompt(ids=[7, 8, 9], tokens=2))
    assert fact.ids == [7, 8]
    assert [json.loads(one.body) for one in asked] == [{"tokens": [7, 8]}]


@pytest.mark.parametrize(
    ("prompt", "changes", "error", "message"),
    [
        (Prompt(text="x", tokens=4), {}, PlanError, r"a: prompts\.p has 3 tokens and the plan keeps 4"),
        (Prompt(text=""), {"tokenize": encoded({"tokens": []})}, PlanError, r"a: prompts\.p becomes no token ids"),
        (Prompt(text="x"), {"tokenize": encoded({"tokens": [{"id": 1}]})}, PlanError, "becomes no token ids but"),
        (Prompt(text="x"), {"tokenize": encoded({})}, ServerError, "a: /tokenize answers without 'tokens'"),
        (Prompt(text="x"), {"tokenize": encoded([])}, ServerError, "a: /tokenize answers without 'tokens'"),
        (Prompt(text="x"), {"detokenize": encoded({"content": 3})}, ServerError, "/detokenize answers with 3 for text"),
        (
            Prompt(ids=[99999]),
            {"detokenize": reply(b'{"error":{"message":"range_check"}}', status="500 Error")},
            PlanError,
            r"prompts\.p: the server cannot read its ids: .*range_check",
        ),
        (
            Prompt(text="x"),
            {"detokenize": reply(b'{"error":{"message":"broken"}}', status="500 Error")},
            ServerError,
            "/detokenize answers 500.*broken",
        ),
    ],
)
def test_a_prompt_that_cannot_be_frozen_is_named(
    prompt: Prompt, changes: dict[str, bytes], error: type[DeterminismError], message: str
) -> None:
    """The plan's field where the plan is at fault, the path where the server is."""
    with pytest.raises(error, match=message) as caught:
        frozen(prompt, **changes)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("path", "last"), [("/a/b.gguf", "b.gguf"), ("C:\\x\\b.gguf", "b.gguf"), ("b.gguf", "b.gguf"), ("a/", ""), ("", "")]
)
def test_the_last_component_is_what_follows_the_last_slash(path: str, last: str) -> None:
    """Of either kind of slash."""
    assert last_component(path) == last
