"""The fake's engine: slots, queue, batches, cache and clock behave as llama-server's do, over a real socket."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from audit.fake import FakeSettings, FakeThread

BODY: dict[str, Any] = {
    "prompt": [40, 50, 60], "n_predict": 8, "temperature": 0.0, "seed": 7, "n_probs": 3, "cache_prompt": False,
    "return_tokens": True, "ignore_eos": True, "id_slot": -1,
}  # fmt: skip
# Ends are taken while replies are read: where the machine stalls, windows seem to part. One of so many waves shows it.
WAVES = 5


def ask(fake: FakeThread, path: str = "/completion", **changes: object) -> Any:  # noqa: ANN401 - any JSON
    """Send one completion over a connection of its own and return the reply with the time of its end."""
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=30) as client:
        reply = client.post(path, json=BODY | changes).json()
        return reply | {"end": time.monotonic()}


def get(fake: FakeThread, path: str) -> Any:  # noqa: ANN401 - any JSON
    """Send one GET and return its JSON."""
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=30) as client:
        return client.get(path).json()


def counters(fake: FakeThread) -> dict[str, float]:
    """Read `/metrics`."""
    with httpx.Client(base_url=fake.url, trust_env=False, timeout=30) as client:
        lines = client.get("/metrics").text.splitlines()
    pairs = [line.removeprefix("llamacpp:").split() for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def together(fake: FakeThread, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send several completions at once; replies in the order of the requests, each with the time of its end."""
    connections = [http.client.HTTPConnection(fake.url.removeprefix("http://"), timeout=30) for _ in changes]
    for connection in connections:
        connection.connect()
    for connection, change in zip(connections, changes, strict=True):
        connection.request("POST", "/completion", json.dumps(BODY | change))
    replies = []
    for connection in connections:
        replies.append(json.loads(connection.getresponse().read()) | {"end": time.monotonic()})
        connection.close()
    return replies


def window(reply: dict[str, Any]) -> tuple[float, float]:
    """The processing window of a reply, in monotonic seconds."""
    timings = reply["timings"]
    return reply["end"] - (timings["prompt_ms"] + timings["predicted_ms"]) / 1e3, reply["end"]


@pytest.fixture
def fake() -> Iterator[FakeThread]:
    """A clean server with four slots."""
    with FakeThread(FakeSettings(slots=4, ctx_per_slot=256, step_ms=1.0, ubatch=16)) as thread:
        yield thread


def test_a_prompt_beyond_the_batch_takes_more_decodes(fake: FakeThread) -> None:
    """64 tokens fit a decode of four times 16; the 65th takes another one."""
    ask(fake, prompt=[50] * 64, n_predict=1)
    assert counters(fake)["n_decode_total"] == 1
    ask(fake, prompt=[50] * 65, n_predict=1)
    assert counters(fake)["n_decode_total"] == 3


def test_any_slot_is_the_one_with_the_longest_prefix(fake: FakeThread) -> None:
    """A request without a slot goes where most of its prompt is, even with the cache off."""
    ask(fake, id_slot=0, prompt=[40, 50])
    ask(fake, id_slot=2, prompt=[40, 50, 60, 70])
    assert ask(fake, prompt=[40, 50, 60, 70, 80])["id_slot"] == 2


def test_any_slot_is_the_least_recently_used_without_a_prefix(fake: FakeThread) -> None:
    """A new prompt goes to a slot nobody has used, later to the one that rested longest."""
    for slot in (3, 2, 0, 1):
        ask(fake, id_slot=slot)
    assert ask(fake, prompt=[99, 98])["id_slot"] == 3
    assert ask(fake, prompt=[88, 87])["id_slot"] == 2


def test_more_requests_than_slots_wait_their_turn(fake: FakeThread) -> None:
    """Six requests on four slots use every slot, at most four at a time, and none is lost."""

    def overlap() -> int:
        before = counters(fake)["n_decode_total"]
        replies = together(fake, [{"prompt": [40 + index, 9], "n_predict": 80} for index in range(6)])
        assert {reply["id_slot"] for reply in replies} == {0, 1, 2, 3}
        assert [reply["tokens_predicted"] for reply in replies] == [80] * 6
        assert counters(fake)["n_decode_total"] - before >= 6 * 80 / 4
        # Replies are read one after another, so only the middle half of each window is certain.
        windows = [(begin + (end - begin) / 4, end - (end - begin) / 4) for begin, end in map(window, replies)]
        return max(sum(begin <= moment < end for begin, end in windows) for moment, _ in windows)

    assert any(overlap() == 4 for _ in range(WAVES))


def test_a_waiting_request_is_counted_as_deferred(fake: FakeThread) -> None:
    """While one request runs in a slot, another one for the same slot is deferred and its slot shown as busy."""
    first = threading.Thread(target=ask, args=(fake,), kwargs={"id_slot": 1, "n_predict": 120})
    second = threading.Thread(target=ask, args=(fake,), kwargs={"id_slot": 1, "n_predict": 120})
    first.start()
    second.start()
    seen = counters(fake)
    while first.is_alive() and not (seen["requests_processing"] == 1 and seen["requests_deferred"] == 1):
        seen = counters(fake)
    busy = get(fake, "/slots")[1]
    first.join()
    second.join()
    assert (seen["requests_processing"], seen["requests_deferred"]) == (1, 1)
    assert busy["is_processing"] is True
    assert busy["next_token"][0]["n_decoded"] + busy["next_token"][0]["n_remain"] == 120


def test_a_window_lies_between_sending_and_receiving(fake: FakeThread) -> None:
    """The time that a reply claims really passed, at least a step's worth for every decode after the first."""
    sent = time.monotonic()
    reply = ask(fake, n_predict=50)
    begin, end = window(reply)
    assert sent <= begin < end
    assert reply["timings"]["predicted_ms"] >= 40
    assert reply["timings"]["prompt_ms"] > 0


def test_windows_of_one_wave_overlap(fake: FakeThread) -> None:
    """Requests on slots of their own are processed in the same time, and share their decodes."""

    def overlaps() -> bool:
        before = counters(fake)["n_decode_total"]
        replies = together(fake, [{"id_slot": slot, "n_predict": 150} for slot in range(4)])
        windows = [window(reply) for reply in replies]
        shared = min(end for _, end in windows) - max(begin for begin, _ in windows)
        decodes = counters(fake)["n_decode_total"] - before
        return shared > 0.5 * min(end - begin for begin, end in windows) and decodes < 4 * 150 / 2

    assert any(overlaps() for _ in range(WAVES))


def test_all_members_of_a_wave_get_the_reply_of_a_solo_request(fake: FakeThread) -> None:
    """A clean server is batch-invariant: entries do not depend on who else is there."""
    solo = ask(fake, id_slot=0, n_predict=24)
    replies = together(fake, [{"id_slot": slot, "n_predict": 24} for slot in range(4)])
    for reply in replies:
        assert reply["completion_probabilities"] == solo["completion_probabilities"]


def test_a_client_that_hangs_up_frees_its_slot(fake: FakeThread) -> None:
    """Whole requests of 250 steps whose clients are gone after 50 ms do not run to their end, and leave no trace."""
    for slot in (1, 1):
        timeout = httpx.Timeout(30, read=0.05)
        with (
            httpx.Client(base_url=fake.url, trust_env=False, timeout=timeout) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            client.post("/completion", json=BODY | {"id_slot": slot, "n_predict": 250})
    assert ask(fake, id_slot=1, n_predict=1)["tokens_predicted"] == 1
    assert counters(fake)["tokens_predicted_total"] < 400
    assert counters(fake)["requests_deferred"] == 0


def test_an_empty_prompt_generates_nothing(fake: FakeThread) -> None:
    """The reply is a success without tokens, entries or counts."""
    reply = ask(fake, prompt="")
    assert (reply["tokens"], reply["tokens_evaluated"], reply["stop_type"]) == ([], 0, "none")
    assert "completion_probabilities" not in reply
    assert counters(fake)["n_decode_total"] == 0


def test_a_generation_without_a_limit_ends_with_the_sequence_or_the_slot(fake: FakeThread) -> None:
    """Without `n_predict` the end token or the context ends it, and the reply says which."""
    forced = ask(fake, n_predict=-1, ignore_eos=False, grammar="root ::= <[50]>")
    assert (forced["stop_type"], forced["tokens"], forced["truncated"]) == ("eos", [50, 1], False)
    assert forced["completion_probabilities"][1]["bytes"] == []
    full = ask(fake, n_predict=-1)
    assert (full["stop_type"], full["truncated"], full["tokens_predicted"]) == ("limit", True, 256 - 3)


def test_text_that_may_become_a_stop_text_is_held_back(fake: FakeThread) -> None:
    """A stop text that spans tokens is found, and nothing of it is sent."""
    pieces = [entry["token"] for entry in ask(fake, n_predict=4)["completion_probabilities"]]
    word = pieces[1] + pieces[2]
    reply = ask(fake, stop=[word])
    assert (reply["content"], reply["stopping_word"], reply["tokens_predicted"]) == (pieces[0], word, 3)
    assert len(reply.get("completion_probabilities", [])) == max(
        0, 3 - len(ask(fake, "/tokenize", content=word)["tokens"])
    )


def test_a_slot_remembers_what_it_held(fake: FakeThread) -> None:
    """After a reply its slot shows the fill, the task and the settings; the others have nothing to tell."""
    ask(fake, id_slot=2)
    slots = get(fake, "/slots")
    assert slots[2]["n_prompt_tokens"] == 3 + 8 - 1
    assert slots[2]["params"]["n_predict"] == 8
    assert set(slots[0]) == {"id", "n_ctx", "speculative", "is_processing"}
