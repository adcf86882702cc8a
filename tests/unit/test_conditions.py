"""Each family forms the trials of its row in docs/reference/record.md; the expectations are written from the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from audit.conditions import CATALOGUE, FAMILIES, Family, Request, catalogue_position
from audit.trial import Block, Entry, Trial

STEPS = {"p": 20, "q": 30, "r": 40}
GREEDY, SEEDED = "baseline/greedy/p", "baseline/seeded/p"


def blocks(name: str, *, prompt: str = "p", index: int = 0, **entry: Any) -> list[Block]:  # noqa: ANN401 - any field
    """Return what a family forms for one prompt at one index."""
    made = Entry(name=name, prompts=["p", "q", "r"], count=2, **entry)
    return list(
        FAMILIES[name].form(Request(entry=made, family=name, prompt=prompt, index=index, steps=STEPS.__getitem__))
    )


def told(trial: Trial) -> str:
    """Return a trial in one line: id, condition, what it is compared with, and what differs from a baseline of p."""
    usual = Trial(trial="", condition="", prompt="p", steps=20)
    names = ("role", "prompt", "steps", "slot", "sampling", "cache", "streamed", "n_probs", "form", "half_prompt")
    changed = [f"{name}={getattr(trial, name)}" for name in names if getattr(trial, name) != getattr(usual, name)]
    return " ".join([trial.trial, trial.condition, trial.reference or "-", *changed])


def units(*formed: Block) -> list[list[str]]:
    """Return all units of blocks, told."""
    return [[told(trial) for trial in unit.trials] for block in formed for unit in block.units]


SOLO = {
    "first_request": "first_request/p/1 first_request baseline/greedy/p",
    "repeat_greedy": "repeat_greedy/p/1 repeat_greedy baseline/greedy/p",
    "repeat_seeded": "repeat_seeded/p/1 repeat_seeded baseline/seeded/p sampling=sampled",
    "stream_vs_whole": "stream_vs_whole/p/1 stream_vs_whole baseline/greedy/p streamed=True",
    "without_logprobs": "without_logprobs/p/1 without_logprobs baseline/greedy/p n_probs=none",
    "control_prompt": "control_prompt/p/1 control_prompt baseline/greedy/p prompt=q",
    "control_seed": "control_seed/p/1 control_seed baseline/seeded/p sampling=sampled",
    "control_temperature": "control_temperature/p/1 control_temperature baseline/seeded/p sampling=control",
    "restart": "restart/p/1 restart baseline/greedy/p",
}
PLACES = {"first_request": "first", "repeat_greedy": "repeat", "repeat_seeded": "repeat", "restart": "last"}


@pytest.mark.parametrize("name", SOLO)
def test_a_solo_family_forms_one_trial_that_carries_the_blocks_name(name: str) -> None:
    """One block, one unit, one trial, all of one name, and the place that the order gives it."""
    (block,) = blocks(name, index=1)
    (unit,) = block.units
    assert units(block) == [[SOLO[name]]]
    assert block.block == unit.unit == unit.trials[0].trial
    assert (block.place, block.index, unit.wave) == (PLACES.get(name, "middle"), 1, False)


def test_the_first_request_of_an_entry_needs_no_restart_and_every_later_one_does() -> None:
    """Index above 0, or another prompt than the first, comes after a restart; so does every trial of restart."""
    restarts = {
        (name, prompt, index): blocks(name, prompt=prompt, index=index)[0].units[0].restart
        for name in ("first_request", "restart")
        for prompt in ("p", "q")
        for index in (0, 1)
    }
    assert [place for place, restarted in restarts.items() if not restarted] == [("first_request", "p", 0)]


def test_the_last_prompt_of_control_prompt_takes_the_first() -> None:
    """The list is cyclic, and the steps stay those of the prompt whose place is taken."""
    (block,) = blocks("control_prompt", prompt="r")
    assert units(block) == [["control_prompt/r/0 control_prompt baseline/greedy/r steps=40"]]


def test_other_slot_takes_every_slot_but_the_first() -> None:
    """S runs from 1 to levels[0]-1, one block each."""
    formed = blocks("other_slot", index=1, levels=[4])
    assert units(*formed) == [[f"other_slot/p/{s}/1 other_slot {GREEDY} slot={s}"] for s in (1, 2, 3)]
    assert [block.block for block in formed] == ["other_slot/p/1/1", "other_slot/p/2/1", "other_slot/p/3/1"]


def test_a_wave_has_a_member_a_slot_and_is_repeated_where_asked() -> None:
    """C members on slots 0 to C-1; for i < again w1 follows in the same block, each against its member of w0."""
    formed = blocks("concurrent_greedy", levels=[2, 3], again=1)
    assert units(*formed) == [
        [f"concurrent_greedy_c2/p/0/w0/0 concurrent_greedy_c2 {GREEDY}",
         f"concurrent_greedy_c2/p/0/w0/1 concurrent_greedy_c2 {GREEDY} slot=1"],
        ["concurrent_greedy_c2/p/0/w1/0 wave_repeat concurrent_greedy_c2/p/0/w0/0",
         "concurrent_greedy_c2/p/0/w1/1 wave_repeat concurrent_greedy_c2/p/0/w0/1 slot=1"],
        [f"concurrent_greedy_c3/p/0/w0/0 concurrent_greedy_c3 {GREEDY}",
         f"concurrent_greedy_c3/p/0/w0/1 concurrent_greedy_c3 {GREEDY} slot=1",
         f"concurrent_greedy_c3/p/0/w0/2 concurrent_greedy_c3 {GREEDY} slot=2"],
        ["concurrent_greedy_c3/p/0/w1/0 wave_repeat concurrent_greedy_c3/p/0/w0/0",
         "concurrent_greedy_c3/p/0/w1/1 wave_repeat concurrent_greedy_c3/p/0/w0/1 slot=1",
         "concurrent_greedy_c3/p/0/w1/2 wave_repeat concurrent_greedy_c3/p/0/w0/2 slot=2"],
    ]  # fmt: skip
    assert [[unit.unit for unit in block.units] for block in formed] == [
        ["concurrent_greedy_c2/p/0/w0", "concurrent_greedy_c2/p/0/w1"],
        ["concurrent_greedy_c3/p/0/w0", "concurrent_greedy_c3/p/0/w1"],
    ]
    assert all(unit.wave and not unit.staggered for block in formed for unit in block.units)


def test_a_wave_is_not_repeated_from_again_on() -> None:
    """Only the indices below `again` have a second wave."""
    assert [len(blocks("concurrent_greedy", index=i, levels=[2], again=1)[0].units) for i in (0, 1)] == [2, 1]


def test_members_of_a_repeated_wave_share_the_seed_of_what_they_repeat() -> None:
    """A seeded w1 asks for the very numbers that w0 asked for."""
    (block,) = blocks("concurrent_seeded", levels=[2], again=1)
    first, again = block.units
    assert units(block)[0][1] == f"concurrent_seeded_c2/p/0/w0/1 concurrent_seeded_c2 {SEEDED} slot=1 sampling=sampled"
    assert [t.seed_group for t in first.trials] == [t.seed_group for t in again.trials] == [SEEDED, SEEDED]
    assert {t.sampling for t in again.trials} == {"sampled"}


def test_an_oversubscribed_wave_is_not_pinned() -> None:
    """Its members ask for any slot, so that the server needs none in particular."""
    (block,) = blocks("oversubscribed", levels=[3])
    assert units(block) == [[f"oversubscribed_c3/p/0/w0/{m} oversubscribed_c3 {GREEDY} slot=-1" for m in range(3)]]
    assert block.units[0].slots_needed == 0


@pytest.mark.parametrize("name", ["cross_batch_together", "cross_batch_staggered"])
def test_a_member_runs_among_other_prompts(name: str) -> None:
    """The neighbours without P are members 1, 2, ... on their slots, with 16 steps more than member 0, and support."""
    (block,) = blocks(name, prompt="q", neighbours=["p", "q", "r"])
    assert units(block) == [
        [f"{name}/q/0/w0/0 {name} baseline/greedy/q prompt=q steps=30",
         f"{name}/q/0/w0/1 {name} - role=support steps=46 slot=1",
         f"{name}/q/0/w0/2 {name} - role=support prompt=r steps=46 slot=2"],
    ]  # fmt: skip
    assert block.units[0].staggered == (name == "cross_batch_staggered")
    assert block.units[0].wave


def test_a_cache_block_runs_from_its_opener_to_its_own_baseline() -> None:
    """Opener, cold, warm, warm with the cache on; then baseline and repeat with it off; compared inside the block."""
    (block,) = blocks("cache", opener="r")
    own = "cache/p/0/baseline"
    assert units(block) == [
        ["cache/p/0/opener cache - role=support prompt=r steps=1"],
        [f"cache/p/0/cold cache_cold {own} cache=True"],
        [f"cache/p/0/warm1 cache_warm1 {own} cache=True"],
        [f"cache/p/0/warm2 cache_warm2 {own} cache=True"],
        [f"{own} baseline - role=baseline"],
        [f"cache/p/0/repeat repeat_greedy {own}"],
    ]
    assert [unit.unit for unit in block.units] == [unit.trials[0].trial for unit in block.units]
    assert block.place == "middle"


def test_a_prefix_block_primes_the_cache_with_half_of_the_prompt() -> None:
    """The primer keeps one step of the first half; what follows reuses it."""
    (block,) = blocks("cache_prefix", opener="r")
    assert units(block) == [
        ["cache_prefix/p/0/opener cache_prefix - role=support prompt=r steps=1"],
        ["cache_prefix/p/0/primer cache_prefix - role=support steps=1 cache=True half_prompt=True"],
        ["cache_prefix/p/0/prefix cache_prefix cache_prefix/p/0/baseline cache=True"],
        ["cache_prefix/p/0/baseline baseline - role=baseline"],
        ["cache_prefix/p/0/repeat repeat_greedy cache_prefix/p/0/baseline"],
    ]


def test_an_idle_neighbour_is_left_in_slot_one() -> None:
    """The first neighbour that is not P goes to slot 1 with the cache on, and the member comes after it."""
    (block,) = blocks("idle_neighbour", neighbours=["p", "r", "q"])
    assert units(block) == [
        ["idle_neighbour/p/0/neighbour idle_neighbour - role=support prompt=r steps=40 slot=1 cache=True"],
        [f"idle_neighbour/p/0/member idle_neighbour {GREEDY}"],
    ]


def test_prefill_is_seen_by_forcing_and_by_prefixes() -> None:
    """One trial is forced by a grammar, the other asks for each step anew; both have P's steps."""
    (block,) = blocks("prefill_vs_decode")
    assert units(block) == [
        [f"prefill_vs_decode/p/0/forced prefill_vs_decode {GREEDY} form=forced"],
        [f"prefill_vs_decode/p/0/prefixes prefill_vs_decode {GREEDY} form=prefixes"],
    ]


def test_seeds_belong_to_the_baseline_but_for_support_and_the_seed_control() -> None:
    """The group is the trial's own id for support, control_seed, baselines; else the reference."""
    cache, seed = blocks("cache", opener="r")[0], blocks("control_seed")[0]
    groups = {trial.trial: trial.seed_group for block in (cache, seed) for u in block.units for trial in u.trials}
    own = "cache/p/0/baseline"
    assert groups == {
        "cache/p/0/opener": "cache/p/0/opener",
        **dict.fromkeys(["cache/p/0/cold", "cache/p/0/warm1", "cache/p/0/warm2", own, "cache/p/0/repeat"], own),
        "control_seed/p/0": "control_seed/p/0",
    }


def test_the_catalogue_is_that_of_the_page(repository: Path) -> None:
    """Families are the rows of the table in record.md; cells stand in the order of verdicts.md."""
    record, verdicts = (
        (repository / "docs" / "reference" / name).read_text(encoding="ascii") for name in ("record.md", "verdicts.md")
    )
    table = record.split("| family | blocks |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (`[^|]+) \|", table, flags=re.MULTILINE)
    named = [name for row in rows if "implied" not in row for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(FAMILIES)
    order = verdicts.split("then in catalogue order, levels rising:", 1)[1].split("; `baseline`", 1)[0]
    assert [name.removesuffix("_cC") for name in re.findall(r"`(\w+)`", order)] == list(CATALOGUE)


def test_every_condition_of_every_family_has_its_place() -> None:
    """What a family says it makes is what it makes, and each of its cells can be listed."""
    entry: dict[str, Any] = {"levels": [2, 3], "neighbours": ["q", "r"], "opener": "r", "again": 0}

    def made(name: str, family: Family) -> set[str]:
        needed = {key: value for key, value in entry.items() if key in family.needs}
        trials = [trial for block in blocks(name, **needed) for unit in block.units for trial in unit.trials]
        return {trial.condition for trial in trials if trial.role == "measured"}

    for name, family in FAMILIES.items():
        expected = {condition.format(level=level) for condition in family.conditions for level in (2, 3)}
        assert made(name, family) - {"repeat_greedy"} == expected - {"repeat_greedy"}
        assert all(catalogue_position(condition) for condition in expected)


def test_levels_rise_within_a_family() -> None:
    """Level 10 comes after level 9, and wave_repeat after all waves."""
    shuffled = ["wave_repeat", "concurrent_greedy_c10", "oversubscribed_c9", "concurrent_greedy_c9", "repeat_greedy"]
    assert sorted(shuffled, key=catalogue_position) == [
        "repeat_greedy",
        "concurrent_greedy_c9",
        "concurrent_greedy_c10",
        "oversubscribed_c9",
        "wave_repeat",
    ]
    with pytest.raises(ValueError, match="not in tuple"):
        catalogue_position("baseline")
