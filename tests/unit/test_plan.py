"""A plan is read strictly, resolved canonically, and unfolds in the order and with the seeds of record.md."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import PlanError
from audit.plan import Plan, registered_digest, seed
from audit.stream import canonical, digest
from audit.trial import Block, Trial
from tests.unit import toy_plan

REGISTERED = "sha256:" + "0123456789abcdef" * 4
TOML = """
name = "small"
canary = { prompt = "p" }
[prompts.p]
text = "one {registered}"
[prompts.q]
ids = [1, 2, 3]
steps = 9
[[conditions]]
name = "repeat_greedy"
prompts = ["p", "q"]
count = 2
"""


def small(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Return a small plan as a file holds it, changed."""
    return {**tomllib.loads(TOML), **changes}


def with_entry(**entry: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Return a small plan with one entry."""
    return small(conditions=[{"prompts": ["p", "q"], **entry}])


def sha(*parts: str) -> str:
    """Return the bare hex digest of parts put together."""
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def trials(blocks: tuple[Block, ...]) -> list[Trial]:
    """Return all trials in order."""
    return [trial for block in blocks for unit in block.units for trial in unit.trials]


def names(blocks: tuple[Block, ...]) -> list[str]:
    """Return the ids of blocks in order."""
    return [block.block for block in blocks]


def test_a_resolved_plan_holds_every_key_of_the_page() -> None:
    """Defaults are filled in, and the bytes are canonical."""
    blank = {"text": None, "chat": None, "ids": None, "tokens": None, "steps": None}
    entry = {"name": "repeat_greedy", "prompts": ["p", "q"], "count": 2, "levels": [], "again": 0, "neighbours": []}
    assert json.loads(Plan.parse(small()).to_bytes()) == {
        "format": 1, "kind": "audit", "name": "small", "steps": 32, "n_probs": 10, "pace_per_second": 50.0,
        "timeout_s": 120.0, "attempts": 1, "control_temperature": 1.5, "canary": {"prompt": "p", "steps": 2},
        "sampling": {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0},
        "prompts": {"p": {**blank, "text": "one {registered}"}, "q": {**blank, "ids": [1, 2, 3], "steps": 9}},
        "conditions": [{**entry, "opener": None, "minimum": None}],
    }  # fmt: skip
    assert Plan.parse(small()).to_bytes() == canonical(json.loads(Plan.parse(small()).to_bytes()))


def test_a_resolved_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """plan.json loads, and gives the same bytes again."""
    plan = Plan.parse(toy_plan.plan())
    (tmp_path / "plan.json").write_bytes(plan.to_bytes())
    assert Plan.load(tmp_path / "plan.json").to_bytes() == plan.to_bytes()


def test_how_a_plan_is_written_does_not_change_its_digest(tmp_path: Path) -> None:
    """Comments, spaces, key order, defaults written out, whole numbers for floats, TOML or JSON: one plan."""
    (tmp_path / "a.toml").write_text(TOML)
    (tmp_path / "b.toml").write_text(TOML.replace("name = ", "# a comment\npace_per_second = 50\nname   =   ", 1))
    (tmp_path / "c.json").write_text(json.dumps(dict(reversed(small(steps=32).items())), indent=3))
    assert len({Plan.load(path).to_bytes() for path in tmp_path.iterdir()}) == 1


CHANGES: dict[str, dict[str, Any]] = {
    "name": small(name="other"),
    "steps": small(steps=33),
    "n_probs": small(n_probs=11),
    "pace_per_second": small(pace_per_second=20.0),
    "timeout_s": small(timeout_s=60.0),
    "attempts": small(attempts=2),
    "sampling.temperature": small(sampling={"temperature": 0.9}),
    "sampling.top_k": small(sampling={"top_k": 41}),
    "sampling.top_p": small(sampling={"top_p": 0.9}),
    "sampling.min_p": small(sampling={"min_p": 0.1}),
    "control_temperature": small(control_temperature=1.4),
    "canary.prompt": small(canary={"prompt": "q"}),
    "canary.steps": small(canary={"prompt": "p", "steps": 3}),
    "a prompt's name": small(prompts={**small()["prompts"], "r": {"text": "one"}}),
    "a prompt's text": small(prompts={**small()["prompts"], "p": {"text": "two"}}),
    "a prompt's tokens": small(prompts={**small()["prompts"], "q": {"ids": [1, 2, 3], "steps": 9, "tokens": 2}}),
    "an entry's count": with_entry(name="repeat_greedy", count=3),
    "an entry's name": with_entry(name="repeat_seeded", count=2),
    "an entry's prompts": with_entry(name="repeat_greedy", count=2, prompts=["q", "p"]),
    "an entry's minimum": with_entry(name="repeat_greedy", count=2, minimum=1),
    "an entry's levels": with_entry(name="repeat_greedy", count=2, levels=[2]),
    "an entry's again": with_entry(name="repeat_greedy", count=2, again=1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_every_field_takes_part_in_the_digest(what: str) -> None:
    """Whatever differs in a plan makes it another plan."""
    assert Plan.parse(CHANGES[what]).to_bytes() != Plan.parse(small()).to_bytes()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": (small(colour="red"), r"plan: colour: .*not permitted, got 'red'"),
    "an unknown field of a prompt": (
        small(prompts={"p": {"text": "x", "size": 3}}),
        r"plan: prompts\.p\.size: .*not permitted, got 3",
    ),
    "an unknown field of an entry": (with_entry(name="cache", colour=1), r"plan: conditions\[0\]\.colour: .*got 1"),
    "another format": (small(format=2), r"plan: format: .*got 2"),
    "another kind": (small(kind="identity"), r"plan: kind: .*got 'identity'"),
    "no steps": (small(steps=0), r"plan: steps: .*greater than or equal to 1, got 0"),
    "steps as text": (small(steps="32"), r"plan: steps: .*valid integer, got '32'"),
    "a fraction of a step": (small(steps=1.5), r"plan: steps: .*got 1\.5"),
    "a truth for a number": (small(steps=True), r"plan: steps: .*got True"),
    "an infinite pace": (small(pace_per_second=float("inf")), r"plan: pace_per_second: .*finite.*got inf"),
    "a pace that is none": (small(pace_per_second=float("nan")), r"plan: pace_per_second: .*got nan"),
    "an infinite temperature": (
        small(sampling={"temperature": float("inf")}),
        r"plan: sampling\.temperature: .*got inf",
    ),
    "a cold sampling": (small(sampling={"temperature": 0.0}), r"plan: sampling\.temperature: .*got 0\.0"),
    "a name with a path": (small(name="../x"), r"plan: name: .*got '\.\./x'"),
    "a name with a line break": (small(name="x\n"), r"plan: name: "),
    "no prompts": (small(prompts={}), r"plan: prompts: "),
    "no conditions": (small(conditions=[]), r"plan: conditions: .*got \[\]"),
    "no canary": ({k: v for k, v in small().items() if k != "canary"}, r"plan: canary: Field required"),
    "a prompt of two sources": (
        small(prompts={"p": {"text": "x", "ids": [1]}}),
        r"plan: prompts\.p: a prompt needs exactly one of text, chat and ids",
    ),
    "a prompt of no source": (small(prompts={"p": {"steps": 3}}), r"plan: prompts\.p: .*exactly one"),
    "a prompt's name that reads like a block": (
        small(prompts={**small()["prompts"], "p/0": {"text": "x"}}),
        r"plan: prompts\.p/0",
    ),
    "a prompt's name that reads like a key": (
        small(prompts={**small()["prompts"], "p@x": {"text": "x"}}),
        r"plan: prompts\.p@x",
    ),
    "a chat without role": (
        small(prompts={"p": {"chat": [{"content": "x"}]}}),
        r"plan: prompts\.p\.chat\[0\]\.role: Field required",
    ),
    "an unknown canary": (
        small(canary={"prompt": "z"}),
        r"plan: canary\.prompt: there is no prompt 'z'; prompts are p, q",
    ),
    "a canary with a block": (
        small(prompts={**small()["prompts"], "p": {"text": "{block}"}}),
        r"plan: canary\.prompt: prompt 'p' holds \{block\}",
    ),
    "an unknown condition": (with_entry(name="mood"), r"plan: conditions\[0\]\.name: there is no condition 'mood'"),
    "an unknown prompt": (
        with_entry(name="repeat_greedy", prompts=["z"]),
        r"plan: conditions\[0\]\.prompts: there is no prompt 'z'",
    ),
    "an entry without prompts": (with_entry(name="repeat_greedy", prompts=[]), r"plan: conditions\[0\]\.prompts: "),
    "a count of nothing": (with_entry(name="repeat_greedy", count=0), r"plan: conditions\[0\]\.count: .*got 0"),
    "a wave without levels": (
        with_entry(name="concurrent_greedy"),
        r"plan: conditions\[0\]\.levels: concurrent_greedy needs it",
    ),
    "a wave of one": (
        with_entry(name="concurrent_greedy", levels=[2, 1]),
        r"plan: conditions\[0\]\.levels: .*got \[2, 1\]",
    ),
    "a cache without opener": (with_entry(name="cache"), r"plan: conditions\[0\]\.opener: cache needs it"),
    "an unknown opener": (
        with_entry(name="cache", opener="z"),
        r"plan: conditions\[0\]\.opener: there is no prompt 'z'",
    ),
    "an unknown neighbour": (
        with_entry(name="idle_neighbour", neighbours=["q", "z"], prompts=["p"]),
        r"plan: conditions\[0\]\.neighbours: there is no prompt 'z'",
    ),
    "no neighbours": (
        with_entry(name="cross_batch_together"),
        r"plan: conditions\[0\]\.neighbours: cross_batch_together needs it",
    ),
    "no neighbour but itself": (
        with_entry(name="cross_batch_together", neighbours=["p"]),
        r"plan: conditions\[0\]\.neighbours: 'p' has no neighbour but itself",
    ),
    "a control of one prompt": (
        with_entry(name="control_prompt", prompts=["p"]),
        r"plan: conditions\[0\]\.prompts: control_prompt needs two prompts, got \['p'\]",
    ),
    "one trial twice": (
        with_entry(name="repeat_greedy", prompts=["p", "p"]),
        r"plan: conditions: two entries form the trial repeat_greedy/p/0",
    ),
    "one level twice": (
        with_entry(name="concurrent_greedy", levels=[2, 2]),
        r"two entries form the trial concurrent_greedy_c2/p/0/w0/0",
    ),
    "two first requests": (
        small(conditions=[{"name": "first_request", "prompts": [p]} for p in ("p", "q")]),
        r"plan: conditions: only one entry can hold the first request",
    ),
    "no table": ([], r"plan: "),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_run_is_refused_with_field_and_value(what: str) -> None:
    """One line names the place in the file and what stands there."""
    values, message = REFUSED[what]
    with pytest.raises(PlanError, match=message) as caught:
        Plan.parse(values)
    assert len(caught.value.message) < 400
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("plan.toml", b"name = ", "plan.toml: .*"),
        ("plan.toml", b"name = '\xff'", "plan.toml: .*decode"),
        ("plan.json", b"{", "plan.json: "),
        ("plan.json", b"[" * 100_000, "plan.json: "),
        ("plan.json", b'{"pace_per_second":1e999}', "plan.json: "),
        ("plan.toml", b"steps = 0\n" + TOML.encode(), "plan.toml: steps: .*got 0"),
        (".", None, "Is a directory"),
        ("nothing.toml", None, "nothing.toml: No such file or directory"),
    ],
)
def test_a_file_that_holds_no_plan_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    """Whatever is wrong with a file, the error begins with it."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PlanError, match=message):
        Plan.load(tmp_path / name)


def test_placeholders_are_filled_from_the_registered_digest() -> None:
    """{registered} is its first 16 digits, {block} the first 16 of a hash that no other block shares."""
    values = small(prompts={**small()["prompts"], "r": {"chat": [{"role": "user", "content": "{block}/{registered}"}]}})
    prompts = Plan.parse(values).prompts
    assert prompts["p"].filled(REGISTERED, "cache/p/0").text == "one 0123456789abcdef"
    (message,) = prompts["r"].filled(REGISTERED, "cache/r/0").chat or []
    assert message.content == f"{sha(REGISTERED, 'block', 'cache/r/0')[:16]}/0123456789abcdef"
    assert prompts["q"].filled(REGISTERED, "b").ids == [1, 2, 3]


def test_only_a_prompt_with_a_block_has_a_key_of_its_own_for_each() -> None:
    """The key is the name, or NAME@BLOCK."""
    conditions = [{"name": "cache", "prompts": ["r", "p"], "opener": "q"}]
    plan = Plan.parse(small(prompts={**small()["prompts"], "r": {"text": "{block}"}}, conditions=conditions))
    keys = {
        plan.prompt_key(trial, block.block)
        for block in plan.unfold(REGISTERED)
        for unit in block.units
        for trial in unit.trials
    }
    assert keys == {"p", "q", "r@cache/r/0"}


def test_steps_are_the_prompts_own_or_the_plans() -> None:
    """A prompt that says nothing runs as many steps as the plan says."""
    plan = Plan.parse(small())
    assert (plan.steps_of("p"), plan.steps_of("q")) == (32, 9)


def test_a_seed_is_the_head_of_a_hash() -> None:
    """Four bytes, big-endian, modulo 2^32 - 1; so the seed that means "random" never occurs."""
    hexed = sha(REGISTERED, "seed", "baseline/seeded/p")
    assert seed(REGISTERED, "baseline/seeded/p") == int.from_bytes(bytes.fromhex(hexed)[:4], "big") % (2**32 - 1)
    assert seed(REGISTERED, "a") != seed(REGISTERED, "b")
    assert seed(REGISTERED, "a") != seed(REGISTERED + "0", "a")


def test_the_registered_digest_is_over_four_files_in_order_of_their_names() -> None:
    """The lines are sorted, each file matters, others do not, and a missing one is named."""
    files = {name: name.encode() for name in ("plan.toml", "predictions.json", "PREREG.md", "plan.json")}
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    assert registered_digest(files) == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
    assert registered_digest({**files, "notes.md": b"x"}) == registered_digest(files)
    assert len({registered_digest({**files, name: b"other"}) for name in files} | {registered_digest(files)}) == 5
    with pytest.raises(PlanError, match=r"lacks PREREG\.md, plan\.toml"):
        registered_digest({name: files[name] for name in ("plan.json", "predictions.json")})


def test_what_stands_around_the_middle_is_fixed() -> None:
    """First requests, canary, baselines in order of first use; the middle; the canary again, restarts last."""
    entries = [
        {"name": "restart", "prompts": ["q", "p"], "count": 2},
        {"name": "control_seed", "prompts": ["q"]},
        {"name": "repeat_greedy", "prompts": ["p"]},
        {"name": "first_request", "prompts": ["p", "q"], "count": 2},
    ]
    order = names(Plan.parse(small(conditions=entries)).unfold(REGISTERED))
    assert order[:8] == [
        *("first_request/p/0", "first_request/p/1", "first_request/q/0", "first_request/q/1", "canary/first"),
        *("baseline/greedy/q", "baseline/greedy/p", "baseline/seeded/q"),
    ]
    assert sorted(order[8:10]) == ["control_seed/q/0", "repeat_greedy/p/0"]
    assert order[10:] == ["canary/last", "restart/q/0", "restart/q/1", "restart/p/0", "restart/p/1"]


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from("0123456789abcdef"))
def test_repeats_stand_at_equal_distances(others: int, repeats: int, digit: str) -> None:
    """The j-th repeat stands before the other with index floor((2j+1)N/(2R)); both are in the order of their hashes."""
    registered = "sha256:" + digit * 64
    entries = [
        {"name": "stream_vs_whole", "prompts": ["p"], "count": others},
        {"name": "repeat_greedy", "prompts": ["p"], "count": repeats},
    ]
    order = names(Plan.parse(small(conditions=entries)).unfold(registered))[2:-1]
    alone = [name for name in order if name.startswith("stream")]
    assert alone == sorted(alone, key=lambda name: sha(registered, "order", name))
    spread = [name for name in order if name.startswith("repeat")]
    assert spread == [f"repeat_greedy/p/{i}" for i in range(repeats)]
    before = [sum(name.startswith("stream") for name in order[: order.index(repeat)]) for repeat in spread]
    assert before == [(2 * j + 1) * others // (2 * repeats) for j in range(repeats)]


def test_repeats_of_one_round_are_in_the_order_of_their_hashes() -> None:
    """Repeats are sorted by their index first, so that each prompt's repeats are spread over the whole run."""
    entries = [
        {"name": "repeat_greedy", "prompts": ["p", "q"], "count": 3},
        {"name": "repeat_seeded", "prompts": ["p"], "count": 3},
    ]
    order = names(Plan.parse(small(conditions=entries)).unfold(REGISTERED))[4:-1]
    assert order == sorted(order, key=lambda name: (int(name[-1]), sha(REGISTERED, "order", name)))
    assert len(order) == 9


def test_another_registered_digest_is_another_order_of_the_same_blocks() -> None:
    """The order is decided by the registration alone: same digest, same order."""
    entries = [{"name": "stream_vs_whole", "prompts": ["p", "q"], "count": 20}]
    plan = Plan.parse(small(conditions=entries))
    one, again, other = (names(plan.unfold(digest(seed))) for seed in (b"a", b"a", b"b"))
    assert one == again
    assert one != other
    assert sorted(one) == sorted(other)


def test_a_plan_without_repeats_or_without_others_unfolds() -> None:
    """Nothing to spread, or nothing to spread among."""
    only = names(Plan.parse(with_entry(name="repeat_greedy")).unfold(REGISTERED))
    assert sorted(only[3:-1]) == ["repeat_greedy/p/0", "repeat_greedy/q/0"]
    none = names(Plan.parse(with_entry(name="stream_vs_whole")).unfold(REGISTERED))
    assert sorted(none[3:-1]) == ["stream_vs_whole/p/0", "stream_vs_whole/q/0"]


def test_the_whole_catalogue_unfolds_as_a_second_implementation_says() -> None:
    """Every unit, trial, reference, slot, number of steps, seed and prompt key, in order."""
    values = toy_plan.plan()
    plan = Plan.parse(values)
    registered = digest(plan.to_bytes())
    blocks = plan.unfold(registered)
    found = [
        (unit.unit, trial.trial, trial.condition, trial.prompt, trial.reference, trial.slot,
         1 if trial.form == "prefixes" else trial.steps, trial.sampling != "greedy", seed(registered, trial.seed_group),
         trial.cache, plan.prompt_key(trial, block.block))
        for block in blocks for unit in block.units for trial in unit.trials
    ]  # fmt: skip
    expected = [
        (t["unit"], t["id"], t["condition"], t["prompt"], t["ref"], t["slot"],
         t["steps"], t["sampled"], t["seed"], t.get("cache", False), t["key"])
        for unit in toy_plan.unfold(values, registered) for t in unit
    ]  # fmt: skip
    assert found == expected
    assert len(found) > 100


def test_every_reference_is_a_trial_that_comes_before() -> None:
    """No trial is compared with one that is not there yet, but those that are before the baselines by nature."""
    ordered = trials(Plan.parse(toy_plan.plan()).unfold(REGISTERED))
    place = {trial.trial: index for index, trial in enumerate(ordered)}
    assert len(place) == len(ordered)
    late = [t.trial for t in ordered if t.reference is not None and place[t.reference] > place[t.trial]]
    assert {name.split("/")[0] for name in late} == {"cache", "cache_prefix", "first_request"}


def test_the_plans_that_are_shipped_are_valid(repository: Path) -> None:
    """Every plan of audit/data loads."""
    paths = sorted((repository / "audit" / "data").glob("*.toml"))
    load: Callable[[Path], Plan] = Plan.load
    assert {path.stem for path in paths} == {load(path).name for path in paths}
