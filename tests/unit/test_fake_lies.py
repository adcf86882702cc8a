"""Each lie of the fake says one thing and does another, and says nothing else that a clean server would not."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from audit.errors import UsageError
from audit.fake import FakeSettings, FakeThread, Faults
from tests.unit.test_fake_faults import BODY, SAMPLED, ask, entries, faulty

LONG = [0, *range(90, 130)]
OTHER = [0, 91, 92, 93]


def counter(client: httpx.Client, name: str) -> int:
    """Return a counter of `/metrics`."""
    lines = client.get("/metrics").text.splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")))


def test_the_prompt_is_ignored_and_echoed() -> None:
    """Two prompts give one stream, and each its own echo; a clean server gives two."""
    with faulty() as client:
        assert ask(client)["tokens"] != ask(client, prompt=OTHER)["tokens"]
    with faulty(prompt_ignored=True) as client:
        one, other = ask(client), ask(client, prompt=OTHER)
    assert one["completion_probabilities"] == other["completion_probabilities"]
    assert one["prompt"] != other["prompt"]


def test_defaults_are_applied_and_echoed() -> None:
    """A greedy request is sampled at 0.8 among 40, and the echo says so; other settings are as asked."""
    with faulty(defaults_applied=True) as client:
        settings = ask(client, temperature=0.0)["generation_settings"]
        streams = {tuple(ask(client, seed=seed, n_predict=16)["tokens"]) for seed in range(4)}
    assert (settings["temperature"], settings["top_k"], settings["n_probs"]) == (0.800000011920929, 40, 4)
    assert len(streams) > 1


def test_the_cache_is_used_and_hidden() -> None:
    """Timings speak of a fresh prompt, and the counter knows better."""
    with faulty(cache_hidden=True) as client:
        ask(client, prompt=LONG)
        before = counter(client, "prompt_tokens_total")
        timings = ask(client, prompt=LONG, cache_prompt=True)["timings"]
        assert (timings["cache_n"], timings["prompt_n"]) == (0, len(LONG))
        assert counter(client, "prompt_tokens_total") - before == 1


def test_the_cache_is_used_unasked() -> None:
    """A request that asks for no cache finds its prompt there."""
    for always, cached in ((False, 0), (True, len(LONG) - 1)):
        with faulty(cache_always=always) as client:
            ask(client, prompt=LONG)
            assert ask(client, prompt=LONG)["timings"]["cache_n"] == cached


def test_slots_wrap_before_their_number_is_reached() -> None:
    """Four slots are there and two are used; the reply names the one that was."""
    with faulty(slot_wrapped=2) as client:
        assert [ask(client, id_slot=slot)["id_slot"] for slot in (0, 1, 2, 3)] == [0, 1, 0, 1]
        assert len(client.get("/slots").json()) == client.get("/props").json()["total_slots"] == 4


@pytest.mark.parametrize(("fault", "echo"), [("cross_talk", OTHER), ("cross_talk_hidden", [40, 50, 60])])
def test_another_conversation_is_answered(fault: str, echo: list[int]) -> None:
    """One reply holds the answer to another prompt, under its own echo or under that of the right one."""
    with faulty(**{fault: 3}) as client:
        sampled = ask(client, prompt=[0, 5], **SAMPLED)
        other, own, crossed, again = (ask(client, prompt=prompt) for prompt in (OTHER, *[[40, 50, 60]] * 3))
        text = client.post("/detokenize", json={"tokens": echo}).json()["content"]
    assert crossed["completion_probabilities"] == other["completion_probabilities"] != own["completion_probabilities"]
    assert crossed["prompt"] == text
    assert again["completion_probabilities"] == own["completion_probabilities"]
    assert sampled["tokens"] != crossed["tokens"]


def test_without_another_answer_that_fits_the_own_one_is_given() -> None:
    """A reply of another length cannot be passed off."""
    with faulty(cross_talk=1) as client:
        ask(client, prompt=OTHER, n_predict=4)
        assert ask(client)["prompt"] == ask(client)["prompt"]


def test_a_prompt_is_cut_and_the_echo_is_honest() -> None:
    """Only the end of the prompt is evaluated, and echoed."""
    with faulty(prompt_truncated=5) as client:
        cut, short = ask(client, prompt=LONG), ask(client, prompt=LONG[-5:])
    assert cut["tokens_evaluated"] == cut["timings"]["prompt_n"] == 5
    assert (cut["tokens"], cut["prompt"]) == (short["tokens"], short["prompt"])


def streamed(client: httpx.Client, **changes: object) -> list[dict[str, Any]]:
    """Return the events of a streamed completion."""
    text = client.post("/completion", json=BODY | {"stream": True} | changes).text
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n") if event]


def test_drafted_tokens_have_no_top_k() -> None:
    """Every second entry is 0.0 and empty, whole and streamed; timings and settings name it."""
    with faulty(speculative=True) as client:
        reply, events = ask(client), streamed(client)
    whole = [(entry["logprob"] == 0.0, entry["top_logprobs"] == []) for entry in reply["completion_probabilities"]]
    assert whole == [(False, False), (True, True)] * 4
    assert [event["completion_probabilities"][0] for event in events[:-1]] == reply["completion_probabilities"]
    assert reply["timings"]["draft_n"] == events[-1]["timings"]["draft_n"] == 4
    assert reply["generation_settings"]["speculative.types"] == "draft"


def test_post_sampling_is_reported_unasked() -> None:
    """Entries hold probabilities in the place of logprobs, under an echo that denies it."""
    with faulty(post_sampling=True) as client:
        reply = ask(client)
    assert all("prob" in entry and "logprob" not in entry for entry in reply["completion_probabilities"])
    assert reply["generation_settings"]["post_sampling_probs"] is False


def test_a_split_character_loses_its_entry_and_streamed_its_id() -> None:
    """The middle token of eight has no entry; of a stream its id is lost too; two tokens are too few for a middle."""
    with faulty(split_characters=True) as client:
        reply, events, short = ask(client), streamed(client), ask(client, n_predict=2)
    tokens = reply["tokens"]
    assert [entry["id"] for entry in reply["completion_probabilities"]] == tokens[:4] + tokens[5:]
    assert [token for event in events for token in event["tokens"]] == tokens[:4] + tokens[5:]
    assert len(short["completion_probabilities"]) == 2


def test_timings_are_missing() -> None:
    """The last event of a stream has none either."""
    with faulty(timings_missing=True) as client:
        assert "timings" not in ask(client)
        assert "timings" not in streamed(client)[-1]


def test_old_replies_are_repeated_and_not_counted() -> None:
    """The same body again is answered by the same bytes, whole and streamed, also after a restart; another is not."""
    settings = FakeSettings(faults=Faults(replies_repeated=True))
    with FakeThread(settings) as fake:
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            first = [client.post("/completion", json=BODY | {"stream": stream}).content for stream in (False, True)]
            count = counter(client, "tokens_predicted_total")
        fake.restart()
        with httpx.Client(base_url=fake.url, trust_env=False) as client:
            again = [client.post("/completion", json=BODY | {"stream": stream}).content for stream in (False, True)]
            assert (again, counter(client, "tokens_predicted_total")) == (first, 0)
            assert client.post("/completion", json=BODY | {"seed": 8}).content not in first
    assert count == 16


def test_another_build_answers_after_a_while() -> None:
    """From the second request on `/props` names it; nothing else changes."""
    with faulty(build_after=2) as client:
        builds = []
        for _ in range(3):
            entries(client)
            builds.append(client.get("/props").json()["build_info"])
    assert builds == ["b0-fake", "b0-fake-other", "b0-fake-other"]


def test_a_new_process_answers_on_the_same_connection() -> None:
    """Once, after the second request: counters begin anew, the process has another name, numbers are the same."""
    with faulty(restart_after=2) as client:
        one, two = (ask(client) for _ in range(2))
        metrics = client.get("/metrics")
        assert counter(client, "tokens_predicted_total") == 0
        replies = [ask(client) for _ in range(3)]
        after = client.get("/metrics")
    assert {json.dumps(reply["completion_probabilities"]) for reply in (one, two, *replies)} == {
        json.dumps(one["completion_probabilities"])
    }
    assert after.headers["process-start-time-unix"] == metrics.headers["process-start-time-unix"]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"slot_wrapped": 0}, "slot_wrapped is 0, but must be at least 1"),
        ({"jitter_once_in": 0}, "jitter_once_in is 0"),
        ({"prompt_truncated": 0}, "prompt_truncated is 0"),
        ({"one_ulp": -1}, "one_ulp is -1, but must be at least 0"),
    ],
)
def test_a_switch_that_counts_nothing_is_refused(faults: dict[str, int], message: str) -> None:
    """The error names the switch and its least value."""
    with pytest.raises(UsageError, match=message):
        FakeSettings(faults=Faults(**faults))  # type: ignore[arg-type]
