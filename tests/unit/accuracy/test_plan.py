"""A plan names its corpus, and unfolds into each sequence alone and whole waves that ask by turns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from audit.accuracy.corpus import Corpus, Sequence
from audit.accuracy.plan import AccuracyPlan, planned, sending_plan, server_settings, units
from audit.errors import PlanError
from audit.request import request_body
from tests.integration.accuracy_study import MODEL, small_corpus

PLAN = AccuracyPlan(name="x", corpus="sha256:" + "0" * 64)


def members(count: int) -> list[Sequence]:
    """Return so many members of one group."""
    one = small_corpus().members_of(MODEL, "long")[0]
    return [msgspec.structs.replace(one, id=f"long-{slot:02}", slot=slot) for slot in range(count)]


def test_every_sequence_is_sent_alone_and_in_every_wave() -> None:
    """64 members, 8 asked in each of 8 waves, each asked once; asking changes neither members nor slots."""
    found = units(PLAN, members(64), "server")
    serial, waves = found[:64], found[64:]
    assert [len(unit.trials) for unit in serial] == [1] * 64
    assert len(waves) == 8
    asked = Counter[str]()
    for unit in waves:
        assert unit.wave
        assert [trial.slot for trial in unit.trials] == list(range(64))
        assert [trial.prompt for trial in unit.trials] == [one.id for one in members(64)]
        asking = [trial.prompt for trial in unit.trials if trial.n_probs == "vocabulary"]
        assert len(asking) == 8
        asked.update(asking)
    assert set(asked.values()) == {1}
    assert len(asked) == 64


def test_the_last_wave_asks_fewer_where_they_do_not_divide() -> None:
    """Ten members, four at a time: 4, 4, 2."""
    plan = PLAN.model_copy(update={"recorded": 4})
    waves = units(plan, members(10), "server")[10:]
    assert [sum(trial.n_probs == "vocabulary" for trial in unit.trials) for unit in waves] == [4, 4, 2]


def test_a_reference_is_serial_on_one_slot() -> None:
    """The reference decodes nothing together with anything."""
    found = units(PLAN, members(64), "reference")
    assert [(unit.wave, unit.trials[0].slot) for unit in found] == [(False, 0)] * 64


def test_a_request_forces_the_teacher_by_a_grammar_of_ids_and_streams() -> None:
    """One request a sequence: the prefill as prompt, the teacher as grammar, the whole vocabulary or nothing asked."""
    group = small_corpus().members_of(MODEL, "short")
    trials = planned(PLAN.model_copy(update={"recorded": 1}), group, "server")
    one = group[1]
    bodies = {
        name: msgspec.json.decode(
            request_body(
                sending_plan(PLAN, group),
                trials[name].trial,
                registered="sha256:" + "0" * 64,
                prompt=one.prefill,
                vocabulary=512,
                forced=one.teacher,
            )
        )
        for name in ("serial/short-01", "batch/w0/short-01", "batch/w1/short-01")
    }
    for body in bodies.values():
        assert body["grammar"] == "root ::= " + " ".join(f"<[{token}]>" for token in one.teacher)
        assert (body["prompt"], body["n_predict"]) == (one.prefill, len(one.teacher))
        assert (body["stream"], body["cache_prompt"], body["temperature"], body["id_slot"]) == (True, False, 0.0, 1)
    assert [body["n_probs"] for body in bodies.values()] == [512, 0, 512]
    assert bodies["serial/short-01"] == bodies["batch/w1/short-01"]


def test_a_batch_holds_a_whole_wave() -> None:
    """The server's -b is at least the members times the longest prefill; keys and values are float16."""
    data = Path(__file__).parents[3] / "prereg" / "accuracy" / "corpus.json"
    corpus = Corpus.parse(data.read_bytes(), name="corpus.json")
    settings = server_settings(corpus, "smollm2-135m-q4_1", "server", 2)
    assert (settings.batch, settings.slots, settings.ctx_per_slot, settings.cache_type) == (64 * 192, 64, 256, "f16")
    reference = server_settings(corpus, "smollm2-135m-q4_1", "reference", 2)
    assert (reference.slots, reference.batch, reference.ctx_per_slot, reference.cache_type) == (1, 512, 256, "f16")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"corpus": "abc"}, r"plan: corpus: .* got 'abc'"),
        ({"recorded": 0}, r"plan: recorded: .* got 0"),
        ({"factor": 3.0}, r"plan: factor: Extra inputs are not permitted, got 3.0"),
        ({"kind": "audit"}, r"plan: kind: .* got 'audit'"),
        ({"name": "No"}, r"plan: name: .* got 'No'"),
        ({"timeout_s": float("inf")}, r"plan: timeout_s"),
    ],
)
def test_a_plan_with_a_wrong_field_is_refused(change: dict[str, Any], words: str) -> None:
    """The field and its value are named; the factor of the bounds is no field."""
    with pytest.raises(PlanError, match=words):
        AccuracyPlan.parse({"name": "x", "corpus": "sha256:" + "0" * 64, **change})


def test_a_plan_resolves_to_canonical_json(tmp_path: Path) -> None:
    """TOML in, every default filled in."""
    path = tmp_path / "plan.toml"
    path.write_text(f'name = "x"\ncorpus = "{PLAN.corpus}"\n')
    data = AccuracyPlan.load(path).to_bytes()
    assert msgspec.json.decode(data) == {
        "format": 1, "kind": "accuracy", "name": "x", "corpus": PLAN.corpus, "recorded": 8, "attempts": 5,
        "timeout_s": 600.0,
    }  # fmt: skip
    (tmp_path / "plan.json").write_bytes(data)
    assert AccuracyPlan.load(tmp_path / "plan.json").to_bytes() == data
    with pytest.raises(PlanError, match=r"absent\.toml"):
        AccuracyPlan.load(tmp_path / "absent.toml")
    path.write_text("name = ")
    with pytest.raises(PlanError, match=r"plan\.toml"):
        AccuracyPlan.load(path)
