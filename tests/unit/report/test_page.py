"""The report is one page that says all of it, in order, asks for nothing, and is the same bytes for the same folder."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from audit.record import Complete
from audit.report import derive, derived_files
from audit.store import DERIVED_SUMS, Run
from scripts.derived_files import check, surroundings
from tests.unit.analyse.simulated import Subject, plan_of, write
from tests.unit.report.reported import WAVE, eventful, hostile

SECTIONS = (
    "predictions", "instrument", "cells", "map", "plots", "witnesses", "system", "deviations", "verify", "reading",
    "limits",
)  # fmt: skip
QUESTIONS = (
    "Where does divergence start?",
    "How large is it?",
    "Why do greedy tokens survive?",
    "Did the requests overlap?",
    "How does it grow with concurrency?",
)
FILES = {"findings.json", "report.html", "report.md", "cells.csv", "datapackage.json"}


class Page(HTMLParser):
    """The elements of a page: ids, links, tags, and every attribute that could lead outside."""

    def __init__(self, text: str) -> None:
        """Read the page."""
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element's attributes."""
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and (value or "").startswith("#"):
                self.links.append((value or "")[1:])
            elif name in {"href", "src", "srcset", "action", "data", "poster", "xlink:href"}:
                self.sources.append(value or "")
            elif name.startswith("on"):
                self.handlers.append(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the eventful run with its derived files."""
    folder = tmp_path_factory.mktemp("page") / "run"
    eventful(folder)
    derive(folder)
    return folder


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    """Return its page."""
    return (folder / "report.html").read_text(encoding="ascii")


@pytest.fixture(scope="module")
def findings(folder: Path) -> dict[str, Any]:
    """Return its findings."""
    found: dict[str, Any] = json.loads((folder / "findings.json").read_text())
    return found


def visible_text(text: str) -> str:
    """Return what a page says."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)))


def test_every_derived_file_is_written_and_listed(folder: Path) -> None:
    """And no other."""
    listed = {line.split("  ")[1] for line in (folder / DERIVED_SUMS).read_text().splitlines()}
    assert listed == FILES


def test_sections_stand_in_the_order_of_a_reader(text: str) -> None:
    """Conclusion, predictions, the instrument before the results, then what was found, then how to doubt it."""
    places = [text.index(f'<section id="{name}"') for name in SECTIONS]
    assert places == sorted(places)
    assert text.index('id="conclusion"') < places[0]
    assert [text.index(f">{question}<") for question in QUESTIONS] == sorted(
        text.index(f">{question}<") for question in QUESTIONS
    )


def test_the_conclusion_counts_cells_and_predictions(text: str) -> None:
    """With the record's soundness first."""
    said = visible_text(re.findall(r'id="conclusion">(.*?)</p>', text)[0])
    assert said.startswith("The record is sound")
    assert "Of 2 registered predictions 1 holds and 1 is refuted." in said
    assert "without a result" in said


def test_every_cell_trial_prediction_and_witness_can_be_linked_to(
    folder: Path, text: str, findings: dict[str, Any]
) -> None:
    """Each has one id, and every link of the page leads to one."""
    page = Page(text)
    assert [name for name in set(page.ids) if page.ids.count(name) > 1] == []
    assert set(page.links) - set(page.ids) == set()
    keys = {"a": "s1", "b": "s2"}
    for cell in findings["cells"]:
        assert f"{keys[cell['server']]}/{cell['condition']}" in page.ids
        assert (f"{keys[cell['server']]}/{cell['condition']}/witness" in page.ids) == (cell["witness"] is not None)
    assert {f"prediction/{entry['id']}" for entry in findings["predictions"]} <= set(page.ids)
    lines = [line for line in Run.open(folder).lines() if isinstance(line, Complete)]
    answered = {f"{keys[line.server]}/{line.trial}" for line in lines}
    assert f"s1/{WAVE}/0" in answered
    assert answered <= set(page.ids)


def test_a_witness_shows_both_values_with_the_digits_that_differ(text: str, findings: dict[str, Any]) -> None:
    """In words, in decimal and in hexadecimal."""
    cell = next(c for c in findings["cells"] if (c["server"], c["condition"]) == ("a", "concurrent_greedy_c2"))
    told = re.findall(r'<article class="witness" id="s1/concurrent_greedy_c2/witness">.*?</article>', text, re.DOTALL)[
        0
    ]
    assert "They agree through step 2, every token and every logprob." in visible_text(told)
    assert "1 float32 values" in visible_text(told)
    plain = re.sub(r"</?mark>", "", told)
    assert {cell["witness"]["value_hex"], cell["witness"]["reference_hex"]} <= set(
        re.findall(r"-0x1\.[0-9a-f]+p[+-]\d+", plain)
    )
    assert "<mark>" in told
    assert f"determinism diff RUN a:{WAVE}/0" in told


def test_cells_without_a_result_look_unlike_identical_ones(text: str, findings: dict[str, Any]) -> None:
    """Another shape, another word and a hatched ground, so that no colour is needed."""
    for cell, key in ((cell, {"a": "s1", "b": "s2"}[cell["server"]]) for cell in findings["cells"]):
        shown = re.findall(rf'<td role="cell" id="{key}/{cell["condition"]}".*?</td>', text, re.DOTALL)[0]
        shape = cell["verdict"].replace(" ", "-")
        assert f'href="#shape-{shape}"/></svg>{cell["verdict"]}</span>' in shown
        assert ("no-result" in shown) == (cell["verdict"] in {"vacuous", "insufficient", "not run"})
    shapes = re.findall(r'<symbol id="(shape-[\w-]+)".*?>(.*?)</symbol>', text)
    drawn = [drawing for name, drawing in shapes]
    assert len(set(drawn)) == len(drawn) == 14


def test_a_refuted_prediction_is_set_like_one_that_holds(text: str) -> None:
    """The same element, the same size; only shape, word and colour differ."""
    rows = re.findall(r'<li id="prediction/P\d">\s*(.*?)<p class="statement">', text, re.DOTALL)
    assert [re.sub(r"holds|refuted", "", row) for row in rows] == [re.sub(r"holds|refuted", "", rows[0])] * 2
    assert ["refuted" in row for row in rows] == [False, True]


def test_the_page_asks_for_nothing_and_its_policy_says_so(text: str) -> None:
    """No address but anchors; the policy allows the one script by its digest, and styles."""
    page = Page(text)
    assert page.sources == ["data:,"]
    assert page.handlers == []
    assert re.findall(r"https?:|url\((?!#)|@import", text) == []
    assert page.tags.count("script") == 1
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_every_plot_has_words_and_its_data(text: str) -> None:
    """Who does not see a plot reads what it shows; its numbers stand below it."""
    figures = re.findall(r'<figure id="[\w-]+">.*?</figure>', text, re.DOTALL)
    assert len(figures) == len(QUESTIONS)
    for figure in figures:
        (alternative,) = re.findall(r'<title id="[\w-]+-alt">(.+?)</title>', figure)
        assert len(alternative) > 20
        assert "<table>" in figure


def test_twice_and_elsewhere_it_is_the_same_bytes(folder: Path) -> None:
    """Another process, locale, time zone and order of sets; another place on disk."""
    assert surroundings()["PYTHONHASHSEED"] == "4711"
    assert check(folder) == []
    again = folder.parent / "elsewhere" / "other name"
    again.parent.mkdir()
    folder.rename(again)
    try:
        _, files = derived_files(again)
        assert {name: (again / name).read_bytes() for name in FILES} == files
    finally:
        again.rename(folder)


def test_a_changed_derived_file_is_found(folder: Path) -> None:
    """One byte is enough, and so is a file too few."""
    page = folder / "report.md"
    kept = page.read_bytes()
    page.write_bytes(kept + b" ")
    try:
        assert check(folder) == ["report.md"]
    finally:
        page.write_bytes(kept)


def test_the_markdown_says_the_same(folder: Path, findings: dict[str, Any]) -> None:
    """Every cell with its verdict and counts, every prediction, every witness in words; ASCII, no trailing space."""
    said = (folder / "report.md").read_text(encoding="ascii")
    rows = [line for line in said.splitlines() if line.startswith("|")]
    for cell in findings["cells"]:
        share = f"| {cell['logprob_identical']}/{cell['usable']} | {cell['token_identical']}/{cell['usable']} |"
        assert any(f"| `{cell['server']}` | **{cell['verdict']}**" in row and share in row for row in rows)
    for entry in findings["predictions"]:
        assert f"| **{entry['status']}** | {entry['k']}/{entry['n']} | {entry['id']} |" in said
    assert "They agree through step 2, every token and every logprob." in said
    assert [line for line in said.splitlines() if line != line.rstrip()] == []
    widths = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert widths == [width for width, row in zip(widths, rows, strict=True) if width > 2]


def test_the_data_package_describes_its_tables(folder: Path) -> None:
    """Names, digest, size, and a type that every value of a column can be read as."""
    _, files = derived_files(folder, with_steps=True)
    package = json.loads(files["datapackage.json"])
    assert [resource["path"] for resource in package["resources"]] == ["cells.csv", "steps.csv"]
    read: dict[str, Callable[[str], object]] = {
        "string": str,
        "integer": int,
        "number": float,
        "boolean": {"True": True, "False": False}.__getitem__,
    }
    for resource in package["resources"]:
        data = files[resource["path"]]
        assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert resource["bytes"] == len(data)
        header, *rows = csv.reader(io.StringIO(data.decode("utf-8")))
        fields = resource["schema"]["fields"]
        assert header == [field["name"] for field in fields]
        assert all(field["description"] for field in fields)
        for row in rows:
            for field, value in zip(fields, row, strict=True):
                assert value == "" or read[field["type"]](value) is not None
    assert json.loads((folder / "datapackage.json").read_text())["resources"][0]["path"] == "cells.csv"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the derived files of the hostile run."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    hostile(folder)
    return derive(folder, with_steps=True)[1]


def test_hostile_text_is_text_in_the_page(nasty: dict[str, bytes]) -> None:
    """No element, handler or address comes from a record, and nothing invisible is left."""
    text = nasty["report.html"].decode("ascii")
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert page.handlers == []
    assert page.sources == ["data:,"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\\x1b[31m" in text
    assert re.findall(r"[^\n -~]|&#(?:0?27|7|0|8238|8232);", text) == []
    assert "{{ 7 * 7 }}" in text
    assert len(text) < 1_000_000


def test_hostile_text_is_text_in_markdown(nasty: dict[str, bytes]) -> None:
    """No tag, no link, no row of a table that is not ours."""
    said = nasty["report.md"].decode("ascii")
    outside = re.sub(r"`[^`\n]*`", "", said)
    assert "<script" not in outside
    assert "](b)" not in outside.replace("\\]", "")
    assert "\x1b" not in said


def test_a_run_in_which_nothing_moved_is_reported_too(tmp_path: Path) -> None:
    """No plot of what did not happen, no witness, and the rest as ever."""
    plan = plan_of({"name": "repeat_greedy", "count": 2}, {"name": "stream_vs_whole"})
    write(tmp_path / "run", Subject(plan=plan))
    text = derive(tmp_path / "run", with_steps=True)[1]["report.html"].decode("ascii")
    assert "No stream left its reference." in text
    assert "Nothing moved, so there is nothing to plot." in text
    assert "everything below is exploratory" in text


def test_an_interruption_is_told(tmp_path: Path) -> None:
    """A run that was broken off and taken up says so under deviations, with the lines."""
    from audit.record import Interrupt, Resume
    from audit.report.audit_view import _interruptions
    from tests.unit.analyse.simulated import Recorder

    recorder = Recorder(tmp_path / "run", [Subject(plan=plan_of({"name": "repeat_greedy"}))])
    recorder.writer.append(Interrupt(reason="signal"))
    recorder.writer.append(Resume(process=1, wall_ns=0, cut=0))
    run = recorder.write()
    assert _interruptions(run) == [
        "Line 1 of the history: the run was interrupted (signal).",
        "Line 2 of the history: a later process took the run up.",
    ]
