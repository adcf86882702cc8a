"""Cells, pools, waves and the conclusion are what the rules make of the trials, and a pure function of the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.analyse import findings, trials
from audit.errors import EvidenceError, UsageError
from audit.record import Complete, Invoke, Snapshot
from audit.store import Run
from audit.stream import Stream, canonical
from tests.unit.analyse.simulated import CONTROLS, EVERYTHING, Recorder, Subject, moved, plan_of, with_hole, write

Stand = Callable[[Stream], Stream]


def found(folder: Path, *subjects: Subject) -> dict[str, Any]:
    """Write a run and return its findings."""
    return findings(write(folder / "run", *subjects))


def cell(document: dict[str, Any], condition: str, server: str = "a") -> dict[str, Any]:
    """Return one cell."""
    return next(c for c in document["cells"] if (c["server"], c["condition"]) == (server, condition))


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Return the verdict of every cell of the first server."""
    return {c["condition"]: c["verdict"] for c in document["cells"]}


def check(document: dict[str, Any], name: str) -> tuple[str, int, int]:
    """Return status, k and n of an instrument check."""
    entry = next(entry for entry in document["instrument"] if entry["check"] == name)
    return entry["status"], entry["k"], entry["n"]


def one_ulp(stream: Stream) -> Stream:
    """Move the logprob of step 3 by one float32."""
    return moved(stream, 3)


def other_token(stream: Stream) -> Stream:
    """Give step 5 another token."""
    return moved(stream, 5, token=15 - stream.steps[5].token)


def test_a_faithful_server_is_sound_and_identical_everywhere(tmp_path: Path) -> None:
    """Every condition of the catalogue happens and is identical, the controls diverge, and every check holds."""
    document = found(tmp_path, Subject(plan=plan_of(*EVERYTHING)))
    expected = {
        "repeat_greedy": 9,
        "repeat_seeded": 2,
        "first_request": 2,
        "other_slot": 3,
        "concurrent_greedy_c2": 8,
        "concurrent_greedy_c4": 16,
        "concurrent_seeded_c2": 4,
        "oversubscribed_c6": 6,
        "wave_repeat": 14,
        "cross_batch_together": 1,
        "cross_batch_staggered": 1,
        "cache_cold": 2,
        "cache_warm1": 2,
        "cache_warm2": 2,
        "cache_prefix": 1,
        "idle_neighbour": 1,
        "prefill_vs_decode": 2,
        "stream_vs_whole": 1,
        "without_logprobs": 1,
        "restart": 2,
        "control_prompt": 2,
        "control_seed": 3,
        "control_temperature": 1,
    }
    assert {c["condition"]: c["planned"] for c in document["cells"]} == expected
    assert all(c["usable"] == c["planned"] == c["minimum"] and not c["reasons"] for c in document["cells"])
    special = {"without_logprobs": "token-identical", **dict.fromkeys([str(c["name"]) for c in CONTROLS], "divergent")}
    assert verdicts(document) == {name: special.get(name, "identical") for name in expected}
    assert {entry["status"] for entry in document["instrument"]} == {"held"}
    assert len(document["instrument"]) == 11
    assert (document["sound"], document["conclusion"]) == (True, "sound")
    assert document["exploratory"] == "not registered"
    assert document["predictions"] == []


def test_findings_are_a_pure_function_of_the_folder(tmp_path: Path) -> None:
    """Twice the same bytes, from a folder that was read anew, with its seal inside."""
    run = write(tmp_path / "run", Subject(plan=plan_of(*EVERYTHING)))
    document = canonical(findings(run))
    assert canonical(findings(Run.open(run.folder))) == document
    assert json.loads(document)["seal"] == run.seal


def test_a_divergent_cell_counts_trials_waves_and_names_its_witness(tmp_path: Path) -> None:
    """Two of four members of one of two waves: the rates by trial and by wave, and the earliest difference."""
    plan = plan_of({"name": "concurrent_greedy", "levels": [4], "count": 2})
    subject = Subject(plan=plan)
    wave = "concurrent_greedy_c4/p/1/w0"
    subject.streams = {f"{wave}/2": one_ulp, f"{wave}/1": other_token, f"{wave}/3": one_ulp}
    shown = cell(found(tmp_path, subject), "concurrent_greedy_c4")
    assert (shown["verdict"], shown["usable"], shown["logprob_identical"], shown["token_identical"]) == (
        "divergent",
        8,
        5,
        7,
    )
    assert shown["distinct"] == 3
    assert (shown["by_trial"]["divergent"], shown["by_trial"]["n"]) == (3, 8)
    assert shown["by_wave"] == {"divergent": 1, "n": 2, "low": 0.012579, "high": 0.987421}
    witness = shown["witness"]
    assert (witness["trial"], witness["reference"]) == (f"{wave}/2", "baseline/greedy/p")
    assert (witness["step"], witness["level"], witness["rank"], witness["ulp"]) == (3, "logprob", -1, 1)
    assert float.fromhex(witness["value_hex"]) - float.fromhex(witness["reference_hex"]) == witness["nats"] > 0
    assert shown["consequence"]["nats_max"] >= shown["consequence"]["nats_median"] == pytest.approx(witness["nats"])
    assert shown["reason"] == "1 of 8 usable trials gave other tokens than their reference."


def test_a_token_identical_cell_has_a_consequence_too(tmp_path: Path) -> None:
    """One ULP at one step is the verdict of the cell, and its change of the summed logprob is that ULP."""
    subject = Subject(plan=plan_of({"name": "stream_vs_whole", "count": 3}))
    subject.streams["stream_vs_whole/p/1"] = one_ulp
    shown = cell(found(tmp_path, subject), "stream_vs_whole")
    assert (shown["verdict"], shown["token_identical"], shown["logprob_identical"]) == ("token-identical", 3, 2)
    assert shown["consequence"]["nats_max"] == pytest.approx(shown["witness"]["nats"])
    assert shown["consequence"]["rank_swaps"] == 0


def test_streams_without_logprobs_diverge_by_tokens_alone(tmp_path: Path) -> None:
    """Equal ids are no divergence of `without_logprobs`, another id is one, and its witness has one value."""
    subject = Subject(plan=plan_of({"name": "without_logprobs", "count": 2}))
    shown = cell(found(tmp_path / "same", subject), "without_logprobs")
    assert (shown["verdict"], shown["by_trial"]["divergent"], shown["witness"]) == ("token-identical", 0, None)
    subject.streams["without_logprobs/p/1"] = lambda stream: stream._replace(
        steps=(*stream.steps[:-1], stream.steps[-1]._replace(token=15 - stream.steps[-1].token))
    )
    shown = cell(found(tmp_path / "other", subject), "without_logprobs")
    assert (shown["verdict"], shown["by_trial"]["divergent"], shown["by_wave"]["divergent"]) == ("divergent", 1, 1)
    assert (shown["witness"]["step"], shown["witness"]["value"], shown["witness"]["ulp"]) == (7, None, None)
    assert shown["witness"]["reference_value"] is not None
    assert shown["consequence"] is None


def test_a_baseline_that_does_not_repeat_makes_its_cells_unstable(tmp_path: Path) -> None:
    """The repeats themselves are judged as they are, and waves' repeats lean on no baseline."""
    plan = plan_of(
        {"name": "repeat_greedy", "count": 2},
        {"name": "stream_vs_whole", "prompts": ["p", "q"]},
        {"name": "concurrent_greedy", "levels": [2], "again": 1},
        {"name": "concurrent_seeded", "levels": [2]},
    )
    subject = Subject(plan=plan)
    subject.streams["repeat_greedy/p/1"] = one_ulp
    assert verdicts(found(tmp_path, subject)) == {
        "repeat_greedy": "token-identical",
        "stream_vs_whole": "unstable",
        "concurrent_greedy_c2": "unstable",
        "wave_repeat": "identical",
        "concurrent_seeded_c2": "identical",
    }


@pytest.mark.parametrize(("minimum", "verdict"), [(None, "insufficient"), (3, "insufficient"), (2, "identical")])
def test_a_cell_needs_its_minimum(tmp_path: Path, minimum: int | None, verdict: str) -> None:
    """Two of three usable trials are enough where the plan says so, and not by default."""
    plan = plan_of({"name": "stream_vs_whole", "count": 3, "minimum": minimum})
    document = found(tmp_path, Subject(plan=plan, failing={"stream_vs_whole/p/1"}))
    shown = cell(document, "stream_vs_whole")
    assert (shown["verdict"], shown["usable"], shown["minimum"]) == (verdict, 2, minimum or 3)
    assert shown["excluded"]["failed"] == 1


def test_the_minimum_of_an_entry_is_about_its_own_cells(tmp_path: Path) -> None:
    """Each level's cell has the entry's minimum, repeated waves their share; cache blocks' repeats count in full."""
    plan = plan_of(
        {"name": "concurrent_greedy", "levels": [2, 4], "count": 2, "again": 1, "minimum": 3},
        {"name": "repeat_greedy", "count": 4, "minimum": 1},
        {"name": "repeat_greedy", "prompts": ["q"], "count": 2},
        {"name": "cache", "prompts": ["cached"], "count": 3, "opener": "o", "minimum": 2},
    )
    minimums = {c["condition"]: (c["planned"], c["minimum"]) for c in found(tmp_path, Subject(plan=plan))["cells"]}
    assert minimums == {
        "repeat_greedy": (9, 1 + 2 + 3),
        "concurrent_greedy_c2": (4, 3),
        "concurrent_greedy_c4": (8, 3),
        "wave_repeat": (6, 2 + 2),
        "cache_cold": (3, 2),
        "cache_warm1": (3, 2),
        "cache_warm2": (3, 2),
    }


def test_each_exclusion_has_its_verdict(tmp_path: Path) -> None:
    """What is not run, tainted, cross-talk, vacuous or unsupported is said, with its count and reason."""
    names = ["repeat_greedy", "stream_vs_whole", "without_logprobs", "other_slot", "first_request"]
    plan = plan_of(*({"name": name, "levels": [2] if name == "other_slot" else []} for name in names))
    subject = Subject(plan=plan)
    subject.failing = {"repeat_greedy/p/0"}
    subject.snapshots["stream_vs_whole/p/0", "after"] = lambda values: values.update(props=None)
    subject.replies = {
        "without_logprobs/p/0": lambda values: values.update(prompt_echo="sha256:0"),
        "other_slot/p/1/0": lambda values: values.update(cache_n=3),
        "first_request/p/0": lambda values: values.update(draft_n=1),
    }
    document = found(tmp_path, subject)
    assert verdicts(document) == {
        "repeat_greedy": "not run",
        "stream_vs_whole": "tainted",
        "without_logprobs": "cross-talk",
        "other_slot": "vacuous",
        "first_request": "unsupported",
    }
    assert cell(document, "stream_vs_whole")["reasons"] == {"same server": 1}
    assert cell(document, "other_slot")["reasons"] == {"cache": 1}
    assert cell(document, "other_slot")["excluded"]["vacuous"] == 1
    assert document["pooled"] == []
    assert (document["sound"], document["conclusion"]) == (False, "inconclusive")


def test_too_few_slots_are_vacuous_and_not_ours_is_not_run(tmp_path: Path) -> None:
    """A level above the server's slots is never `not run`, and a restart of a server that is not ours is."""
    plan = plan_of({"name": "concurrent_greedy", "levels": [2, 4], "again": 1}, {"name": "restart"})
    document = found(tmp_path, Subject(plan=plan, slots=2, owned=False))
    assert verdicts(document) == {
        "concurrent_greedy_c2": "identical",
        "concurrent_greedy_c4": "vacuous",
        "wave_repeat": "vacuous",
        "restart": "not run",
    }
    assert [row["waves"] for row in document["waves"]] == [2, 0]


def test_qualifiers_are_said_and_replace_nothing(tmp_path: Path) -> None:
    """Holes make a cell partial, a server without metrics makes it weak; the verdict stays what it is."""
    subject = Subject(plan=plan_of({"name": "stream_vs_whole", "count": 2}), metrics=False)
    subject.streams["stream_vs_whole/p/0"] = lambda stream: with_hole(stream, 4)
    shown = cell(found(tmp_path, subject), "stream_vs_whole")
    assert (shown["verdict"], shown["qualifiers"]) == ("token-identical", ["partial", "weak"])
    assert (shown["witness"]["step"], shown["witness"]["value"]) == (4, None)


def test_servers_are_pooled_where_they_have_a_result(tmp_path: Path) -> None:
    """Counts of the judged cells add up; a server without a result is left out of the pool."""
    plan = plan_of({"name": "stream_vs_whole", "count": 2}, {"name": "other_slot", "levels": [2]})
    good, bad = Subject(plan=plan), Subject(plan=plan, label="b", slots=1)
    bad.streams["stream_vs_whole/p/0"] = one_ulp
    document = found(tmp_path, good, bad)
    assert [(c["server"], c["condition"]) for c in document["cells"]] == [
        ("a", "other_slot"),
        ("a", "stream_vs_whole"),
        ("b", "other_slot"),
        ("b", "stream_vs_whole"),
    ]
    slot, streamed = document["pooled"]
    assert (slot["condition"], slot["servers"], slot["usable"]) == ("other_slot", {"a": "identical"}, 1)
    assert streamed["servers"] == {"a": "identical", "b": "token-identical"}
    assert (streamed["usable"], streamed["logprob_identical"], streamed["token_identical"]) == (4, 3, 4)
    assert streamed["by_trial"] == {"divergent": 1, "n": 4, "low": 0.006309, "high": 0.80588}


WAVES = plan_of({"name": "concurrent_greedy", "levels": [2], "count": 2, "again": 2})
ALL = [f"concurrent_greedy_c2/p/{i}/w{w}/{m}" for i in range(2) for w in range(2) for m in range(2)]


@pytest.mark.parametrize(
    ("changed", "repeatable", "independent", "invariant"),
    [
        ([], 4, 1, 1),
        # All members of all waves agree with each other, and not with the baseline.
        (ALL, 4, 1, 0),
        # Member 1 differs from member 0 in every wave alike.
        ([name for name in ALL if name.endswith("/1")], 4, 0, 0),
        # One repeat differs from its wave.
        (ALL[2:3], 3, 0, 0),
    ],
)
def test_the_three_claims_about_waves(
    tmp_path: Path, changed: list[str], repeatable: int, independent: int, invariant: int
) -> None:
    """Each claim can hold and fail without the next."""
    subject = Subject(plan=WAVES, streams=dict.fromkeys(changed, one_ulp))
    (row,) = found(tmp_path, subject)["waves"]
    assert row == {
        "server": "a",
        "kind": "greedy",
        "level": 2,
        "waves": 4,
        "repeatable": {"k": repeatable, "n": 4},
        "wave_independent": {"k": independent, "n": 1},
        "batch_invariant": {"k": invariant, "n": 1},
    }


def test_a_control_that_does_not_diverge_makes_the_run_inconclusive(tmp_path: Path) -> None:
    """A seed that gives its baseline's tokens shows that the instrument is blind."""
    subject = Subject(plan=plan_of(*CONTROLS, {"name": "stream_vs_whole"}))
    baseline = {}

    def remember(stream: Stream) -> Stream:
        baseline["stream"] = stream
        return stream

    subject.streams = {"baseline/seeded/p": remember, "control_seed/p/1": lambda _: one_ulp(baseline["stream"])}
    document = found(tmp_path, subject)
    assert check(document, "control_seed") == ("failed", 2, 3)
    assert check(document, "control_prompt") == ("held", 2, 2)
    assert document["sound"] is False


def test_a_control_or_canary_that_is_missing_is_incomplete(tmp_path: Path) -> None:
    """What was not done holds nothing, and the run is not sound."""
    subject = Subject(plan=plan_of(*CONTROLS), failing={"control_seed/p/1", "canary/first"})
    document = found(tmp_path, subject)
    assert check(document, "control_seed") == ("incomplete", 2, 3)
    assert check(document, "canary") == ("incomplete", 0, 1)
    assert document["sound"] is False


def test_a_moved_canary_fails_and_taints(tmp_path: Path) -> None:
    """The canary is a check of its own besides the taint."""
    document = found(tmp_path, Subject(plan=plan_of(*CONTROLS), canary_moves=True))
    assert check(document, "canary") == ("failed", 0, 1)
    assert set(verdicts(document).values()) == {"tainted"}
    assert cell(document, "control_seed")["reasons"] == {"canary": 3}


def test_lost_precision_fails_the_instrument(tmp_path: Path) -> None:
    """A logprob that is no float32, or a top-k that is too short, is counted and makes the run inconclusive."""
    subject = Subject(plan=plan_of({"name": "stream_vs_whole"}))

    def rounded(stream: Stream) -> Stream:
        step = stream.steps[2]._replace(logprob=-1.23456789, top=stream.steps[2].top[:2])
        return stream._replace(steps=(*stream.steps[:2], step, *stream.steps[3:]))

    subject.streams["stream_vs_whole/p/0"] = rounded
    document = found(tmp_path, subject)
    # Two streams of 8 steps: 4 logprobs a step, less the one that was cut off.
    assert check(document, "float32") == ("failed", 62, 63)
    assert check(document, "top_k") == ("failed", 15, 16)
    assert document["sound"] is False


def test_settings_that_were_not_taken_fail_the_instrument(tmp_path: Path) -> None:
    """A reply without settings, or with others than were sent, is counted."""
    subject = Subject(plan=plan_of({"name": "stream_vs_whole", "count": 2}))
    subject.replies["stream_vs_whole/p/0"] = lambda values: values.update(settings=None)
    document = found(tmp_path, subject)
    # Two canaries, one baseline, two trials.
    assert check(document, "settings") == ("failed", 4, 5)
    assert document["sound"] is False


def test_another_kind_of_run_has_no_cells(tmp_path: Path) -> None:
    """An identity record is not judged as an audit."""
    run = write(tmp_path / "run", Subject(plan=plan_of({"name": "stream_vs_whole"})))
    path = run.folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"kind":"audit"', b'"kind":"identity"'))
    for judge in (findings, trials):
        with pytest.raises(UsageError, match="is of kind identity"):
            judge(Run.open(run.folder))


SNAPSHOT: dict[str, Any] = {"when": "before", "health": None, "slots": None, "metrics": None, "props": None}
ONE: dict[str, Any] = {"trial": "stream_vs_whole/p/0", "unit": "stream_vs_whole/p/0", "attempt": 0, "part": 0}
UNSENT: dict[str, Any] = {"sent_ns": 0, "first_byte_ns": None, "last_byte_ns": None, "status": None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (lambda s: Invoke(server="b", request="", slot=0, **ONE), "names the server 'b'"),
        (lambda s: Invoke(server="a", request="", slot=0, **{**ONE, "trial": "x"}), "has no trial x"),
        (lambda s: Invoke(server="a", request="", slot=0, **ONE), "part 0 of stream_vs_whole/p/0 is not due"),
        (lambda s: Invoke(server="a", request="", slot=0, **{**ONE, "part": 2}), "part 2 of .* is not due"),
        (lambda s: Complete(server="a", failure=None, reply=None, **ONE, **UNSENT), "does not wait for one"),
        (
            lambda s: Snapshot(server="a", unit=ONE["unit"], attempt=-1, process=s.who(), **SNAPSHOT),
            "is of attempt -1 of stream_vs_whole/p/0, after attempt 0",
        ),
    ],
)
def test_a_history_that_contradicts_itself_is_refused(
    tmp_path: Path, line: Callable[[Subject], Any], message: str
) -> None:
    """A line that cannot belong to this plan is an error, not a finding."""
    subject = Subject(plan=plan_of({"name": "stream_vs_whole"}))
    recorder = Recorder(tmp_path / "run", [subject])
    for block in recorder.blocks:
        for unit in block.units:
            recorder.unit(subject, unit, block)
    recorder.writer.append(line(subject))
    recorder.writer.close()
    with pytest.raises(EvidenceError, match=message):
        findings(Run.open(tmp_path / "run"))
