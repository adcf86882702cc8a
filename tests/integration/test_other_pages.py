"""The pages of the other kinds: all of it, in order, inert, and the same bytes for the same folder."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.derived import files_of
from audit.store import DERIVED_SUMS
from scripts.derived_files import check
from tests.integration.other_kinds import hostile_accuracy, hostile_identity, hostile_remedy
from tests.unit.report.reported import MARKUP
from tests.unit.report.test_page import Page

ACCURACY = "2026-11-30-accuracy-tiny-llama-q4_0"
BEYOND = "2026-11-30-accuracy-smollm2-135m-q4_1"
BEYOND_MORE = "2026-11-30-accuracy-gemma3-270m-q4_k_m"
IDENTITY = "2026-11-30-identity-source-one-ulp"
EPOCHS = "2026-11-30-identity-epochs-gemma"
SECTIONS = {
    "identity": (
        "predictions", "instrument", "determinism", "identity", "differences", "epochs", "verdict", "builds", "verify",
        "reading", "limits",
    ),
    "accuracy": (
        "predictions", "bounds", "cells", "winners", "failures", "sources", "verify", "reading", "limits",
    ),
    "remedy": (
        "instrument", "table", "factor", "lines", "starts", "untried", "advice", "verify", "reading", "limits",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a record of each kind in which something differs and every text is hostile."""
    root = tmp_path_factory.mktemp("kinds")
    hostile_identity(root / "identity")
    hostile_accuracy(repository / "results" / ACCURACY, root / "accuracy")
    hostile_remedy(root / "remedy")
    return {name: root / name for name in SECTIONS}


def page_of(folder: Path) -> str:
    """Return a record's page."""
    return (folder / "report.html").read_text(encoding="ascii")


def said(text: str) -> str:
    """Return what a page says."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_page_has_its_sections_in_the_order_of_a_reader(folders: dict[str, Path], kind: str) -> None:
    """The conclusion first, then what was predicted, what was found, and how to doubt it."""
    text = page_of(folders[kind])
    places = [text.index(f'<section id="{name}"') for name in SECTIONS[kind]]
    assert places == sorted(places)
    assert text.count("<section ") == len(places)
    assert text.index('id="conclusion"') < places[0]


@pytest.mark.parametrize("kind", SECTIONS)
def test_the_same_folder_gives_the_same_bytes(folders: dict[str, Path], kind: str) -> None:
    """Also in another process with another locale, zone and order of sets; every file is listed."""
    folder = folders[kind]
    listed = {line.split("  ")[1] for line in (folder / DERIVED_SUMS).read_text().splitlines()}
    assert listed == {"findings.json", "report.html", "report.md"}
    assert check(folder) == []
    _, files = files_of(folder)
    assert {name: (folder / name).read_bytes() for name in files} == files


@pytest.mark.parametrize("kind", SECTIONS)
def test_hostile_words_are_inert(folders: dict[str, Path], kind: str) -> None:
    """They are read as they are, and make no element, attribute, address or template."""
    text = page_of(folders[kind])
    page = Page(text)
    assert page.tags.count("script") == 1
    assert {"img", "iframe", "object", "base"}.isdisjoint(page.tags)
    assert (page.handlers, [source for source in page.sources if source != "data:,"]) == ([], [])
    assert MARKUP in said(text)
    assert "{{ 7 * 7 }}" in said(text)
    markdown = (folders[kind] / "report.md").read_text(encoding="ascii")
    assert [line for line in markdown.splitlines() if "<script" in re.sub(r"`[^`]*`", "", line)] == []
    assert "\x1b" not in markdown + text


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_name_is_there_once_and_every_link_leads_somewhere(folders: dict[str, Path], kind: str) -> None:
    """Of builds, families, cells, differences and predictions."""
    page = Page(page_of(folders[kind]))
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    findings = json.loads((folders[kind] / "findings.json").read_text())
    if kind == "accuracy":
        wanted = {f"c{at}" for at in range(1, len(findings["cells"]) + 1)}
        wanted |= {f"failure/{at}" for at in range(1, len(findings["failures"]) + 1)}
    elif kind == "remedy":
        wanted = {f"s{at}" for at in range(1, len(findings["settings"]) + 1)}
        wanted |= {f"a{at}" for at in range(1, len(findings["arms"]) + 1)}
    else:
        wanted = {"p1", "p2", "p1/f1", "p1/f2", "p1/c1", "p1/c2", "p1/c2/difference", "p2/c2", "b3", "e3", "build/3"}
    assert wanted <= set(page.ids)


def difference(folder: Path) -> dict[str, Any]:
    """Return the difference of gemma2 between the first two builds."""
    findings = json.loads((folder / "findings.json").read_text())
    found = next(cell["difference"] for cell in findings["pairs"][0]["cells"] if cell["family"] == "gemma2")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_difference_is_shown_whole(folders: dict[str, Path], name: str) -> None:
    """The first value in hex and decimal, its place, and how far all values lie apart."""
    text = (folders["identity"] / name).read_text(encoding="ascii").replace("*", "")
    text = re.sub(r"</?mark>", "", text)
    moved = difference(folders["identity"])
    first = moved["first"]
    for words in (f"0x{first['old_hex']}", f"0x{first['new_hex']}", f"token {first['token']}", "1 ULP apart"):
        assert words in text
    assert "decoded step 2" in text
    assert f"1/{moved['rows'][1]}" in text
    assert f"{moved['argmax'][0]}/{moved['argmax'][1]}" in text
    assert f"{moved['nats_max']:.4g} nats" in text


def test_the_record_of_many_builds_has_its_epochs(folders: dict[str, Path]) -> None:
    """The second build leaves the first one's class in one cell; the third did not finish there."""
    text = page_of(folders["identity"])
    epochs = text[text.index('<section id="epochs"') : text.index('<section id="verdict"')]
    assert re.findall(r"<td[^>]*>(.)", epochs) == ["a", "a", "a", "b", "a", "-"]
    assert epochs.count("begins here") == 1
    assert epochs.count("did not finish") == 1


STORED: dict[str, Callable[[str], bool]] = {
    IDENTITY: lambda text: (
        "Of 13 families that were asked 1 is DIFFERENT and 12 IDENTICAL." in text
        and "512 logits x 3 prompts x 9 rows" in text
        and "validation inheritable from" in text
    ),
    EPOCHS: lambda text: "It begins in prefill." in text and "begins here" in text,
    ACCURACY: lambda text: (
        "Within: 0 of 32768 rows beyond their bounds" in text
        and "covered by 338 clear winners" in text
        and "67 % of 0.8842" in text
    ),
    BEYOND: lambda text: (
        "Beyond: 1 of 8192 rows beyond their bounds" in text
        and "5 hold, 2 are refuted and 1 is not applicable" in text
        and "111 % of 0.1737; rows beyond: 1" in text
    ),
    BEYOND_MORE: lambda text: (
        "Beyond: 11 of 2560 rows beyond their bounds" in text
        and "5 hold, 2 are refuted and 1 is not applicable" in text
        and "155 % of 2.778; rows beyond: 3" in text
    ),
}


@pytest.mark.parametrize("run", STORED)
def test_stored_pages_say_what_the_records_hold(repository: Path, run: str) -> None:
    """The conclusion in one line, and the numbers behind it."""
    assert STORED[run](said(page_of(repository / "results" / run)))


def test_a_row_beyond_its_bound_is_named(folders: dict[str, Path]) -> None:
    """With the cell it is in, and the metric that is over."""
    text = said(page_of(folders["accuracy"]))
    assert text.count("Beyond: ") == 1
    assert "max_abs exceeds its bound" in text
    assert re.search(r"rows beyond", text)


def test_a_remedy_is_shown_with_its_line_its_bound_and_its_guilt(folders: dict[str, Path]) -> None:
    """And with what was not tried, and why."""
    text = said(page_of(folders["remedy"]))
    assert "no-repack remedies all of them." in text
    assert "llama-server -m fake --no-repack" in text
    assert "rate at most 0.95" in text
    assert "without it 1/1 before, 1/1 after" in text
    assert "--swa-full is nothing that the build says it knows" in text
    assert "start the server with no-repack : it remedies 2 of 2 conditions." in text
