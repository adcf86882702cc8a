"""The plots of waves draw what their tables and captions say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from audit.report import wave_plots

S = 1_000_000_000


def test_windows_and_the_time_that_they_share_are_in_the_seconds_of_their_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three windows of 2 to 4 s, of which the last second and a half of the first are shared by all."""
    drawn: list[Callable[[Figure], None]] = []

    def keep(_name: str, draw: Callable[[Figure], None], **_: Any) -> str:  # noqa: ANN401 - what a figure is given
        drawn.append(draw)
        return ""

    monkeypatch.setattr(wave_plots, "figure_svg", keep)
    members = pd.DataFrame({
        "trial": ["a", "b", "c"],
        "slot": [0, 1, 2],
        "begin_ns": [7 * S, 7 * S + S // 4, 7 * S + S // 2],
        "prefill_ns": [7 * S + S // 2, 8 * S, 8 * S],
        "end_ns": [9 * S, 11 * S, 10 * S],
    })  # fmt: skip
    plot = wave_plots.overlap_plot({"small": members})
    assert plot is not None
    figure = Figure()
    drawn[0](figure)
    (axes,) = figure.axes
    *bars, shared = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]  # type: ignore[attr-defined]
    assert bars == [(0.0, 0.5), (0.5, 2.0), (0.25, 1.0), (1.0, 4.0), (0.5, 1.0), (1.0, 3.0)]
    assert shared == (0.5, 2.0)
    assert axes.get_xlabel() == "seconds since the first window began"
    assert "share 1,500 ms" in plot.caption
