"""The benches work at tiny size, and the page of performance shows exactly the stored facts.

No number that was measured is asserted: a loaded machine fails no test.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from scripts.bench import __main__ as program
from scripts.bench import alternatives, histories, page
from scripts.bench.catalogue import BENCHES
from scripts.bench.measure import Bench, Spent, paired
from scripts.bench.slopes import slope
from scripts.bench.synthetic import synthesize
from scripts.fault_cases.running import judge

LIVE = {"solo_and_waves", "full_vocabulary", "overhead"}


def spent(wall_s: float) -> Spent:
    """Return what a half took."""
    return Spent(wall_s=wall_s, cpu_s=wall_s, peak_mb=1.0)


def test_the_page_shows_the_stored_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """scripts/bench/page.py would change nothing, and has a row for each bench."""
    assert page.main(["--check"]) == 0
    assert capsys.readouterr().out == "up to date\n"
    text = page.PAGE.read_text(encoding="ascii")
    assert all(text.count(f"`python -m scripts.bench.{bench.name}` |\n") == 1 for bench in BENCHES)


def test_a_page_of_other_facts_is_not_up_to_date() -> None:
    """One digit more in a stored fact changes the page."""
    fact = {
        "bench": "help_text",
        "n": {"times": 5},
        "pairs": 5,
        "seconds": 1.0,
        "measures": {
            "wall_s": {
                **dict.fromkeys(("floor", "floor_low", "floor_high", "ours"), 1.0),
                **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), 1.25),
            }
        },
        "alone": {},
    }
    stored = json.loads(page.FACTS.read_text(encoding="ascii"))
    text = page.PAGE.read_text(encoding="ascii")
    assert "**1.25 x** (1.25 to 1.25)" in page.page_with(text, {**stored, "facts": [fact]})
    with pytest.raises(SystemExit, match="<!-- measured -->"):
        page.page_with(text.replace(page.BEGIN, ""), stored)


def test_pairs_alternate_and_give_the_median_of_their_ratios() -> None:
    """Odd pairs begin with ours, so that a machine that gets slower favours neither."""
    called: list[str] = []
    floors, ours = iter([1.0, 2.0, 4.0]), iter([2.0, 2.0, 12.0])

    def work(name: str, values: object) -> Spent:
        called.append(name)
        return spent(next(values))  # type: ignore[call-overload]

    fact = paired("x", lambda: work("floor", floors), lambda: work("ours", ours), pairs=3, n={})
    assert called == ["floor", "ours", "ours", "floor", "floor", "ours"]
    assert fact.measures["wall_s"]["ratio"] == 2.0
    assert (fact.measures["wall_s"]["ratio_low"], fact.measures["wall_s"]["ratio_high"]) == (1.0, 3.0)


def test_a_slope_is_one_where_cost_is_linear_and_two_where_it_is_square() -> None:
    """What the smallest size costs is taken off first."""
    sizes = [10, 100, 1000]
    assert slope(sizes, [5.0 + (size - 10) for size in sizes]) == pytest.approx(1.0)
    assert slope(sizes, [5.0 + (size - 10) ** 2 for size in sizes]) == pytest.approx(2.0)
    assert slope([10], [1.0]) is None


def test_a_synthetic_run_is_one_that_both_programs_judge_alike(tmp_path: Path) -> None:
    """It says that it is synthetic, its waves differ by one float32, and nothing contradicts."""
    judged = judge(synthesize(tmp_path / "run", 200))
    assert judged.disagreements == []
    assert judged.code == 0
    assert judged.verdicts["concurrent_greedy_c32"] == "token-identical"
    assert json.loads((tmp_path / "run" / "manifest.json").read_bytes())["program"]["version"] == "synthetic"


@pytest.mark.parametrize("bench", [bench for bench in BENCHES if bench.name not in LIVE], ids=lambda bench: bench.name)
def test_a_bench_works_at_tiny_size(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives finite numbers for all that it names."""
    monkeypatch.setattr(histories, "_KEPT", tmp_path)
    fact = bench.measure(1, dict(bench.tiny))
    assert fact.bench == bench.name
    numbers = [value for one in fact.measures.values() for value in one.values()] + list(fact.alone.values())
    assert numbers
    assert all(math.isfinite(number) for number in numbers)


@pytest.mark.live
@pytest.mark.parametrize("bench", [bench for bench in BENCHES if bench.name in LIVE], ids=lambda bench: bench.name)
def test_a_bench_of_a_real_server_works_at_tiny_size(bench: Bench) -> None:
    """The same on a model of random weights."""
    fact = bench.measure(1, dict(bench.tiny))
    assert all(math.isfinite(value) for one in fact.measures.values() for value in one.values())


def test_new_facts_replace_old_ones_in_the_order_of_the_table() -> None:
    """Those of other benches stay."""
    bench = next(one for one in BENCHES if one.name == "help_text")
    fact = paired("help_text", lambda: spent(1.0), lambda: spent(2.0), pairs=1, n=dict(bench.n))
    before = {"facts": [{"bench": "memory", "old": 1}, {"bench": "help_text", "old": 1}]}
    found = program.merged(before, [fact], "quiet")
    assert [one["bench"] for one in found["facts"]] == ["help_text", "memory"]
    assert found["facts"][0]["measures"]["wall_s"]["ratio"] == 2.0
    assert found["note"] == "quiet"


@pytest.mark.live
def test_every_alternative_says_what_it_stores_and_what_it_notices() -> None:
    """On a model of random weights, each loop sends what it should and judges by its own rule."""
    rows = alternatives.measure_models({"tiny-llama-f32": 1}, requests=2, steps=4)
    assert {row["tool"] for row in rows} == {tool.name for tool in alternatives.TOOLS}
    ours = next(row for row in rows if row["tool"] == "determinism")
    assert ours["kept_bytes"] > 0
    assert all(row["requests"] > 0 and row["kept_bytes"] == 0 for row in rows if row is not ours)
