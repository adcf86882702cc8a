"""Runs judged over Dask: to the bit what they are here, and errors as they are here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster

from audit.cli import _run
from audit.cluster import over_dask
from audit.errors import EvidenceError, UsageError
from audit.report.across import across
from audit.stream import canonical
from tests.unit.report.test_across import single

# Dask's own sockets and event loops are its own affair.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a scheduler and two workers, each a process of its own."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write four runs, of which some moved."""
    root = tmp_path_factory.mktemp("runs")
    for name, changed in (("a", ()), ("b", ("baseline/greedy/q",)), ("c", ()), ("d", ("repeat_greedy/q/0",))):
        single(root / name, name, *changed)
    return sorted(root.iterdir())


def test_over_dask_the_comparison_is_the_same_to_the_bit(address: str, folders: list[Path]) -> None:
    """Not a byte of the document differs, whichever worker judged which run."""
    assert canonical(across(folders, judge=lambda runs: over_dask(address, runs))) == canonical(across(folders))


def test_the_command_line_judges_over_dask(
    address: str, folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`across --dask ADDRESS` prints what `across` prints."""
    assert _run(["across", "--json", *map(str, folders)]) == 0
    here = json.loads(capsys.readouterr().out)
    assert _run(["across", "--json", "--dask", address, *map(str, folders)]) == 0
    assert json.loads(capsys.readouterr().out) == here


def test_a_run_that_contradicts_itself_is_refused_as_it_is_here(
    address: str, folders: list[Path], tmp_path: Path
) -> None:
    """The worker's error comes back as what it is, with its message."""
    broken = single(tmp_path / "broken", "x").folder
    history = broken / "history.jsonl"
    history.write_bytes(history.read_bytes().replace(b'"attempt":0', b'"attempt":1', 1))
    with pytest.raises(EvidenceError) as here:
        across([folders[0], broken])
    with pytest.raises(EvidenceError) as there:
        across([folders[0], broken], judge=lambda runs: over_dask(address, runs))
    assert there.value.message.rpartition("/")[2] == here.value.message.rpartition("/")[2]


def test_an_address_where_nobody_answers_is_told(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """So is a missing Dask; both name the flag's value and say what to do."""
    monkeypatch.setattr("audit.cluster._TIMEOUT_S", 0.5)
    with pytest.raises(UsageError, match="no scheduler answers there") as refused:
        over_dask("tcp://127.0.0.1:9", folders)
    assert "dask scheduler" in (refused.value.hint or "")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="is not installed") as missing:
        over_dask("tcp://127.0.0.1:9", folders)
    assert "[dask]" in (missing.value.hint or "")
