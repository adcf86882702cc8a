"""One suite of requests for the fake server and a real one: shapes, codes and invariants agree.

The invariants hold for each target by itself; the comparison at the end sends the same requests to both. What a real
server's numbers are is nobody's business here.
"""

import http.client
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from audit.fake import FakeSettings, FakeThread
from audit.local import owned
from audit.local.launch import LaunchSettings, embedded_fields
from audit.local.models import resolve_model
from audit.local.owned import start_embedded

SLOTS, CTX, VOCABULARY = 4, 256, 512
# Spinning threads of a real server are many times slower where another process keeps a core busy.
TIMEOUT_S = 120
PROMPT = [40, 50, 60, 70, 80]
BODY: dict[str, Any] = {
    "prompt": PROMPT, "n_predict": 6, "temperature": 0.0, "seed": 7, "n_probs": 5, "cache_prompt": False,
    "return_tokens": True, "stream": False, "stop": [], "ignore_eos": True, "id_slot": 1,
    "samplers": ["top_k", "top_p", "min_p", "temperature"], "top_k": 0, "top_p": 1.0, "min_p": 0.0,
    "typical_p": 1.0, "repeat_penalty": 1.0, "xtc_threshold": 0.1, "dry_base": 1.75, "post_sampling_probs": False,
}  # fmt: skip


class Target(Protocol):
    """A server under test: where it is, and how to start it again."""

    @property
    def url(self) -> str:
        """The address."""

    def restart(self) -> None:
        """Start the process again on the same port."""


@pytest.fixture(scope="module")
def fake() -> Iterator[Target]:
    """A clean fake server."""
    settings = FakeSettings(slots=SLOTS, ctx_per_slot=CTX, vocabulary=VOCABULARY, step_ms=1.0)
    with FakeThread(settings) as thread:
        yield thread


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A real embedded server with a tiny model."""
    pytest.importorskip("xllamacpp")
    settings = LaunchSettings(slots=SLOTS, ctx_per_slot=CTX, batch=2048, ubatch=256)
    logs: Path = tmp_path_factory.mktemp("logs")
    with start_embedded(resolve_model("tiny-llama-f32"), settings, log_dir=logs) as server:
        yield server


@pytest.fixture(scope="module", params=["fake", pytest.param("live", marks=pytest.mark.live)])
def target(request: pytest.FixtureRequest) -> Target:
    """Each of the two servers in turn."""
    server: Target = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def client(target: Target) -> Iterator[httpx.Client]:
    """A client of the target."""
    with connected(target) as client:
        yield client


def connected(target: Target) -> httpx.Client:
    """A client that leans on nothing from the environment."""
    return httpx.Client(base_url=target.url, trust_env=False, timeout=TIMEOUT_S)


def complete(client: httpx.Client, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Send the usual request with changes, and return the reply's JSON."""
    response = client.post("/completion", json=BODY | changes)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def streamed(client: httpx.Client, **changes: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Send the usual request as a stream, and return its events."""
    # A real server now and then closes the connection after a stream, whatever its headers say: it gets its own.
    with httpx.Client(base_url=client.base_url, trust_env=False, timeout=TIMEOUT_S) as own:
        text = own.post("/completion", json=BODY | {"stream": True} | changes).text
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(event) for event in events]


def metrics(client: httpx.Client) -> dict[str, float]:
    """Read `/metrics`: name without its prefix, and value."""
    lines = client.get("/metrics").text.splitlines()
    pairs = [line.removeprefix("llamacpp:").split() for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def is_float32(value: float) -> bool:
    """Whether a double is exactly a float32 value."""
    return bool(struct.unpack("f", struct.pack("f", value))[0] == value)


def test_counts_of_a_reply_agree(client: httpx.Client) -> None:
    """Prompt tokens are evaluated or cached, and every generated token is listed, counted and has an entry."""
    reply = complete(client)
    timings = reply["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == reply["tokens_evaluated"] == len(PROMPT)
    assert len(reply["tokens"]) == timings["predicted_n"] == reply["tokens_predicted"] == 6
    assert [entry["id"] for entry in reply["completion_probabilities"]] == reply["tokens"]
    assert reply["tokens_cached"] == len(PROMPT) + 6 - 1
    assert (reply["stop_type"], reply["truncated"], reply["stop"]) == ("limit", False, True)


def test_top_k_is_as_long_as_asked_descending_and_float32(client: httpx.Client) -> None:
    """Each step reports n_probs logprobs in descending order, and its own beside them, all exactly float32."""
    for entry in complete(client)["completion_probabilities"]:
        logprobs = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(logprobs) == 5
        assert logprobs == sorted(logprobs, reverse=True)
        assert all(map(is_float32, [entry["logprob"], *logprobs]))
        listed = {top["id"]: top["logprob"] for top in entry["top_logprobs"]}
        assert listed.get(entry["id"], entry["logprob"]) == entry["logprob"]


def test_a_greedy_token_leads_the_top_k_unless_it_ends_the_sequence(client: httpx.Client) -> None:
    """At temperature 0 the sampled token is the best that `ignore_eos` admits."""
    reply = complete(client, n_predict=16)
    banned = {entry["token"] for entry in reply["generation_settings"]["logit_bias"]}
    for entry in reply["completion_probabilities"]:
        assert entry["id"] == next(top["id"] for top in entry["top_logprobs"] if top["id"] not in banned)


def test_the_same_request_twice_gives_the_same_reply(client: httpx.Client) -> None:
    """Solo on an idle server, text, ids and entries repeat, sampled ones by their seed."""
    for changes in ({}, {"temperature": 1.0, "seed": 11}):
        first, second = (complete(client, **changes) for _ in range(2))
        for key in ("content", "tokens", "completion_probabilities"):
            assert first[key] == second[key]


def test_another_seed_gives_another_sampled_stream_and_the_same_first_row(client: httpx.Client) -> None:
    """A seed decides what is sampled, and never what is reported of the first step."""
    replies = [complete(client, temperature=2.0, seed=seed, n_predict=12) for seed in range(3)]
    assert len({tuple(reply["tokens"]) for reply in replies}) > 1
    first_rows = [reply["completion_probabilities"][0]["top_logprobs"] for reply in replies]
    assert first_rows[0] == first_rows[1] == first_rows[2]


@pytest.mark.parametrize(("sent", "echoed"), [(7, 7), (-1, 4294967295), (2**32, 0), (42.7, 42), (None, 4294967295)])
def test_a_seed_is_echoed_modulo_two_to_the_32(client: httpx.Client, sent: object, echoed: int) -> None:
    """The echo tells which seed was understood."""
    assert complete(client, seed=sent)["generation_settings"]["seed"] == echoed


def test_settings_are_echoed_as_understood(client: httpx.Client) -> None:
    """Floats come back as float32, unknown samplers are dropped, null is the default, negative temperatures are 0."""
    asked = {"samplers": ["temperature", "novel", "top_k"], "top_p": 0.9, "temperature": None, "xtc_threshold": None}
    settings = complete(client, **asked)["generation_settings"]
    assert settings["samplers"] == ["temperature", "top_k"]
    assert settings["top_p"] == 0.8999999761581421
    assert settings["temperature"] == 0.800000011920929
    assert settings["xtc_threshold"] == 0.10000000149011612
    assert complete(client, temperature=-1)["generation_settings"]["temperature"] == 0.0
    assert settings["max_tokens"] == settings["n_predict"] == 6


def test_ignore_eos_is_echoed_as_a_bias_on_each_end_token(client: httpx.Client) -> None:
    """A bias of minus infinity is null in JSON, and without `ignore_eos` there is none."""
    biases = complete(client)["generation_settings"]["logit_bias"]
    assert biases
    assert all(bias["bias"] is None for bias in biases)
    assert complete(client, ignore_eos=False)["generation_settings"]["logit_bias"] == []


@pytest.mark.parametrize(("asked", "named"), [(0, 0), (3, 3), (99, 99 % SLOTS), (SLOTS, 0)])
def test_the_slot_is_as_asked_modulo_the_slots(client: httpx.Client, asked: int, named: int) -> None:
    """A reply names the slot that it was computed in."""
    assert complete(client, id_slot=asked)["id_slot"] == named


@pytest.mark.parametrize("asked", [-1, "2", None])
def test_a_slot_that_is_no_number_is_any_slot(client: httpx.Client, asked: object) -> None:
    """Minus one, a string and null all leave the choice to the server."""
    assert complete(client, id_slot=asked)["id_slot"] in range(SLOTS)


def test_the_cache_reuses_all_but_the_last_token_and_only_when_asked(client: httpx.Client) -> None:
    """The prefix that the slot holds is reused, up to the last prompt token; without `cache_prompt` nothing is."""
    prompt = [90 + position for position in range(70)]
    cold = complete(client, prompt=[80, *prompt], cache_prompt=False)
    warm = complete(client, prompt=[80, *prompt], cache_prompt=True)
    longer = complete(client, prompt=[80, *prompt, 7, 8, 9], cache_prompt=True)
    off = complete(client, prompt=[80, *prompt], cache_prompt=False)
    assert [reply["timings"]["cache_n"] for reply in (cold, warm, longer, off)] == [0, 70, 71, 0]
    assert [reply["timings"]["prompt_n"] for reply in (cold, warm, longer, off)] == [71, 1, 3, 71]


def test_generated_tokens_are_reused_too(client: httpx.Client) -> None:
    """A prompt that continues a reply finds all of it but its last token in the slot."""
    reply = complete(client, prompt=[33, *PROMPT], cache_prompt=True)
    again = complete(client, prompt=[33, *PROMPT, *reply["tokens"], 44], cache_prompt=True)
    assert again["timings"]["cache_n"] == reply["tokens_cached"] == len(PROMPT) + 6


def test_a_stream_says_what_the_whole_reply_says(client: httpx.Client) -> None:
    """Partials carry the entries and no slot; the last event carries the facts, no ids and no entries."""
    whole, events = complete(client), streamed(client)
    partials, last = events[:-1], events[-1]
    assert [token for event in partials for token in event["tokens"]] == whole["tokens"]
    assert [event["completion_probabilities"][0] for event in partials] == whole["completion_probabilities"]
    assert "".join(event["content"] for event in partials) == whole["content"]
    assert {(event["stop"], event["id_slot"]) for event in partials} == {(False, -1)}
    assert (last["stop"], last["id_slot"], last["tokens"], last["content"]) == (True, 1, [], "")
    assert "completion_probabilities" not in last
    assert set(last) == set(whole) - {"completion_probabilities"}


def test_without_n_probs_there_are_no_entries_and_the_same_tokens(client: httpx.Client) -> None:
    """`n_probs` 0 leaves the key out, whole and streamed; observing does not change what is observed."""
    whole = complete(client, n_probs=0)
    assert "completion_probabilities" not in whole
    assert all("completion_probabilities" not in event for event in streamed(client, n_probs=0))
    assert whole["tokens"] == complete(client)["tokens"]


def test_more_n_probs_than_tokens_are_the_whole_vocabulary(client: httpx.Client) -> None:
    """Every id is reported once, and the probabilities add up to one."""
    entry = complete(client, n_probs=300000, n_predict=1)["completion_probabilities"][0]
    assert sorted(top["id"] for top in entry["top_logprobs"]) == list(range(VOCABULARY))
    assert sum(2.718281828459045 ** top["logprob"] for top in entry["top_logprobs"]) == pytest.approx(1, abs=1e-2)


def test_a_grammar_of_ids_forces_them_and_leaves_the_logprobs(client: httpx.Client) -> None:
    """The forced ids come out in order; the first row is the one that the free request reports."""
    free = complete(client, n_predict=2)
    forced = complete(client, grammar="root ::= <[107]> <[208]>", n_predict=2)
    assert forced["tokens"] == [107, 208]
    rows = [reply["completion_probabilities"][0]["top_logprobs"] for reply in (free, forced)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("n_predict", [0, 1])
def test_at_least_one_token_is_generated(client: httpx.Client, n_predict: int) -> None:
    """The prompt's last decode yields a token even where none is asked for."""
    reply = complete(client, n_predict=n_predict)
    assert (reply["tokens_predicted"], reply["tokens_cached"]) == (1, len(PROMPT))
    assert reply["timings"]["predicted_per_second"] == 0.0


def test_the_end_of_the_context_truncates(client: httpx.Client) -> None:
    """A generation that fills its slot stops there and says so."""
    reply = complete(client, prompt=[50] * (CTX - 6), n_predict=20)
    assert (reply["truncated"], reply["stop_type"], reply["tokens_predicted"]) == (True, "limit", 6)
    assert reply["tokens_cached"] == CTX - 1


def test_a_stop_text_takes_its_entries_away(client: httpx.Client) -> None:
    """The text ends before the stop text, and the entries of its tokens are dropped."""
    content = complete(client)["content"]
    reply = complete(client, stop=[content[:1]])
    assert (reply["content"], reply["stop_type"], reply["stopping_word"]) == ("", "word", content[:1])
    assert "completion_probabilities" not in reply
    assert len(reply["tokens"]) == 1


def test_several_prompts_are_answered_by_a_list(client: httpx.Client) -> None:
    """Each prompt has its reply, in order."""
    response = client.post("/completion", json=BODY | {"prompt": [PROMPT, [9, 8]]})
    assert [(reply["index"], reply["tokens_evaluated"]) for reply in response.json()] == [(0, 5), (1, 2)]


def test_counters_move_by_exactly_our_sums(client: httpx.Client) -> None:
    """Prompt, cached and predicted tokens add up; a decode is counted for each step, with one busy slot."""
    before = metrics(client)
    replies = [complete(client, n_predict=steps, cache_prompt=steps > 1) for steps in (4, 4, 1)]
    after = metrics(client)
    moved = {name: after[name] - before[name] for name in after}
    assert moved["prompt_tokens_total"] == sum(reply["timings"]["prompt_n"] for reply in replies)
    assert moved["prompt_tokens_cached_total"] == sum(reply["timings"]["cache_n"] for reply in replies)
    assert moved["tokens_predicted_total"] == moved["n_decode_total"] == 4 + 4 + 1
    assert after["requests_processing"] == after["requests_deferred"] == 0


def test_refused_requests_move_no_counter(client: httpx.Client) -> None:
    """What is refused before the first decode leaves the counters alone."""
    before = metrics(client)
    for prompt in ([VOCABULARY], [5] * CTX, []):
        assert client.post("/completion", json=BODY | {"prompt": prompt}).status_code == 400
    after = metrics(client)
    assert all(after[name] == before[name] for name in after if name.endswith("total"))


def together(target: Target, slots: list[int], n_predict: int) -> tuple[list[dict[str, Any]], float]:
    """Send requests at once, one a slot asked for; return the replies and the mean of busy slots a decode."""
    # A new process counts from 0, so that six digits are enough.
    target.restart()
    connections = [http.client.HTTPConnection(target.url.removeprefix("http://"), timeout=TIMEOUT_S) for _ in slots]
    for connection in connections:
        connection.connect()
    for connection, slot in zip(connections, slots, strict=True):
        connection.request("POST", "/completion", json.dumps(BODY | {"id_slot": slot, "n_predict": n_predict}))
    replies = [json.loads(connection.getresponse().read()) for connection in connections]
    for connection in connections:
        connection.close()
    with connected(target) as client:
        return replies, metrics(client)["n_busy_slots_per_decode"]


def test_requests_on_slots_of_their_own_share_decodes(target: Target) -> None:
    """Four requests on four slots are computed together."""
    replies, busy = together(target, [0, 1, 2, 3], n_predict=240)
    assert [reply["id_slot"] for reply in replies] == [0, 1, 2, 3]
    assert busy > 1


def test_requests_pinned_to_one_slot_wait_for_each_other(target: Target) -> None:
    """Four requests on one slot all succeed, and no decode ever holds two."""
    replies, busy = together(target, [2, 2, 2, 2], n_predict=16)
    assert [reply["id_slot"] for reply in replies] == [2, 2, 2, 2]
    assert busy == 1


def test_a_restart_is_a_new_process(target: Target, client: httpx.Client) -> None:
    """Counters are 0, slots are unused, and what names the process is another."""
    complete(client)
    before, marker = client.get("/metrics"), client.get("/props").json()["media_marker"]
    assert client.get("/metrics").headers["process-start-time-unix"] == before.headers["process-start-time-unix"]
    target.restart()
    with connected(target) as fresh:
        after = fresh.get("/metrics")
        assert after.headers["process-start-time-unix"] != before.headers["process-start-time-unix"]
        assert metrics(fresh)["prompt_tokens_total"] == 0
        assert all("id_task" not in slot for slot in fresh.get("/slots").json())
        assert fresh.get("/props").json()["media_marker"] != marker


def test_a_client_that_goes_away_frees_its_slot(target: Target, client: httpx.Client) -> None:
    """After a stream is dropped the slot is idle long before its end, and its tokens so far are counted."""
    before = metrics(client)["tokens_predicted_total"]
    with connected(target) as leaving, leaving.stream("POST", "/completion", json=BODY | {"stream": True}) as response:
        next(response.iter_bytes())
    deadline = time.monotonic() + 20
    while client.get("/slots").json()[1]["is_processing"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.get("/slots").json()[1]["is_processing"] is False
    assert metrics(client)["tokens_predicted_total"] > before


def test_a_connection_serves_a_hundred_replies(client: httpx.Client) -> None:
    """Replies promise to keep the connection until the hundredth, and errors close it at once."""
    fates = [client.get("/health").headers.get("connection") for _ in range(101)]
    assert fates == [None] * 99 + ["close", None]
    assert client.get("/novel").headers["connection"] == "close"


# Every exchange that is compared: method, path, body (JSON, or raw bytes).
EXCHANGES: dict[str, tuple[str, str, object]] = {
    "health": ("GET", "/health", None),
    "health, second name": ("GET", "/v1/health", None),
    "props": ("GET", "/props", None),
    "models": ("GET", "/v1/models", None),
    "slots": ("GET", "/slots", None),
    "metrics": ("GET", "/metrics", None),
    "tokenize": ("POST", "/tokenize", {"content": "Hello", "add_special": True, "parse_special": True}),
    "tokenize with pieces": ("POST", "/tokenize", {"content": "Hello", "with_pieces": True}),
    "tokenize nothing": ("POST", "/tokenize", {}),
    "detokenize": ("POST", "/detokenize", {"tokens": PROMPT}),
    "apply-template": ("POST", "/apply-template", {"messages": [{"role": "user", "content": "Hello"}]}),
    "whole": ("POST", "/completion", BODY),
    "other name": ("POST", "/completions", BODY),
    "whole, text prompt": ("POST", "/completion", BODY | {"prompt": "Hello"}),
    "whole, mixed prompt": ("POST", "/completion", BODY | {"prompt": ["Hello", 50]}),
    "whole, no entries": ("POST", "/completion", BODY | {"n_probs": 0}),
    "whole, no ids": ("POST", "/completion", BODY | {"return_tokens": False}),
    "whole, post-sampling": ("POST", "/completion", BODY | {"post_sampling_probs": True, "temperature": 1.0}),
    "streamed": ("POST", "/completion", BODY | {"stream": True}),
    "streamed with timings": ("POST", "/completion", BODY | {"stream": True, "timings_per_token": True}),
    "grammar to its end": ("POST", "/completion", BODY | {"grammar": "root ::= <[107]>", "ignore_eos": False}),
    "grammar past its end": ("POST", "/completion", BODY | {"grammar": "root ::= <[107]>"}),
    "grammar past its end, streamed": ("POST", "/completion", BODY | {"grammar": "root ::= <[107]>", "stream": True}),
    "grammar, unreadable": ("POST", "/completion", BODY | {"grammar": "root ::= <<"}),
    "grammar, unknown id": ("POST", "/completion", BODY | {"grammar": "root ::= <[99999]>"}),
    "id too large": ("POST", "/completion", BODY | {"prompt": [VOCABULARY]}),
    "id too small": ("POST", "/completion", BODY | {"prompt": [-1]}),
    "id too large, streamed": ("POST", "/completion", BODY | {"prompt": [VOCABULARY], "stream": True}),
    "too long": ("POST", "/completion", BODY | {"prompt": [50] * CTX}),
    "too long, streamed": ("POST", "/completion", BODY | {"prompt": [50] * CTX, "stream": True}),
    "empty list": ("POST", "/completion", BODY | {"prompt": []}),
    "no prompt": ("POST", "/completion", {}),
    "prompt of another type": ("POST", "/completion", BODY | {"prompt": 5}),
    "prompt of fractions": ("POST", "/completion", BODY | {"prompt": [1.5]}),
    "seed as text": ("POST", "/completion", BODY | {"seed": "42"}),
    "temperature as text": ("POST", "/completion", BODY | {"temperature": "cold"}),
    "cache_prompt as text": ("POST", "/completion", BODY | {"cache_prompt": "yes"}),
    "n_predict too small": ("POST", "/completion", BODY | {"n_predict": -2}),
    "body is no JSON": ("POST", "/completion", b"{bad"),
    "body is empty": ("POST", "/completion", b""),
    "body is a list": ("POST", "/completion", []),
    "tokenize a number": ("POST", "/tokenize", {"content": 5}),
    "detokenize text": ("POST", "/detokenize", {"tokens": "a"}),
    "detokenize an unknown id": ("POST", "/detokenize", {"tokens": [99999]}),
    "apply-template to nothing": ("POST", "/apply-template", {}),
    "apply-template to text": ("POST", "/apply-template", {"messages": "x"}),
    "apply-template without content": ("POST", "/apply-template", {"messages": [{"role": "user"}]}),
    "unknown path": ("GET", "/novel", None),
    "wrong method": ("GET", "/completion", None),
    "slot action": ("POST", "/slots/0?action=erase", {}),
    "slot action, unknown slot": ("POST", "/slots/99?action=erase", {}),
    "change of props": ("POST", "/props", {}),
}
# The same of servers that may save slots.
SLOT_ACTIONS: dict[str, tuple[str, str, object]] = {
    "erase": ("POST", "/slots/1?action=erase", {}),
    "slot beyond the slots": ("POST", "/slots/99?action=erase", {}),
    "slot with a letter behind": ("POST", "/slots/1x?action=erase", {}),
    "slot that is no number": ("POST", "/slots/one?action=erase", {}),
    "unknown action": ("POST", "/slots/1?action=novel", {}),
    "no action": ("POST", "/slots/1", {}),
}
# Errors that quote a library or the vocabulary: the words differ, the rest does not.
QUOTING = {"body is no JSON", "body is empty", "grammar past its end", "grammar, unknown id"}


def paths(value: object, prefix: str = "") -> set[str]:
    """Every path of keys in a JSON value, with the type of what is there; numbers are one type."""
    if isinstance(value, dict):
        return {prefix + ": object"}.union(*(paths(item, f"{prefix}.{key}") for key, item in value.items()))
    if isinstance(value, list):
        return {prefix + ": list"}.union(*(paths(item, f"{prefix}[]") for item in value))
    kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    return {f"{prefix}: {kind}"}


def shape(name: str, response: httpx.Response) -> tuple[object, ...]:
    """What has to agree of an exchange: status, header names, key paths, and errors word by word."""
    kind = response.headers["content-type"]
    body: object
    if kind.startswith("text/plain"):
        body = [line for line in response.text.splitlines() if line.startswith("#")]
    elif kind == "text/event-stream":
        body = [sorted(paths(json.loads(line[6:]))) for line in response.text.splitlines() if line]
    else:
        body = sorted(paths(response.json()))
        if response.is_error and name not in QUOTING:
            body = response.text
    return response.status_code, kind, list(response.headers), body


@pytest.mark.live
@pytest.mark.parametrize("name", EXCHANGES)
def test_the_fake_answers_as_a_real_server_does(name: str, fake: Target, live: Target) -> None:
    """Status, headers, key paths and error words are the same, and so is the order of the keys at the top."""
    method, path, body = EXCHANGES[name]
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    responses = []
    for server in (fake, live):
        server.restart() if name == "slots" else None
        with connected(server) as client:
            if name == "slots":
                complete(client)
            responses.append(client.request(method, path, content=content))
    assert shape(name, responses[0]) == shape(name, responses[1])
    if responses[0].headers["content-type"].startswith("application/json"):
        assert list(responses[0].json()) == list(responses[1].json()) or isinstance(responses[0].json(), list)


@pytest.mark.live
def test_the_fake_erases_slots_as_a_real_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a path to save slots at, an action has the same status, keys and errors, and an erased slot is empty."""
    pytest.importorskip("xllamacpp")
    model = resolve_model("tiny-llama-f32")
    save = LaunchSettings(slots=SLOTS, ctx_per_slot=CTX, threads=1)
    monkeypatch.setattr(
        owned, "embedded_fields", lambda *a, **k: embedded_fields(*a, **k) | {"slot_save_path": f"{tmp_path}/"}
    )
    fake_settings = FakeSettings(slots=SLOTS, ctx_per_slot=CTX, vocabulary=VOCABULARY, slot_save_path=True)
    with FakeThread(fake_settings) as fake, start_embedded(model, save, log_dir=tmp_path) as live:
        erased = []
        for server in (fake, live):
            with connected(server) as client:
                complete(client)
                erased.append(client.post(f"/slots/{1 + SLOTS}?action=erase", json={}).json())
                again = complete(client, cache_prompt=True)
                assert again["timings"]["cache_n"] == 0
        assert erased[0] == erased[1] == {"id_slot": 1 + SLOTS, "n_erased": len(PROMPT) + 6 - 1}
        for name, (method, path, body) in SLOT_ACTIONS.items():
            responses = []
            for server in (fake, live):
                with connected(server) as client:
                    responses.append(client.request(method, path, json=body))
            assert shape(name, responses[0]) == shape(name, responses[1])
