"""A prediction holds or is refuted by its own rules alone, and is inconclusive wherever they do not say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from audit.errors import PlanError
from audit.prereg import CHECKS, Counts, Prediction, Rule, evaluate, load_predictions

PREDICTION: dict[str, Any] = {
    "id": "h1",
    "statement": "Alone, nothing changes.",
    "conditions": ["repeat_greedy", "concurrent_greedy_c2"],
    "servers": "*",
    "unit": "pooled",
    "measure": "logprob_identical",
    "holds": {"op": "==", "value": 1},
    "refuted": {"op": "<", "value": 0.9},
    "minimum": 5,
    "requires": ["control_seed"],
}
HELD = {"a": {"control_seed", "canary"}, "b": {"control_seed"}}


def document(*predictions: dict[str, Any]) -> bytes:
    """Make a predictions.json."""
    return json.dumps({"format": 1, "predictions": list(predictions)}).encode()


def prediction(**changes: object) -> Prediction:
    """Make a prediction."""
    return load_predictions(document({**PREDICTION, **changes})).predictions[0]


def cell(k: int, n: int, **changes: Any) -> Counts:  # noqa: ANN401 - fields of the counts
    """Make a judged cell with k of n identical."""
    values: dict[str, Any] = {
        "server": "a",
        "condition": "repeat_greedy",
        "verdict": "divergent" if k < n else "identical",
        "usable": n,
        "logprob_identical": k,
        "token_identical": n,
        "waves": 2,
        "waves_identical": 1,
        **changes,
    }
    return Counts(**values)


def status(cells: list[Counts], held: dict[str, set[str]] | None = None, **changes: object) -> str:
    """Return the status of a prediction on these cells."""
    (entry,) = evaluate([prediction(**changes)], cells=cells, held=HELD if held is None else held)
    return str(entry["status"])


OTHER = {"server": "b"}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([cell(10, 10), cell(3, 3, **OTHER)], "holds"),
        ([cell(10, 10), cell(2, 3, **OTHER)], "inconclusive"),
        ([cell(8, 10), cell(3, 3, **OTHER)], "refuted"),
        ([cell(2, 2), cell(2, 2, **OTHER)], "inconclusive"),
        ([cell(10, 10), cell(0, 9, verdict="vacuous", **OTHER)], "holds"),
        ([cell(10, 10, verdict="unstable", condition="concurrent_greedy_c2")], "inconclusive"),
        ([cell(10, 10, verdict="unstable")], "holds"),
        ([cell(10, 10, verdict="tainted")], "inconclusive"),
        ([cell(10, 10, condition="restart")], "not applicable"),
        ([], "not applicable"),
    ],
)
def test_a_pool_is_judged_as_one(cells: list[Counts], expected: str) -> None:
    """All judged cells are added up; those without a result are left out."""
    assert status(cells) == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([cell(10, 10), cell(6, 6, **OTHER)], "holds"),
        ([cell(10, 10), cell(4, 6, **OTHER)], "refuted"),
        # Too few to refute, and too few to hold.
        ([cell(10, 10), cell(0, 4, **OTHER)], "inconclusive"),
        ([cell(4, 4), cell(4, 4, **OTHER)], "inconclusive"),
        ([cell(10, 10), cell(19, 20, **OTHER)], "inconclusive"),
        ([cell(10, 10), cell(6, 6, verdict="vacuous", **OTHER)], "inconclusive"),
        ([cell(4, 6), cell(6, 6, verdict="vacuous", **OTHER)], "refuted"),
    ],
)
def test_cells_are_judged_one_by_one(cells: list[Counts], expected: str) -> None:
    """One cell refutes, all of them hold."""
    assert status(cells, unit="cell") == expected


def test_a_rule_that_contradicts_the_other_settles_nothing() -> None:
    """Where both rules are met, or neither, the prediction is inconclusive."""
    assert status([cell(10, 10)], refuted={"op": ">=", "value": 0.5}) == "inconclusive"
    assert status([cell(5, 10)], refuted={"op": "<", "value": 0.1}) == "inconclusive"


def test_what_a_prediction_requires_must_hold_on_every_server_it_speaks_of() -> None:
    """A control that failed, or was never done, on one of the servers makes it inconclusive, whatever was counted."""
    cells = [cell(0, 10), cell(0, 10, **OTHER)]
    assert status(cells, held={"a": {"control_seed"}}) == "inconclusive"
    assert status(cells, held={"a": {"control_seed"}}, servers=["a"]) == "refuted"
    assert status(cells, requires=["canary"]) == "inconclusive"
    assert status(cells, requires=[]) == "refuted"


def test_servers_can_be_named() -> None:
    """A prediction about one server says nothing of another, nor of one that was not run."""
    cells = [cell(0, 10), cell(10, 10, **OTHER)]
    assert status(cells, servers=["b"]) == "holds"
    assert status(cells, servers=["c"]) == "not applicable"


@pytest.mark.parametrize(
    ("measure", "k", "n"), [("logprob_identical", 7, 10), ("token_identical", 10, 10), ("waves_identical", 1, 2)]
)
def test_measures_count_what_they_say(measure: str, k: int, n: int) -> None:
    """Trials at two levels, or waves; cells that are not judged are shown and not counted."""
    cells = [cell(7, 10), cell(3, 9, verdict="vacuous", **OTHER)]
    (entry,) = evaluate([prediction(measure=measure)], cells=cells, held=HELD)
    assert (entry["k"], entry["n"]) == (k, n)
    assert [(c["server"], c["verdict"]) for c in entry["cells"]] == [("a", "divergent"), ("b", "vacuous")]
    assert (entry["cells"][0]["k"], entry["cells"][0]["n"]) == (k, n)


@pytest.mark.parametrize(
    ("op", "value", "k", "n", "met"),
    [
        # 0.1 is no binary fraction: 1/10 is exactly it all the same.
        ("==", 0.1, 1, 10, True),
        (">", 0.1, 1, 10, False),
        (">=", 0.3, 3, 10, True),
        ("<=", 0.7, 7, 10, True),
        ("<", 0.7, 7, 10, False),
        ("==", 1, 10, 10, True),
        ("<", 0.3333333333333333, 1, 3, False),
    ],
)
def test_rules_compare_exactly(op: Any, value: float, k: int, n: int, met: bool) -> None:  # noqa: ANN401 - a literal
    """A share is a fraction of whole numbers and a rule's value the decimal that was written."""
    assert Rule(op=op, value=value).met(k, n) is met


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conditions": ["repeat_gready"]}, "there is no condition 'repeat_gready'"),
        ({"conditions": []}, "predictions.0.conditions"),
        ({"requires": ["controls"]}, "requires.0"),
        ({"measure": "identical"}, "measure"),
        ({"holds": {"op": "=>", "value": 1}}, "holds.op"),
        ({"holds": {"op": ">=", "value": 1.5}}, "holds.value"),
        ({"holds": {"op": ">=", "value": "1"}}, "holds.value"),
        ({"minimum": 0}, "minimum"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_prediction_that_cannot_be_evaluated_is_refused(changes: dict[str, Any], message: str) -> None:
    """The error names file and field."""
    with pytest.raises(PlanError, match=message) as refused:
        prediction(**changes)
    assert refused.value.message.startswith("predictions.json: ")


def test_two_predictions_of_one_name_are_refused() -> None:
    """Ids name predictions in findings and texts."""
    with pytest.raises(PlanError, match="an id occurs twice"):
        load_predictions(document(PREDICTION, PREDICTION))


@pytest.mark.parametrize("data", [b"{", b'{"format":2,"predictions":[]}', b"\xff", b"[" * 100_000])
def test_what_is_no_predictions_file_is_refused(data: bytes) -> None:
    """Broken JSON and other formats are errors of the file."""
    with pytest.raises(PlanError, match=r"predictions\.json"):
        load_predictions(data)


def test_the_checks_that_can_be_required_are_those_of_the_instrument() -> None:
    """The names stand in the order of findings.json."""
    assert CHECKS == (
        "control_prompt",
        "control_seed",
        "control_temperature",
        "canary",
        "float32",
        "top_k",
        "greedy",
        "settings",
        "counts",
        "one_ulp",
        "parse_twice",
    )
