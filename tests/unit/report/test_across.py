"""Runs side by side: which verdicts changed, and which streams are one class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.report.across import across, across_page_context, across_text
from audit.report.render import html_page
from audit.store import Run
from tests.unit.analyse.simulated import Subject, moved, plan_of
from tests.unit.analyse.simulated import write as write_plain
from tests.unit.report.reported import WAVE, eventful, hostile
from tests.unit.report.test_page import Page

PLAN = plan_of({"name": "repeat_greedy", "prompts": ["p", "q"]}, {"name": "concurrent_greedy", "levels": [2]})


def single(folder: Path, label: str, *changed: str) -> Run:
    """Write a run of one server in which these trials move."""
    subject = Subject(plan=PLAN, label=label)
    subject.streams |= dict.fromkeys(changed, lambda stream: moved(stream, 3))
    return write_plain(folder, subject)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Compare two runs of one server each: on the second a wave moves, and so does the baseline of q."""
    folder = tmp_path_factory.mktemp("across")
    single(folder / "one", "a")
    single(folder / "two", "other", f"{WAVE}/0", "baseline/greedy/q", "repeat_greedy/q/0")
    return across([folder / "one", folder / "two"])


def test_a_changed_verdict_is_found(document: dict[str, Any]) -> None:
    """One cell moved on one side; servers of other labels are matched where each run has one."""
    assert [entry["condition"] for entry in document["cells"] if entry["changed"]] == ["concurrent_greedy_c2"]
    cells = next(entry["subjects"] for entry in document["cells"] if entry["changed"])
    assert [cell["verdict"] for cell in cells.values()] == ["identical", "token-identical"]


def test_baselines_are_sorted_into_classes(document: dict[str, Any]) -> None:
    """One letter is one stream: p is the same on both, q is not."""
    classes = {entry["trial"]: list(entry["classes"].values()) for entry in document["streams"]}
    assert classes == {"baseline/greedy/p": ["a", "a"], "baseline/greedy/q": ["a", "b"]}
    (common,) = document["common"]
    assert (common["common"], common["streams"]) == (1, [2, 3])


def test_the_text_says_it_and_ends_with_the_counts(document: dict[str, Any]) -> None:
    """Printable lines, verdict words, and one line that sums up."""
    told = across_text(document)
    assert "changed  concurrent_greedy_c2  identical 2/2, moved 0/1 [0.000, 0.950]" in told
    assert (
        told.splitlines()[-1] == "1 of 2 cells changed their verdict; 1 of 2 baselines are one stream in all subjects"
    )
    assert told.isascii()
    assert json.loads(json.dumps(document)) == document


def test_a_run_beside_itself_changes_nothing(tmp_path: Path) -> None:
    """All verdicts and all classes are equal, and the second of a name gets a number."""
    run = eventful(tmp_path / "run")
    found = across([run.folder, run.folder])
    assert [entry for entry in found["cells"] if entry["changed"]] == []
    assert {entry["distinct"] for entry in found["streams"]} == {1}
    assert [one["name"] for one in found["subjects"]] == ["run:a", "run:b", "run#2:a", "run#2:b"]


def test_another_prompt_is_another_class(tmp_path: Path) -> None:
    """Streams of different prompts are not compared, although their trial has one name."""
    single(tmp_path / "one", "a")

    class Other(Subject):
        def prompt(self, key: str) -> Any:  # noqa: ANN401 - as the method that it replaces
            return super().prompt(f"other {key}")

    write_plain(tmp_path / "two", Other(plan=PLAN, label="a"))
    found = across([tmp_path / "one", tmp_path / "two"])
    assert {tuple(entry["classes"].values()) for entry in found["streams"]} == {("a", "b (prompt 2)")}


def test_one_run_is_refused(tmp_path: Path) -> None:
    """There is nothing to compare it with."""
    with pytest.raises(UsageError, match="1 run is named"):
        across([tmp_path])


def test_the_page_is_reproducible_and_inert(tmp_path: Path) -> None:
    """Twice the same bytes; a hostile record brings nothing with it; every id is there once."""
    run = hostile(tmp_path / "run")
    context = across_page_context(across([run.folder, run.folder]))
    page = html_page("across.html", context)
    assert html_page("across.html", context) == page
    read = Page(page.decode("ascii"))
    assert read.tags.count("script") == 1
    assert "img" not in read.tags
    assert len(read.ids) == len(set(read.ids))
    assert set(read.links) <= set(read.ids)
