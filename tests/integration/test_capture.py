"""The instrument on servers whose faults are known: the clean one is found clean, each fault is found as what it is."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from audit.capture import Progress
from audit.errors import DeterminismError, PlanError, ServerError, UsageError
from audit.plan import Plan
from audit.store import Run
from audit.stream import digest
from tests.integration.auditing import (
    CONTROLS,
    REPOSITORY,
    Found,
    Owner,
    audit,
    fake_of,
    judge,
    lines,
    plan_of,
    run,
    target,
    verify,
)
from tests.integration.between import between

REPEATS: dict[str, Any] = {"name": "repeat_greedy", "prompts": ["a"], "count": 2}
CACHE: dict[str, Any] = {"name": "cache", "prompts": ["story"], "opener": "b"}
ALONE = plan_of(REPEATS)
WAVES = plan_of(
    REPEATS,
    {"name": "repeat_seeded", "prompts": ["a"], "count": 1},
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [4], "again": 1},
    {"name": "concurrent_seeded", "prompts": ["b"], "levels": [3]},
    {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["b"]},
    CACHE,
)
EVERYTHING = plan_of(
    {"name": "first_request", "prompts": ["a"], "count": 2},
    REPEATS,
    {"name": "repeat_seeded", "prompts": ["a"]},
    {"name": "other_slot", "prompts": ["a"], "levels": [3]},
    {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2], "again": 1},
    {"name": "concurrent_seeded", "prompts": ["a"], "levels": [2]},
    {"name": "oversubscribed", "prompts": ["a"], "levels": [6]},
    {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["b"]},
    {"name": "cross_batch_staggered", "prompts": ["a"], "neighbours": ["b"]},
    CACHE,
    {"name": "cache_prefix", "prompts": ["story"], "opener": "b"},
    {"name": "idle_neighbour", "prompts": ["a"], "neighbours": ["b"]},
    {"name": "prefill_vs_decode", "prompts": ["a"]},
    {"name": "stream_vs_whole", "prompts": ["a"]},
    {"name": "without_logprobs", "prompts": ["a"]},
    {"name": "restart", "prompts": ["a"]},
)
CONTROL_NAMES = {entry["name"] for entry in CONTROLS}


def order_of(plan: Plan) -> list[str]:
    """Return the trials of a plan in the order in which they run."""
    blocks = plan.unfold(digest(plan.to_bytes()))
    return [trial.trial for block in blocks for unit in block.units for trial in unit.trials]


def moved(found: Found) -> set[str]:
    """Return the conditions whose cells are divergent or token-identical, controls left out."""
    return {
        name for name, verdict in found.verdicts.items() if verdict in {"divergent", "token-identical"}
    } - CONTROL_NAMES


def test_a_clean_server_is_found_clean_under_every_condition(tmp_path: Path) -> None:
    """Every condition really happens on an owned fake, every control diverges, every check holds, and both agree."""
    with fake_of(slots=4) as fake:
        seal = run(tmp_path / "run", EVERYTHING, target(fake.url, owned=Owner(fake)))
    found = judge(tmp_path / "run")
    assert found.document["seal"] == seal
    assert found.document["sound"] is True
    assert all(entry["status"] == "held" for entry in found.document["instrument"])
    expected = dict.fromkeys(found.verdicts, "identical") | dict.fromkeys(CONTROL_NAMES, "divergent")
    # Without logprobs there is nothing but ids to be identical.
    expected["without_logprobs"] = "token-identical"
    # These proofs allow for 2 ms, which a machine that others use may exceed: then nothing is said, and never "moved".
    for name in ("oversubscribed_c6", "cross_batch_together", "cross_batch_staggered"):
        if found.verdicts[name] == "vacuous":
            assert set(found.cell(name)["reasons"]) <= {"windows", "queue"}
            expected[name] = "vacuous"
    assert found.verdicts == expected
    assert len(found.verdicts) == 22
    assert not any(cell["qualifiers"] for cell in found.document["cells"])
    assert [line["phase"] for line in found.lines("server")] == ["start", "restart", "restart", "end"]


def test_a_run_is_a_pure_function_of_nothing_but_the_server(tmp_path: Path) -> None:
    """The same plan against two processes of one fake gives the same streams, rows, requests and prompts."""
    with fake_of(step_ms=0.0) as one, fake_of(step_ms=0.0) as other:
        run(tmp_path / "run", ALONE, target(one.url, "one"), target(other.url, "other"))
    found = judge(tmp_path / "run")
    replies: dict[str, list[Any]] = {"one": [], "other": []}
    for line in found.lines("complete"):
        kept = ("logprob", "token", "rows", "settings", "prompt_echo", "id_slot", "cache_n", "prompt_n")
        replies[line["server"]].append([line["trial"], *(line["reply"][key] for key in kept)])
    assert replies["one"] == replies["other"]
    assert len(replies["one"]) == len(order_of(ALONE))
    assert found.document["sound"] is True
    servers = found.run.manifest.servers
    assert servers[0].attested.props == servers[1].attested.props
    assert servers[0].attested.process != servers[1].attested.process


def test_the_history_says_what_happened_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Each trial is invoked in its place, snapshots stand around each unit, and requests are the plan's bytes."""
    found = audit(tmp_path / "run", WAVES)
    invokes, completes = found.lines("invoke"), found.lines("complete")
    assert [line["trial"] for line in invokes] == order_of(WAVES)
    assert sorted(line["trial"] for line in completes) == sorted(order_of(WAVES))
    around = [(line["when"], line["unit"]) for line in found.lines("snapshot")]
    units = list(dict.fromkeys(line["unit"] for line in invokes))
    expected = [(when, unit) for unit in units for when in ("before", "after")]
    assert around == [("start", None), *expected, ("end", None)]
    by_trial = {line["trial"]: line for line in completes}
    wave = [by_trial[name] for name in order_of(WAVES) if name.startswith("concurrent_greedy_c4/a/0/w0/")]
    assert max(line["sent_ns"] for line in wave) < min(line["first_byte_ns"] for line in wave)
    assert {line["reply"]["id_slot"] for line in wave} == {0, 1, 2, 3}


def test_too_few_slots_make_a_wave_vacuous_and_it_is_not_sent(tmp_path: Path) -> None:
    """Eight members on two slots: the skip names both numbers, the cell is vacuous, the others are not touched."""
    plan = plan_of(REPEATS, {"name": "concurrent_greedy", "prompts": ["a"], "levels": [2, 8]})
    found = audit(tmp_path / "run", plan, slots=2)
    (skip,) = found.lines("skip")
    assert (skip["unit"], skip["reason"], skip["needed"], skip["available"]) == (
        "concurrent_greedy_c8/a/0/w0",
        "slots",
        8,
        2,
    )
    cell = found.cell("concurrent_greedy_c8")
    assert (cell["verdict"], cell["usable"], cell["reasons"]) == ("vacuous", 0, {"slots": 8})
    assert found.verdicts["concurrent_greedy_c2"] == "identical"
    assert found.document["sound"] is True
    assert not any("_c8" in line["trial"] for line in found.lines("invoke"))


def test_a_server_that_works_one_by_one_makes_waves_vacuous(tmp_path: Path) -> None:
    """Every reply is 200 and names its slot, the numbers are equal, and still nothing is said about concurrency."""
    found = audit(tmp_path / "run", WAVES, serialized=True)
    waves = {"concurrent_greedy_c4", "concurrent_seeded_c3", "wave_repeat", "cross_batch_together"}
    assert {name for name, verdict in found.verdicts.items() if verdict == "vacuous"} == waves
    for name in waves:
        assert found.cell(name)["reasons"] == {"windows": found.cell(name)["planned"]}
    assert found.verdicts["repeat_greedy"] == found.verdicts["cache_warm1"] == "identical"
    assert found.document["sound"] is True


async def on_slot_zero(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hand requests on, and ask for slot 0 whatever slot the client asks for."""
    with_body = b"content-length: "
    while head := await reader.readuntil(b"\r\n\r\n"):
        found = head.lower().find(with_body)
        length = int(head[found + len(with_body) :].split(b"\r\n", 1)[0]) if found >= 0 else 0
        body = await reader.readexactly(length)
        at = body.find(b'"id_slot":') + len(b'"id_slot":')
        # The length stays as it is: a slot below 10 is one digit.
        writer.write(head + (body[:at] + b"0" + body[at + 1 :] if b'"id_slot":' in body else body))


def test_four_members_on_one_slot_are_vacuous_although_their_requests_overlapped(tmp_path: Path) -> None:
    """The client saw four requests in flight at once; the server worked on one slot, and says so."""
    plan = plan_of(REPEATS, {"name": "concurrent_greedy", "prompts": ["a"], "levels": [4]})
    with fake_of() as fake, between(int(fake.url.rsplit(":", 1)[1]), upward=on_slot_zero) as port:
        run(tmp_path / "run", plan, target(f"http://127.0.0.1:{port}"))
    found = judge(tmp_path / "run")
    members = [line for line in found.lines("complete") if line["trial"].startswith("concurrent_greedy_c4")]
    assert max(line["sent_ns"] for line in members) < min(line["last_byte_ns"] for line in members)
    assert {line["reply"]["id_slot"] for line in members} == {0}
    cell = found.cell("concurrent_greedy_c4")
    assert (cell["verdict"], cell["usable"], cell["reasons"]) == ("vacuous", 0, {"slot": 3, "windows": 1})
    assert found.verdicts["repeat_greedy"] == "identical"


def test_one_ulp_of_one_logprob_is_found_and_located(tmp_path: Path) -> None:
    """One top-k logprob of one reply is one float32 lower: that trial, that step, that rank, one ULP."""
    planted = order_of(ALONE).index("repeat_greedy/a/1")
    found = audit(tmp_path / "run", ALONE, step_ms=0.0, one_ulp=planted)
    cell = found.cell("repeat_greedy")
    assert (cell["verdict"], cell["logprob_identical"], cell["token_identical"]) == ("token-identical", 1, 2)
    witness = cell["witness"]
    assert (witness["trial"], witness["reference"]) == ("repeat_greedy/a/1", "baseline/greedy/a")
    assert (witness["step"], witness["rank"], witness["level"], witness["ulp"]) == (6, 4, "logprob", 1)
    assert -1e-5 < witness["nats"] < 0
    # Only repeat_* can be judged beside a baseline that one of its repeats contradicts.
    assert found.verdicts["control_prompt"] == "unstable"


def test_a_server_that_ignores_the_seed_is_not_judged(tmp_path: Path) -> None:
    """The control does not diverge: the run is inconclusive, whatever the cells show."""
    found = audit(tmp_path / "run", ALONE, step_ms=0.0, seed_ignored=True)
    assert found.check("control_seed") == ("failed", 0, 2)
    assert found.check("control_prompt")[0] == "held"
    assert (found.document["sound"], found.document["conclusion"]) == (False, "inconclusive")
    assert found.check("settings")[0] == "held"


def test_a_server_that_ignores_the_temperature_is_not_judged(tmp_path: Path) -> None:
    """Both sampled controls fail."""
    found = audit(tmp_path / "run", ALONE, step_ms=0.0, temperature_ignored=True)
    assert {found.check(name)[0] for name in ("control_seed", "control_temperature")} == {"failed"}
    assert found.document["sound"] is False


def test_noise_of_concurrency_moves_only_what_ran_beside_others(tmp_path: Path) -> None:
    """Waves and mixed batches are perturbed; repeats and cache, which ran alone, are identical."""
    found = audit(tmp_path / "run", WAVES, jitter_concurrent=True)
    waves = {"concurrent_greedy_c4", "concurrent_seeded_c3"}
    assert waves <= moved(found) <= waves | {"wave_repeat", "cross_batch_together"}
    for name in ("repeat_greedy", "repeat_seeded", "cache_cold", "cache_warm1", "cache_warm2"):
        assert found.verdicts[name] == "identical"
    assert found.cell("concurrent_greedy_c4")["witness"]["ulp"] != 0
    assert found.document["sound"] is True


def test_noise_of_the_cache_moves_only_what_came_from_it(tmp_path: Path) -> None:
    """The warm cells move, and the cold one may, since the beginning that all prompts share is in the cache."""
    found = audit(tmp_path / "run", plan_of(REPEATS, CACHE), step_ms=0.0, jitter_cached=True)
    assert moved(found) - {"cache_cold"} == {"cache_warm1", "cache_warm2"}
    assert found.document["sound"] is True


def test_a_model_that_is_swapped_in_the_middle_taints_the_run(tmp_path: Path) -> None:
    """Everything that the server says of itself stays the same; the canary moves."""
    found = audit(tmp_path / "run", ALONE, step_ms=0.0, swap_after=len(order_of(ALONE)) // 2)
    assert found.check("canary") == ("failed", 0, 1)
    assert set(found.verdicts.values()) == {"tainted"}
    assert found.cell("repeat_greedy")["reasons"] == {"canary": 2}
    assert found.document["sound"] is False


def post(url: str, **changes: Any) -> None:  # noqa: ANN401 - any JSON
    """Generate something as a client that nobody planned for."""
    body = {"prompt": [40, 50, 60], "n_predict": 4, "ignore_eos": True, "id_slot": 7, "cache_prompt": False, **changes}
    assert httpx.post(f"{url}/completion", json=body, trust_env=False, timeout=30).status_code == 200


def processing(url: str) -> set[int]:
    """Return the slots that work at this moment."""
    slots = httpx.get(f"{url}/slots", trust_env=False, timeout=30).json()
    return {slot["id"] for slot in slots if slot["is_processing"]}


# A second of one trial, in which something else can happen.
LONG = plan_of(
    REPEATS,
    {"name": "stream_vs_whole", "prompts": ["b"]},
    controls=False,
    prompts={"a": {"text": "Once upon a time"}, "b": {"text": "def median(values):", "steps": 200}},
)


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again and again, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_another_client_that_generates_before_a_trial_taints_it(tmp_path: Path) -> None:
    """The first snapshot sees a slot at work that is not ours."""
    threads: list[threading.Thread] = []

    def intrude(progress: Progress) -> None:
        if progress.condition == "stream_vs_whole":
            threads.append(threading.Thread(target=post, args=(fake.url,), kwargs={"n_predict": 200}))
            threads[-1].start()
            wait_until(lambda: processing(fake.url) == {7})

    with fake_of() as fake:
        run(tmp_path / "run", LONG, target(fake.url), report=intrude)
        threads[0].join()
    found = judge(tmp_path / "run")
    cell = found.cell("stream_vs_whole")
    assert (cell["verdict"], cell["reasons"]) == ("tainted", {"idle": 1})
    assert found.cell("repeat_greedy")["excluded"]["tainted"] == 0


def test_another_client_that_comes_and_goes_within_a_trial_taints_it(tmp_path: Path) -> None:
    """Both snapshots see an idle server, but it counted tokens that are not ours."""
    threads: list[threading.Thread] = []

    def wait_and_post() -> None:
        wait_until(lambda: 0 in processing(fake.url))
        post(fake.url)

    def intrude(progress: Progress) -> None:
        if progress.condition == "stream_vs_whole":
            threads.append(threading.Thread(target=wait_and_post))
            threads[-1].start()

    with fake_of() as fake:
        run(tmp_path / "run", LONG, target(fake.url), report=intrude)
        threads[0].join()
    found = judge(tmp_path / "run")
    cell = found.cell("stream_vs_whole")
    assert (cell["verdict"], cell["reasons"]) == ("tainted", {"accounting": 1})
    assert found.verdicts["repeat_greedy"] == "identical"


def test_a_server_that_somebody_else_restarts_taints_what_follows(tmp_path: Path) -> None:
    """The new process says the same of itself, but nobody planned it; the run goes on and says who answers now."""

    def meddle(progress: Progress) -> None:
        if progress.condition == "stream_vs_whole":
            fake.restart()

    with fake_of() as fake:
        assert run(tmp_path / "run", LONG, target(fake.url), report=meddle) is not None
    found = judge(tmp_path / "run")
    cell = found.cell("stream_vs_whole")
    assert (cell["verdict"], cell["reasons"]) == ("tainted", {"same server": 1})
    lines = found.lines("server")
    assert [line["phase"] for line in lines] == ["start", "change", "end"]
    assert len({line["attested"]["props"] for line in lines}) == 1
    assert lines[0]["attested"]["process"] != lines[1]["attested"]["process"] == lines[2]["attested"]["process"]
    asked = [line["health"] for line in found.lines("snapshot") if line["process"] == lines[1]["attested"]["process"]]
    assert asked[0] == 200, "at the change /health is asked too"


def test_a_request_that_breaks_off_is_tried_again_only_where_the_plan_says_so(tmp_path: Path) -> None:
    """Every attempt is in the record; the failed one keeps what is known of it and is never replaced."""

    def wait_and_restart() -> None:
        wait_until(lambda: 0 in processing(fake.url))
        fake.restart()

    def meddle(progress: Progress) -> None:
        if progress.condition == "stream_vs_whole":
            threads.append(threading.Thread(target=wait_and_restart))
            threads[-1].start()

    for attempts in (1, 2):
        threads: list[threading.Thread] = []
        plan, folder = LONG.model_copy(update={"attempts": attempts}), tmp_path / f"run{attempts}"
        with fake_of() as fake:
            assert run(folder, plan, target(fake.url), report=meddle) is not None
            threads[0].join()
        found = judge(folder)
        tried = [line for line in found.lines("complete") if line["trial"] == "stream_vs_whole/b/0"]
        assert [line["attempt"] for line in tried] == list(range(attempts))
        assert tried[0]["failure"]["kind"] == "transport"
        assert [line["failure"] for line in tried[1:]] == [None] * (attempts - 1)
        verdict = found.cell("stream_vs_whole")["verdict"]
        assert verdict == ("not run" if attempts == 1 else "tainted")


def test_without_metrics_and_slots_the_evidence_is_weak_and_said_so(tmp_path: Path) -> None:
    """What a server does not offer cannot be held; the verdict stands with a qualifier."""
    plan = plan_of(REPEATS, {"name": "concurrent_greedy", "prompts": ["a"], "levels": [4]})
    found = audit(tmp_path / "run", plan, metrics=False, slots_endpoint=False)
    assert found.verdicts["concurrent_greedy_c4"] == "identical"
    assert all("weak" in cell["qualifiers"] for cell in found.document["cells"])
    assert found.document["sound"] is True
    assert {line["metrics"] for line in found.lines("snapshot")} == {None}


def generated(url: str) -> str:
    """Return how many tokens a server says it has generated."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=30).text
    return next(line.split()[1] for line in text.splitlines() if line.startswith("llamacpp:tokens_predicted_total "))


TOO_MUCH = {
    "a prompt too long": (
        plan_of(REPEATS, steps=60),
        r"s: prompts\.\w+ is \d+ tokens and asks for 60 more, but a slot .* holds 64",
    ),
    "an id too large": (
        plan_of(REPEATS, prompts={"a": {"ids": [5, 512]}, "b": {"text": "x"}}),
        r"s: prompts\.a: the server cannot read its ids",
    ),
    "a prompt shorter than what is kept": (
        plan_of(REPEATS, prompts={"a": {"text": "abc", "tokens": 50}, "b": {"text": "x"}}),
        r"s: prompts\.a has \d+ tokens and the plan keeps 50",
    ),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_a_server_cannot_hold_is_refused_before_anything_is_sent(tmp_path: Path, what: str) -> None:
    """The error names the prompt and both numbers; nothing was generated, and no run was begun."""
    plan, message = TOO_MUCH[what]
    with fake_of(ctx_per_slot=64, step_ms=0.0) as fake:
        with pytest.raises(PlanError, match=message) as caught:
            run(tmp_path / "run", plan, target(fake.url))
        assert generated(fake.url) == "0"
    assert caught.value.exit_code == 2
    assert list((tmp_path / "run").iterdir()) == [], "the same folder can be given again"


def test_a_longer_slot_takes_what_a_shorter_one_refuses(tmp_path: Path) -> None:
    """The hint of the refusal is true: with the context it names the same plan runs."""
    plan = plan_of(REPEATS, controls=False)
    for slots in (1, 3):
        with fake_of(slots=slots, ctx_per_slot=30, step_ms=0.0) as fake, pytest.raises(PlanError) as caught:
            run(tmp_path / f"refused{slots}", plan, target(fake.url))
        assert caught.value.hint is not None
        ctx_all = int(caught.value.hint.rsplit("-c ", 1)[1])
        assert ctx_all % slots == 0
        with fake_of(slots=slots, ctx_per_slot=ctx_all // slots, step_ms=0.0) as fake:
            assert run(tmp_path / f"taken{slots}", plan, target(fake.url)) is not None
        with fake_of(slots=slots, ctx_per_slot=ctx_all // slots - 1, step_ms=0.0) as fake, pytest.raises(PlanError):
            run(tmp_path / f"again{slots}", plan, target(fake.url))


@pytest.mark.parametrize(
    ("urls", "error", "message"),
    [
        (["good", "good"], UsageError, "two servers have the same name: s, s"),
        (["good", "http://127.0.0.1:1"], ServerError, r"s1: /props cannot be reached \(connect\)"),
    ],
)
def test_servers_that_cannot_be_audited_stop_the_run_before_it_begins(
    tmp_path: Path, urls: list[str], error: type[DeterminismError], message: str
) -> None:
    """Also where another one could: nothing is generated on either."""
    with fake_of() as fake:
        same = urls[0] == urls[1]
        targets = [
            target(fake.url if url == "good" else url, "s" if same or not i else f"s{i}") for i, url in enumerate(urls)
        ]
        with pytest.raises(error, match=message):
            run(tmp_path / "run", ALONE, *targets)
        assert generated(fake.url) == "0"


def test_a_folder_that_holds_a_run_is_not_written_to(tmp_path: Path) -> None:
    """A run is written once; what is there stays, byte for byte, and nothing is sent."""
    with fake_of(step_ms=0.0) as fake:
        run(tmp_path / "run", ALONE, target(fake.url))
        before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        count = generated(fake.url)
        with pytest.raises(UsageError, match=r"run is not empty"):
            run(tmp_path / "run", ALONE, target(fake.url))
        assert generated(fake.url) == count
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def assert_unsealed(folder: Path, *, finished: int) -> None:
    """Check that a broken-off run is readable, is called unsealed by both programs, and lost no finished attempt."""
    opened = Run.open(folder)
    assert opened.seal is None
    assert len(list(opened.lines())) == (folder / "history.jsonl").read_bytes().count(b"\n")
    completes = lines(folder, "complete")
    assert len(completes) >= finished
    for line in completes:
        if line["reply"]["rows"] is None:
            assert opened.stream(line["reply"]["logprob"]).logprob_digest == line["reply"]["logprob"]
        assert opened.has("facts", line["reply"]["settings"])
    code, report = verify(folder)
    assert code == 2
    assert report["sentence"].startswith("unsealed")
    assert f" {len(completes)} " in report["sentence"]
    assert report["findings"] is None


def test_a_run_that_is_stopped_is_unsealed_and_keeps_every_finished_attempt(tmp_path: Path) -> None:
    """The unit under way is finished, the interrupt is a line, and no seal is written."""
    asked = iter([False] * 6 + [True])
    with fake_of(step_ms=0.0) as fake:
        assert run(tmp_path / "run", ALONE, target(fake.url), stopped=lambda: next(asked)) is None
    assert [line["reason"] for line in lines(tmp_path / "run", "interrupt")] == ["stopped by the user"]
    assert [line["trial"] for line in lines(tmp_path / "run", "complete")] == order_of(ALONE)[:6]
    assert_unsealed(tmp_path / "run", finished=6)


CHILD = """
    import sys
    from pathlib import Path
    from tests.integration.auditing import run, target
    from tests.integration.test_capture import ALONE
    run(Path(sys.argv[1]), ALONE, target(sys.argv[2]))
"""


def test_a_run_that_is_killed_is_unsealed_and_keeps_every_finished_attempt(tmp_path: Path) -> None:
    """Killed with -9 in the middle: what was finished is on disk, what was under way is an invoke without an answer."""

    def finished() -> list[dict[str, Any]]:
        return lines(tmp_path / "run", "complete")

    with fake_of(step_ms=10.0) as fake:
        command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "run"), fake.url]
        with subprocess.Popen(command, cwd=REPOSITORY) as child:
            history = tmp_path / "run" / "history.jsonl"
            wait_until(lambda: child.poll() is not None or (history.exists() and len(finished()) >= 4))
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    assert 4 <= len(finished()) < len(order_of(ALONE))
    assert_unsealed(tmp_path / "run", finished=4)


def test_no_line_and_no_file_of_a_run_names_this_machine(tmp_path: Path) -> None:
    """No address, port, path or user gets into a record."""
    with fake_of(step_ms=0.0) as fake:
        run(tmp_path / "run", ALONE, target(fake.url))
        port = fake.url.rsplit(":", 1)[1]
    judge(tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.suffix != ".f32":
            text = path.read_bytes()
            for secret in (b"127.0.0.1", f":{port}".encode(), str(tmp_path).encode(), str(REPOSITORY).encode()):
                assert secret not in text, path


def test_a_findings_file_that_was_edited_contradicts(tmp_path: Path) -> None:
    """One count changed in findings.json: the verifier says 4 and names the field."""
    found = audit(tmp_path / "run", ALONE, step_ms=0.0)
    path = tmp_path / "run" / "findings.json"
    path.write_bytes(path.read_bytes().replace(b'"usable":2', b'"usable":3', 1))
    code, report = verify(tmp_path / "run")
    assert code == 4
    assert json.dumps(report["contradictions"])
    assert found.cell("repeat_greedy")["usable"] == 2
