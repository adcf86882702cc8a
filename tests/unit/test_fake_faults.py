"""Every fault of the fake does what its switch says and nothing else; a clean server does none of it."""

import http.client
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from audit.errors import UsageError
from audit.fake import FakeSettings, FakeThread, Faults

BODY: dict[str, Any] = {
    "prompt": [40, 50, 60], "n_predict": 8, "temperature": 0.0, "seed": 7, "n_probs": 4, "cache_prompt": False,
    "return_tokens": True, "ignore_eos": True, "id_slot": 0,
}  # fmt: skip
SAMPLED = {"temperature": 1.5, "samplers": ["temperature"]}


@contextmanager
def faulty(**faults: Any) -> Iterator[httpx.Client]:  # noqa: ANN401 - values of switches
    """A client of a server with these faults."""
    settings = FakeSettings(slots=4, ctx_per_slot=256, step_ms=1.0, faults=Faults(**faults))
    with FakeThread(settings) as fake, httpx.Client(base_url=fake.url, trust_env=False, timeout=30) as client:
        yield client


def ask(client: httpx.Client, **changes: object) -> Any:  # noqa: ANN401 - any JSON
    """Send one completion and return its JSON."""
    response = client.post("/completion", json=BODY | changes)
    assert response.status_code == 200
    return response.json()


def entries(client: httpx.Client, **changes: object) -> Any:  # noqa: ANN401 - any JSON
    """Return the entries of one completion."""
    return ask(client, **changes)["completion_probabilities"]


def wave(client: httpx.Client, prompts: list[list[int]]) -> list[dict[str, Any]]:
    """Send a completion a prompt at once, each on its own slot."""
    connections = [http.client.HTTPConnection(client.base_url.netloc.decode(), timeout=30) for _ in prompts]
    for connection in connections:
        connection.connect()
    for slot, (connection, prompt) in enumerate(zip(connections, prompts, strict=True)):
        body = BODY | {"id_slot": slot, "prompt": prompt, "n_predict": 48}
        connection.request("POST", "/completion", json.dumps(body))
    replies = [json.loads(connection.getresponse().read()) for connection in connections]
    for connection in connections:
        connection.close()
    return replies


def values(steps: list[dict[str, Any]]) -> list[float]:
    """Every logprob of a reply, the sampled token's first in each step."""
    return [value for step in steps for value in (step["logprob"], *(top["logprob"] for top in step["top_logprobs"]))]


def bits(value: float) -> int:
    """The bits of a float32."""
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


def test_one_ulp_moves_one_value_of_one_completion() -> None:
    """In the completion with that index one logprob of the middle step is one float32 lower; the others are clean."""
    with faulty() as client:
        clean = entries(client)
    with faulty(one_ulp=1) as client:
        replies = [entries(client) for _ in range(3)]
    assert replies[0] == replies[2] == clean
    moved = [(was, now) for was, now in zip(values(clean), values(replies[1]), strict=True) if was != now]
    assert [(bits(now) - bits(was)) for was, now in moved] == [1]
    assert replies[1][4]["top_logprobs"][-1]["logprob"] == moved[0][1]
    assert [step["id"] for step in replies[1]] == [step["id"] for step in clean]


def test_one_ulp_hits_a_stream_too() -> None:
    """The event of the middle step carries the moved value."""
    with faulty(one_ulp=0) as client:
        text = client.post("/completion", json=BODY | {"stream": True}).text
    with faulty() as client:
        clean = client.post("/completion", json=BODY | {"stream": True}).text
    different = [
        index
        for index, (was, now) in enumerate(zip(clean.split("\n\n"), text.split("\n\n"), strict=True))
        if was != now
    ]
    # The last event differs by its timings.
    assert different == [4, 8]


def test_a_clean_server_samples_by_seed_and_temperature() -> None:
    """Another seed, or another temperature, gives another stream: what the next two faults take away."""
    with faulty() as client:
        seeds = [ask(client, **SAMPLED | {"seed": seed, "n_predict": 16})["tokens"] for seed in range(3)]
        greedy = ask(client, n_predict=16)["tokens"]
    assert len({tuple(tokens) for tokens in [*seeds, greedy]}) == 4


def test_seed_ignored_samples_all_seeds_alike() -> None:
    """Every seed gives one stream, while the echo says what was asked; temperatures still differ."""
    with faulty(seed_ignored=True) as client:
        replies = [ask(client, **SAMPLED | {"seed": seed, "n_predict": 16}) for seed in range(3)]
        greedy = ask(client, n_predict=16)
    assert replies[0]["tokens"] == replies[1]["tokens"] == replies[2]["tokens"] != greedy["tokens"]
    assert [reply["generation_settings"]["seed"] for reply in replies] == [0, 1, 2]


def test_temperature_ignored_is_greedy_always() -> None:
    """Every temperature gives the greedy stream, while the echo says what was asked."""
    with faulty(temperature_ignored=True) as client:
        hot, cold = ask(client, **SAMPLED), ask(client)
    assert hot["tokens"] == cold["tokens"]
    assert hot["generation_settings"]["temperature"] == 1.5


@pytest.mark.parametrize("serialized", [False, True])
def test_serialized_processes_one_request_at_a_time(serialized: bool) -> None:
    """Four requests on four slots succeed and name their slots, but no decode holds two of them."""
    with faulty(serialized=serialized) as client:
        replies = wave(client, [[40, 50, 60]] * 4)
        line = next(line for line in client.get("/metrics").text.splitlines() if line.startswith("llamacpp:n_busy"))
    assert [reply["id_slot"] for reply in replies] == [0, 1, 2, 3]
    assert (float(line.split()[1]) == 1) is serialized


def logprobs_move(client: httpx.Client, prompts: list[list[int]]) -> bool:
    """Whether any member of a wave differs from its solo request."""
    solo = [entries(client, prompt=prompt, n_predict=48) for prompt in prompts]
    return [reply["completion_probabilities"] for reply in wave(client, prompts)] != solo


SAME, MIXED = [[40, 50, 60]] * 4, [[40, 50, 60], [70, 80], [90], [91, 92]]


@pytest.mark.parametrize(
    ("faults", "moves_same", "moves_mixed"),
    [
        ({}, False, False),
        ({"jitter_concurrent": True}, True, True),
        ({"jitter_mixed_batch": True}, False, True),
        ({"jitter_cached": True}, False, False),
    ],
)
def test_jitter_moves_waves_and_never_solo_requests(
    faults: dict[str, bool], moves_same: bool, moves_mixed: bool
) -> None:
    """Solo repeats are identical under each; concurrency moves all waves, a mixed batch only those of other prompts."""
    with faulty(**faults) as client:
        assert entries(client) == entries(client)
        assert logprobs_move(client, SAME) is moves_same
        assert logprobs_move(client, MIXED) is moves_mixed


def test_jitter_is_rounding_noise() -> None:
    """What moves is tiny, and moves only the numbers."""
    with faulty(jitter_concurrent=True) as client:
        solo = entries(client, n_predict=48)
        replies = wave(client, SAME)
    for reply in replies:
        pairs = zip(values(solo), values(reply["completion_probabilities"]), strict=True)
        assert max(abs(was - now) for was, now in pairs) < 1e-4


@pytest.mark.parametrize("jitter", [False, True])
def test_jitter_cached_moves_what_comes_from_the_cache(jitter: bool) -> None:
    """The same request differs once part of its prompt is reused, and not while the cache is off."""
    with faulty(jitter_cached=jitter) as client:
        cold = entries(client, cache_prompt=True)
        warm = ask(client, cache_prompt=True)
        assert warm["timings"]["cache_n"] == 2
        assert (warm["completion_probabilities"] != cold) is jitter
        assert entries(client) == cold


def test_loading_answers_503_on_every_route() -> None:
    """While the model loads every route says so, also after a restart."""
    settings = FakeSettings(faults=Faults(loading_s=3600))
    with FakeThread(settings) as fake, httpx.Client(base_url=fake.url, trust_env=False) as client:
        for path in ("/health", "/props", "/slots", "/novel"):
            response = client.get(path)
            assert response.status_code == 503
            assert response.json() == {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
        assert client.post("/completion", json=BODY).status_code == 503
        fake.restart()
        assert client.get("/health").status_code == 503


def test_loading_ends_after_its_time() -> None:
    """From then on the server answers."""
    with faulty(loading_s=0.05) as client:
        while client.get("/health").status_code == 503:
            pass
        assert ask(client)["tokens_predicted"] == 8


def test_swap_after_changes_the_model_and_not_its_name() -> None:
    """After that many completions the same request gives other numbers under the same identity; a restart undoes it."""
    settings = FakeSettings(faults=Faults(swap_after=2))
    with FakeThread(settings) as fake:
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            props = client.get("/props").json()
            replies = [entries(client) for _ in range(4)]
            assert replies[0] == replies[1] != replies[2] == replies[3]
            assert client.get("/props").json() == props
        fake.restart()
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            assert entries(client) == replies[0]


def test_a_negative_loading_time_is_refused() -> None:
    """Time does not run backwards."""
    with pytest.raises(UsageError, match="loading_s is -1"):
        FakeSettings(faults=Faults(loading_s=-1))
