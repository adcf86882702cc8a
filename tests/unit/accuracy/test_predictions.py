"""A prediction is evaluated on the cells that it names, by its own two rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.accuracy.predictions import evaluate, load_predictions
from audit.errors import PlanError

PREDICTION: dict[str, Any] = {
    "id": "p", "statement": "None fails.", "models": "*", "groups": ["fresh"], "modes": ["serial", "batch"],
    "measure": "failed", "holds": {"op": "==", "value": 0}, "refuted": {"op": ">", "value": 0}, "minimum": 10,
}  # fmt: skip


def cell(group: str = "fresh", mode: str = "serial", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any number
    """One cell of the findings."""
    return {"model": "m", "group": group, "mode": mode, "rows": 8, "failed": 0, "max_abs": 0.5, **more}


def status(cells: list[dict[str, Any]], **change: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    """Evaluate the prediction with a change."""
    data = json.dumps({"format": 1, "kind": "accuracy", "predictions": [{**PREDICTION, **change}]}).encode()
    return evaluate(load_predictions(data), cells)[0]


@pytest.mark.parametrize(
    ("cells", "change", "expected"),
    [
        ([cell(), cell(mode="batch")], {}, ("holds", 0, 16)),
        ([cell(), cell(mode="batch", failed=2)], {}, ("refuted", 2, 16)),
        ([cell()], {}, ("inconclusive", 0, 8)),
        ([cell(group="long", failed=3)], {}, ("not applicable", 0, 0)),
        ([cell(), cell(mode="batch")], {"models": ["other"]}, ("not applicable", 0, 0)),
        (
            [cell(max_abs=0.1), cell(mode="batch")],
            {"measure": "max_abs", "holds": {"op": "<", "value": 0.5}, "refuted": {"op": ">=", "value": 0.5}},
            ("refuted", 0.5, 16),
        ),
        ([cell(), cell(mode="batch")], {"refuted": {"op": ">=", "value": 0}}, ("inconclusive", 0, 16)),
        ([cell(), cell(mode="batch")], {"holds": {"op": ">", "value": 5}}, ("inconclusive", 0, 16)),
    ],
)
def test_each_outcome_has_its_rule(
    cells: list[dict[str, Any]], change: dict[str, Any], expected: tuple[str, float, int]
) -> None:
    """Counts add up, metrics take the largest; too few rows, both rules or neither are inconclusive."""
    found = status(cells, **change)
    assert (found["status"], found["found"], found["rows"]) == expected


@pytest.mark.parametrize(
    "change",
    [{"measure": "speed"}, {"groups": []}, {"groups": ["middle"]}, {"holds": {"op": "!=", "value": 0}}, {"id": ""}],
)
def test_a_wrong_field_is_refused(change: dict[str, Any]) -> None:
    """The field is named."""
    with pytest.raises(PlanError, match=rf"predictions\.0\.{next(iter(change))}"):
        status([], **change)


def test_an_id_twice_is_refused() -> None:
    """Each prediction is named once."""
    data = json.dumps({"format": 1, "kind": "accuracy", "predictions": [PREDICTION, PREDICTION]}).encode()
    with pytest.raises(PlanError, match="an id occurs twice"):
        load_predictions(data)
    with pytest.raises(PlanError, match=r"predictions\.json"):
        load_predictions(b"{")


def test_the_registered_predictions_can_be_read(repository: Path) -> None:
    """prereg/accuracy is valid, and PREREG.md names each prediction."""
    folder = repository / "prereg" / "accuracy"
    words = (folder / "PREREG.md").read_text(encoding="ascii")
    for prediction in load_predictions((folder / "predictions.json").read_bytes()):
        assert prediction.id in words
