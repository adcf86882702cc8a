"""Findings as text: counts with their n, verdicts with reasons, a refuted prediction as plain as one that holds."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from audit.analyse import findings
from audit.report.text import findings_text, table_text, verdict_code
from tests.unit.analyse.simulated import CONTROLS, Subject, moved, plan_of, write

PLAN = plan_of(
    {"name": "repeat_greedy", "count": 3},
    {"name": "other_slot", "levels": [2]},
    {"name": "concurrent_greedy", "levels": [2, 8], "count": 2},
    {"name": "stream_vs_whole", "count": 2},
    {"name": "restart"},
    *CONTROLS,
)
WAVE = "concurrent_greedy_c2/p/0/w0"
BOUNDS = re.compile(r"(\d+)/(\d+) \[(\d\.\d+), (\d\.\d+)\]")
JUDGED = {"identical", "token-identical", "divergent"}


def prediction(status: str, k: int, n: int) -> dict[str, Any]:
    """Return the entry of a prediction."""
    name = f"P-{status.replace(' ', '-')}"
    return {"id": name, "statement": f"It is {status}.", "status": status, "k": k, "n": n, "cells": []}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return findings of two servers.

    On `a` one wave moved, on `b` a repeat did, and its metrics are off; neither has eight slots or is ours to restart.
    """
    one, other = (Subject(plan=PLAN, label=label, owned=False) for label in ("a", "b"))
    one.streams[f"{WAVE}/0"] = lambda stream: moved(stream, 3)
    other.streams["repeat_greedy/p/1"] = lambda stream: moved(stream, 3)
    other.metrics = False
    found = findings(write(tmp_path_factory.mktemp("text") / "run", one, other))
    found["predictions"] = [
        prediction("holds", 3, 3),
        prediction("refuted", 2, 3),
        prediction("inconclusive", 0, 0),
        prediction("not applicable", 0, 0),
    ]
    return found


def section(text: str, title: str) -> list[str]:
    """Return the lines below a title, up to the next empty line."""
    (body,) = (part for part in text.split("\n\n") if part.startswith(title))
    return body.splitlines()[1:]


def row(text: str, title: str, *words: str) -> str:
    """Return the one line of a section that holds all of these words."""
    (found,) = (line for line in section(text, title) if set(words) <= set(line.split()))
    return found


def test_it_is_ascii_in_lines_without_trailing_spaces(document: dict[str, Any]) -> None:
    """Fit to paste into an issue, and the same text for the same findings."""
    text = findings_text(document)
    assert text.isascii()
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert findings_text(copy.deepcopy(document)) == text


def test_every_cell_has_a_line_with_its_counts(document: dict[str, Any]) -> None:
    """Server and condition, k/n at both levels, and the waves that moved with both bounds."""
    text = findings_text(document)
    lines = section(text, "cells:")[1:]
    assert len(lines) == len(document["cells"])
    for cell, line in zip(document["cells"], lines, strict=True):
        assert line.startswith(cell["verdict"])
        assert f"  {cell['server']}  " in line
        assert {cell["condition"]} <= set(line.split())
        assert f"{cell['logprob_identical']}/{cell['usable']}" in line.split()
        assert f"{cell['token_identical']}/{cell['usable']}" in line.split()
        rate = cell["by_wave"]
        if rate["n"]:
            found = BOUNDS.search(line)
            assert found is not None
            assert (int(found[1]), int(found[2])) == (rate["divergent"], rate["n"])
            assert (float(found[3]), float(found[4])) == pytest.approx((rate["low"], rate["high"]), abs=0.001)


def test_a_moved_wave_shows_what_moved_first(document: dict[str, Any]) -> None:
    """The step, how many float32 values lie between, and the difference in nats with its sign."""
    line = row(findings_text(document), "cells:", "a", "concurrent_greedy_c2")
    assert line.startswith("token-identical  ")
    assert "3/4" in line.split()
    assert "  1/2 [0.01" in line
    assert "step 3 rank -1 1 ulp +" in line
    assert row(findings_text(document), "cells:", "a", "stream_vs_whole").endswith("  -")


def test_qualifiers_stand_beside_the_verdict(document: dict[str, Any]) -> None:
    """Weak evidence is said where the verdict is read."""
    text = findings_text(document)
    assert row(text, "cells:", "b", "control_seed").startswith("divergent (weak)  ")
    assert row(text, "cells:", "a", "control_seed").startswith("divergent  ")


def test_a_difference_of_tokens_or_length_is_named(document: dict[str, Any]) -> None:
    """A witness without two values shows no distance."""
    changed = copy.deepcopy(document)
    cell = next(one for one in changed["cells"] if one["condition"] == "concurrent_greedy_c2")
    cell["witness"].update(level="length", step=7, ulp=None, nats=None)
    assert row(findings_text(changed), "cells:", "a", "concurrent_greedy_c2").endswith("  step 7 rank -1 (length)")
    cell["witness"].update(level="token", ulp=12, nats=-0.25)
    line = row(findings_text(changed), "cells:", "a", "concurrent_greedy_c2")
    assert line.endswith("  step 7 rank -1 12 ulp -0.25 nats (token)")


def test_every_odd_verdict_is_explained(document: dict[str, Any]) -> None:
    """Vacuous, not run, unstable: one sentence each, and none for a cell with a plain result."""
    odd = [cell for cell in document["cells"] if cell["verdict"] not in JUDGED]
    assert {cell["verdict"] for cell in odd} == {"vacuous", "not run", "unstable"}
    expected = [f"{cell['server']} {cell['condition']}: {cell['reason']}" for cell in odd]
    assert section(findings_text(document), "why") == expected
    assert "a restart: None of the 1 planned trials was completed." in expected


def test_a_refuted_prediction_is_as_plain_as_one_that_holds(document: dict[str, Any]) -> None:
    """One table in the registered order: status first, then k/n, then the statement, for each status alike."""
    header, *lines = section(findings_text(document), "predictions")
    assert header.split() == ["status", "id", "k/n", "statement"]
    places = [header.index(name) for name in ("status", "id", "k/n", "statement")]
    cut = [[line[start:end].strip() for start, end in zip(places, [*places[1:], None], strict=True)] for line in lines]
    assert cut == [
        ["holds", "P-holds", "3/3", "It is holds."],
        ["refuted", "P-refuted", "2/3", "It is refuted."],
        ["inconclusive", "P-inconclusive", "0/0", "It is inconclusive."],
        ["not applicable", "P-not-applicable", "0/0", "It is not applicable."],
    ]


def test_the_instrument_shows_every_check_of_every_server(document: dict[str, Any]) -> None:
    """Status and k/n, for those that held as for those that did not."""
    changed = copy.deepcopy(document)
    changed["instrument"][1].update(status="failed", k=2)
    _, *lines = section(findings_text(changed), "the instrument")
    assert [line.split() for line in lines] == [
        [entry["status"], entry["server"], entry["check"], f"{entry['k']}/{entry['n']}"]
        for entry in changed["instrument"]
    ]
    assert lines[1].startswith("failed ")


def test_servers_are_pooled_only_where_there_are_two(document: dict[str, Any]) -> None:
    """One server pools nothing."""
    text = findings_text(document)
    pooled = document["pooled"]
    assert [line.split()[0] for line in section(text, "pooled over servers")[1:]] == [e["condition"] for e in pooled]
    assert row(text, "pooled over servers", "stream_vs_whole").split()[1:3] == ["4/4", "4/4"]
    alone = {**document, "cells": [cell for cell in document["cells"] if cell["server"] == "a"]}
    assert "pooled over servers" not in findings_text(alone)


def test_claims_about_waves_have_their_n(document: dict[str, Any]) -> None:
    """Kind, level and number of waves, and k/n of each claim; what was not planned has no section."""
    text = findings_text(document)
    lines = [line.split() for line in section(text, "claims about waves")[1:]]
    assert lines == [
        [
            entry["server"],
            entry["kind"],
            f"c{entry['level']}",
            f"n={entry['waves']}",
            *(
                f"{entry[name]['k']}/{entry[name]['n']}"
                for name in ("repeatable", "wave_independent", "batch_invariant")
            ),
        ]
        for entry in document["waves"]
    ]
    assert ["a", "greedy", "c2", "n=2", "0/0", "0/1", "0/1"] in lines
    without = findings_text({**document, "waves": [], "predictions": [], "thresholds": []})
    assert all(title not in without for title in ("claims about waves", "predictions", "threshold"))


def test_the_last_line_counts_the_verdicts(document: dict[str, Any]) -> None:
    """The conclusion first, each verdict with its number, and why the run is exploratory."""
    last = findings_text(document).splitlines()[-1]
    counts: dict[str, int] = {}
    for cell in document["cells"]:
        counts[cell["verdict"]] = counts.get(cell["verdict"], 0) + 1
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts))
    assert last == f"sound: {len(document['cells'])} cells ({told}); exploratory: not registered"
    registered = findings_text({**document, "conclusion": "inconclusive", "exploratory": None})
    assert registered.splitlines()[-1] == f"inconclusive: {len(document['cells'])} cells ({told})"


@pytest.mark.parametrize(
    ("sound", "statuses", "plain", "strict"),
    [
        (True, [], 0, 0),
        (True, ["holds", "not applicable"], 0, 0),
        (True, ["holds", "refuted"], 0, 1),
        (True, ["inconclusive", "holds"], 0, 3),
        # A refutation is an answer, whatever stays open beside it.
        (True, ["inconclusive", "refuted"], 0, 1),
        # Nothing follows from a record that is not sound.
        (False, [], 3, 3),
        (False, ["refuted"], 3, 3),
        (False, ["holds"], 3, 3),
    ],
)
def test_the_exit_code_speaks_of_the_record(*, sound: bool, statuses: list[str], plain: int, strict: int) -> None:
    """Only --assert turns predictions into a code, and only on a sound record."""
    found = {"sound": sound, "predictions": [prediction(status, 1, 2) for status in statuses]}
    assert verdict_code(found, strict=False) == plain
    assert verdict_code(found, strict=True) == strict


def test_columns_are_aligned_at_the_widest_value() -> None:
    """Two spaces between columns; a header can be the widest; the last column ends the line."""
    rows = [{"k/n": "3/10", "condition": "a"}, {"k/n": "30/100", "condition": "bb"}]
    assert table_text(rows) == "k/n     condition\n3/10    a\n30/100  bb\n"


def test_numbers_are_shown_as_they_are() -> None:
    """A count is aligned like a word."""
    assert table_text([{"n": 1, "x": 0.5}, {"n": 20, "x": 1.25}]) == "n   x\n1   0.5\n20  1.25\n"


def test_no_rows_are_no_table() -> None:
    """An empty section has no header."""
    assert table_text([]) == ""


def test_the_text_of_a_run_stands_on_its_own(document: dict[str, Any], tmp_path: Path) -> None:
    """Written to a file and read again it is the same: nothing in it depends on a terminal."""
    path = tmp_path / "report.txt"
    path.write_text(findings_text(document), encoding="ascii")
    assert path.read_text(encoding="ascii") == findings_text(document)
    assert "\x1b" not in findings_text(document)
