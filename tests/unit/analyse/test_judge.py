"""Each trial is excluded for the first reason that applies, and is compared by its digests otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from audit.analyse import findings, trials
from audit.analyse.judge import family_of, level_of
from audit.plan import Plan
from audit.record import Process
from audit.trial import Trial
from tests.unit.analyse.simulated import MS, Edit, Subject, moved, plan_of, with_hole, write

REPEATS = plan_of({"name": "repeat_greedy", "prompts": ["p", "q"], "count": 2})
ONE = "repeat_greedy/p/0"
WAVE = "concurrent_greedy_c2/p/0/w0"
WAVES = plan_of(
    {"name": "other_slot", "levels": [2]}, {"name": "concurrent_greedy", "levels": [2], "count": 2, "again": 1}
)


def table(folder: Path, subject: Subject) -> pd.DataFrame:
    """Write a run of one server and return its trials, by name."""
    return trials(write(folder / "run", subject)).set_index("trial")


def excluded(rows: pd.DataFrame) -> dict[str, tuple[str, str | None]]:
    """Return the excluded trials with exclusion and reason."""
    left_out = rows[~rows["usable"]]
    pairs = zip(left_out.index, left_out["exclusion"], left_out["reason"], strict=True)
    return {trial: (exclusion, None if pd.isna(reason) else reason) for trial, exclusion, reason in pairs}


def edit(**changes: object) -> Edit:
    """Return an edit that sets these fields."""
    return lambda values: values.update(changes)


def settings_of(folder: Path, **changes: object) -> Edit:
    """Return an edit that puts other echoed settings in place; the fact is written into the run's folder."""
    from audit.stream import canonical, digest

    data = canonical(changes)
    name = digest(data)

    def change(values: dict[str, Any]) -> None:
        (folder / "run" / "facts" / f"{name.removeprefix('sha256:')}.json").write_bytes(data)
        values["settings"] = name

    return change


def test_a_faithful_server_has_every_trial_identical(tmp_path: Path) -> None:
    """Nothing is excluded, weak or partial, and every stream is its reference's."""
    rows = table(tmp_path, Subject(plan=REPEATS))
    assert excluded(rows) == {}
    assert set(rows["outcome"]) == {"identical"}
    assert not rows["weak"].any()
    assert not rows["partial"].any()
    first = rows.loc[ONE]
    assert first["window_end_ns"] - first["window_begin_ns"] == 100 * MS
    assert (first["reference"], first["prompt"], first["slot"], first["steps"]) == ("baseline/greedy/p", "p", 0, 8)


@pytest.mark.parametrize(
    ("token", "outcome"),
    [(None, "token-identical"), (15, "divergent")],
)
def test_a_changed_stream_has_its_outcome(tmp_path: Path, token: int | None, outcome: str) -> None:
    """One ULP leaves the tokens; another token is divergence; the other trials are untouched."""
    subject = Subject(plan=REPEATS)
    subject.streams[ONE] = lambda stream: moved(stream, 3, token=token)
    outcomes = table(tmp_path, subject)["outcome"].to_dict()
    assert outcomes.pop(ONE) == outcome
    assert set(outcomes.values()) == {"identical"}


def test_a_stream_with_holes_is_identical_to_nothing(tmp_path: Path) -> None:
    """Equal bytes with equal holes are token-identical, and partial."""
    subject = Subject(plan=REPEATS)
    for name in ("baseline/greedy/p", ONE, "repeat_greedy/p/1"):
        subject.streams[name] = lambda stream: with_hole(stream, 2)
    rows = table(tmp_path, subject)
    assert rows["logprob"].to_dict()[ONE] == rows["reference_logprob"].to_dict()[ONE]
    assert rows.loc[ONE, "outcome"] == "token-identical"
    assert rows["partial"].to_dict() == {name: name.startswith("repeat_greedy/p") for name in rows.index}


def test_another_number_of_steps_is_divergent(tmp_path: Path) -> None:
    """A stream that goes on is not its reference's."""
    subject = Subject(plan=REPEATS)
    subject.streams[ONE] = lambda stream: stream._replace(steps=(*stream.steps, stream.steps[0]))
    assert table(tmp_path, subject).loc[ONE, "outcome"] == "divergent"


def test_fewer_than_eight_steps_are_short(tmp_path: Path) -> None:
    """Both sides need eight steps; a short baseline makes its trials short."""
    subject = Subject(plan=REPEATS)
    subject.streams[ONE] = lambda stream: stream._replace(steps=stream.steps[:7])
    subject.streams["baseline/greedy/q"] = subject.streams[ONE]
    short = ("short", None)
    assert excluded(table(tmp_path, subject)) == {
        ONE: short,
        "repeat_greedy/q/0": short,
        "repeat_greedy/q/1": short,
    }


def test_speculative_decoding_is_unsupported(tmp_path: Path) -> None:
    """Drafted tokens, an echo that names a draft, or probabilities after sampling make a trial unsupported."""
    subject = Subject(plan=REPEATS)
    subject.replies = {
        ONE: edit(draft_n=2),
        "repeat_greedy/p/1": settings_of(tmp_path, **{"speculative.types": "draft"}),
        "repeat_greedy/q/0": settings_of(tmp_path, post_sampling_probs=True),
        "repeat_greedy/q/1": edit(draft_n=0),
    }
    found = excluded(table(tmp_path, subject))
    assert found == dict.fromkeys([ONE, "repeat_greedy/p/1", "repeat_greedy/q/0"], ("unsupported", None))


def test_what_a_baseline_is_not_counts_for_all_that_lean_on_it(tmp_path: Path) -> None:
    """A speculative baseline makes its trials unsupported, one that echoes another prompt makes them cross-talk."""
    subject = Subject(plan=REPEATS)
    subject.replies["baseline/greedy/p"] = edit(draft_n=2)
    subject.replies["baseline/greedy/q"] = edit(prompt_echo="sha256:0")
    assert excluded(table(tmp_path, subject)) == {
        **dict.fromkeys([ONE, "repeat_greedy/p/1"], ("unsupported", None)),
        **dict.fromkeys(["repeat_greedy/q/0", "repeat_greedy/q/1"], ("cross-talk", None)),
    }


def test_a_failed_request_is_not_run_and_neither_is_what_leans_on_it(tmp_path: Path) -> None:
    """A failed trial is not compared; a failed baseline takes its trials along."""
    subject = Subject(plan=REPEATS, failing={ONE, "baseline/greedy/q"})
    rows = table(tmp_path, subject)
    assert excluded(rows) == dict.fromkeys([ONE, "repeat_greedy/q/0", "repeat_greedy/q/1"], ("failed", None))
    assert rows["complete"].to_dict() == {name: name != ONE for name in rows.index}


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    """A failed attempt that is followed by a good one leaves no trace in the outcome."""
    rows = table(tmp_path, Subject(plan=REPEATS, twice={ONE, "baseline/greedy/p"}))
    assert excluded(rows) == {}
    assert set(rows["outcome"]) == {"identical"}


@pytest.mark.parametrize(
    ("when", "changes", "reason"),
    [
        ("before", {"slots": [(0, True, 5)]}, "idle"),
        ("after", {"props": None}, "same server"),
        ("before", {"props": "sha256:0"}, "same server"),
    ],
)
def test_other_work_or_another_server_taints_the_trial(
    tmp_path: Path, when: str, changes: dict[str, object], reason: str
) -> None:
    """What a snapshot shows around a trial counts for this trial, and around a baseline for all that lean on it."""
    subject = Subject(plan=REPEATS)
    subject.snapshots[ONE, when] = subject.snapshots["baseline/greedy/q", when] = edit(**changes)
    tainted = ("tainted", reason)
    assert excluded(table(tmp_path, subject)) == dict.fromkeys([ONE, "repeat_greedy/q/0", "repeat_greedy/q/1"], tainted)


def test_tokens_of_others_taint_the_trial(tmp_path: Path) -> None:
    """A reply that says less than the counters moved leaves tokens that nobody accounts for."""
    subject = Subject(plan=REPEATS)
    subject.snapshots[ONE, "after"] = lambda values: values["metrics"].update(prompt_tokens_total="0")
    assert excluded(table(tmp_path, subject)) == {ONE: ("tainted", "accounting")}


def test_a_moved_canary_taints_every_trial(tmp_path: Path) -> None:
    """Where the rows of the two canaries differ, nothing in between counts; a unit's own reason comes first."""
    subject = Subject(plan=REPEATS, canary_moves=True)
    subject.snapshots[ONE, "before"] = edit(slots=[(0, True, 5)])
    found = excluded(table(tmp_path, subject))
    assert found.pop(ONE) == ("tainted", "idle")
    assert set(found.values()) == {("tainted", "canary")}
    assert len(found) == 3


def test_a_canary_is_judged_by_its_bytes_alone(tmp_path: Path) -> None:
    """Neither a slot that was busy beside it nor another process that answered it matters where they are equal."""
    subject = Subject(plan=REPEATS)
    subject.snapshots["canary/first", "before"] = edit(slots=[(0, True, 5)])
    subject.snapshots["canary/last", "after"] = edit(process=Process(start="9", media_marker=None))
    assert excluded(table(tmp_path, subject)) == {}


def test_a_missing_canary_taints_nothing(tmp_path: Path) -> None:
    """Without the second canary nothing has moved; the instrument says that it is incomplete."""
    assert excluded(table(tmp_path, Subject(plan=REPEATS, failing={"canary/last"}))) == {}


def test_a_reply_that_belongs_to_another_prompt_is_cross_talk(tmp_path: Path) -> None:
    """Another prompt in the echo, or the stream of another prompt's baseline, is cross-talk."""
    subject = Subject(plan=REPEATS)
    other = subject.stream(trial_of(REPEATS, "baseline/greedy/q"), "")
    subject.replies[ONE] = edit(prompt_echo="sha256:0")
    subject.replies["repeat_greedy/p/1"] = edit(prompt_echo=None)
    subject.streams["repeat_greedy/q/0"] = lambda stream: stream
    subject.streams["repeat_greedy/p/1"] = lambda _: other
    cross = ("cross-talk", None)
    assert excluded(table(tmp_path, subject)) == {ONE: cross, "repeat_greedy/p/1": cross}


def trial_of(plan: Plan, name: str) -> Trial:
    """Return the trial of this name."""
    trials_ = (t for b in plan.unfold("sha256:0") for u in b.units for t in u.trials)
    return next(trial for trial in trials_ if trial.trial == name)


def test_a_control_prompt_may_give_the_other_prompts_stream(tmp_path: Path) -> None:
    """That it does is its purpose, not cross-talk."""
    plan = plan_of({"name": "control_prompt", "prompts": ["p", "q"]}, {"name": "repeat_greedy", "prompts": ["p", "q"]})
    rows = table(tmp_path, Subject(plan=plan))
    assert excluded(rows) == {}
    logprobs, references = rows["logprob"].to_dict(), rows["reference_logprob"].to_dict()
    assert logprobs["control_prompt/p/0"] == references["control_prompt/q/0"]


def test_a_trial_without_its_proof_is_vacuous(tmp_path: Path) -> None:
    """A touched cache or another slot makes a trial vacuous, and so does a baseline that touched the cache."""
    subject = Subject(plan=REPEATS)
    subject.replies[ONE] = edit(id_slot=2)
    subject.replies["baseline/greedy/q"] = edit(cache_n=69, prompt_n=1)
    assert excluded(table(tmp_path, subject)) == {
        ONE: ("vacuous", "slot"),
        "repeat_greedy/q/0": ("vacuous", "cache"),
        "repeat_greedy/q/1": ("vacuous", "cache"),
    }


def test_a_wave_that_was_served_in_turn_is_vacuous(tmp_path: Path) -> None:
    """Windows without a common part, or members on one slot, are no wave; a repeat leans on both of its waves."""
    subject = Subject(plan=WAVES)
    # The members end 0.1 ms apart, so that windows of 0.04 ms have nothing in common.
    subject.replies[f"{WAVE}/0"] = subject.replies[f"{WAVE}/1"] = edit(prompt_ms=0.02, predicted_ms=0.02)
    subject.replies["concurrent_greedy_c2/p/1/w0/1"] = edit(id_slot=0)
    found = excluded(table(tmp_path, subject))
    assert found == {
        **{f"concurrent_greedy_c2/p/0/{w}/{m}": ("vacuous", "windows") for w in ("w0", "w1") for m in range(2)},
        "concurrent_greedy_c2/p/1/w0/0": ("vacuous", "slots"),
        "concurrent_greedy_c2/p/1/w0/1": ("vacuous", "slot"),
    }


def test_a_wave_with_a_failed_member_is_tainted(tmp_path: Path) -> None:
    """The member is not run, and its tokens may have been made, so that the others are tainted."""
    found = excluded(table(tmp_path, Subject(plan=WAVES, failing={f"{WAVE}/1"})))
    assert found == {
        f"{WAVE}/0": ("tainted", "accounting"),
        f"{WAVE}/1": ("failed", None),
        "concurrent_greedy_c2/p/0/w1/0": ("tainted", "accounting"),
        "concurrent_greedy_c2/p/0/w1/1": ("failed", None),
    }


def test_members_on_a_slot_that_differs_by_itself_are_set_aside(tmp_path: Path) -> None:
    """They count for the slot: the waves' members on it have no outcome, those on slot 0 have."""
    subject = Subject(plan=WAVES)
    for name in ("other_slot/p/1/0", *(f"concurrent_greedy_c2/p/{i}/w0/1" for i in range(2))):
        subject.streams[name] = lambda stream: moved(stream, 1)
    rows = table(tmp_path, subject)
    assert rows.loc["other_slot/p/1/0", "outcome"] == "token-identical"
    aside = [name for name, (exclusion, _) in excluded(rows).items() if exclusion == "set aside"]
    assert sorted(aside) == [
        "concurrent_greedy_c2/p/0/w0/1",
        "concurrent_greedy_c2/p/0/w1/1",
        "concurrent_greedy_c2/p/1/w0/1",
    ]
    assert set(rows[rows["usable"]]["outcome"]) == {"identical", "token-identical"}


def test_a_server_with_too_few_slots_makes_its_waves_vacuous(tmp_path: Path) -> None:
    """What was not sent for want of slots did not happen; what was not ours to do is not run."""
    plan = plan_of(
        {"name": "concurrent_greedy", "levels": [2, 4], "again": 1}, {"name": "restart"}, {"name": "repeat_greedy"}
    )
    found = excluded(table(tmp_path, Subject(plan=plan, slots=2, owned=False)))
    assert found.pop("restart/p/0") == ("failed", None)
    assert set(found.values()) == {("vacuous", "slots")}
    assert len(found) == 8


def test_a_server_without_metrics_gives_weak_evidence(tmp_path: Path) -> None:
    """All is usable, and all is weak."""
    rows = table(tmp_path, Subject(plan=WAVES, metrics=False))
    assert excluded(rows) == {}
    assert rows["weak"].all()


def test_findings_need_no_streams_to_judge(tmp_path: Path) -> None:
    """Cells come from digests alone: without the streams only witnesses and the stream checks are missing."""
    subject = Subject(plan=REPEATS)
    subject.streams[ONE] = lambda stream: moved(stream, 3)
    run = write(tmp_path / "run", subject)
    whole = findings(run)
    for path in (run.folder / "streams").iterdir():
        path.unlink()
    without = findings(run)
    assert whole["cells"][0].pop("witness")["step"] == 3
    assert whole["cells"][0].pop("consequence") is not None
    assert (without["cells"][0].pop("witness"), without["cells"][0].pop("consequence")) == (None, None)
    assert without["cells"] == whole["cells"]
    statuses = {entry["check"]: entry["status"] for entry in without["instrument"]}
    assert [check for check, status in statuses.items() if status == "incomplete"] == [
        "float32",
        "top_k",
        "greedy",
        "one_ulp",
        "parse_twice",
    ]


@pytest.mark.parametrize(
    ("condition", "family", "level"),
    [
        ("concurrent_greedy_c12", "concurrent_greedy", 12),
        ("oversubscribed_c6", "oversubscribed", 6),
        ("cache_cold", "cache_cold", 0),
        ("wave_repeat", "wave_repeat", 0),
    ],
)
def test_a_condition_has_a_family_and_a_level(condition: str, family: str, level: int) -> None:
    """A level is cut off only where the family has levels."""
    assert (family_of(condition), level_of(condition)) == (family, level)


def test_an_export_without_facts_is_judged_alike(tmp_path: Path) -> None:
    """Prompts, requests and settings can be left out: the cells stay, and what compares them is incomplete."""
    run = write(tmp_path / "run", Subject(plan=WAVES))
    whole = findings(run)
    for path in (run.folder / "facts").iterdir():
        path.unlink()
    without = findings(run)
    assert without["cells"] == whole["cells"]
    statuses = {entry["check"]: entry["status"] for entry in without["instrument"]}
    assert {check: status for check, status in statuses.items() if status != "held"} == dict.fromkeys(
        ["counts", "greedy", "settings"], "incomplete"
    )
