"""Two plots of waves: did their requests overlap, and how does divergence grow with concurrency.

In go the processing windows of one wave a server and the cells of an audit, out come plots as in plots.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from audit.report.figure import INKS, figure_svg, ink, label_text, line_style, marker, name_series, place
from audit.report.plots import WIDTH, Plot
from audit.report.words import CONTROL, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["growth_plot", "overlap_plot"]

_NS_PER_MS, _NS_PER_S = 1e6, 1e9


def overlap_plot(waves: Mapping[str, pd.DataFrame]) -> Plot | None:
    """Draw the processing windows of one wave a server.

    Args:
        waves: for each server the members of one wave with `slot`, `prefill_ns`, `begin_ns` and `end_ns`.
    """
    if not waves:
        return None

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(1, len(waves), squeeze=False)[0]
        for axes, (server, members) in zip(panels, waves.items(), strict=True):
            zero = members["begin_ns"].min()
            edges = (members[["begin_ns", "prefill_ns", "end_ns"]].to_numpy() - zero) / _NS_PER_S
            # Two bars a member, all in one call: each looks through the axes anew.
            bars = axes.barh(
                np.repeat(members["slot"], 2), np.diff(edges).ravel(), left=edges[:, :2].ravel(), height=0.5,
                color=[INKS["muted"], INKS["k0"]] * len(members),
            )  # fmt: skip
            for prefill in bars[::2]:
                prefill.set_alpha(0.55)
            begin, end = edges[:, 0].max(), edges[:, 2].min()
            if begin < end:
                axes.axvspan(begin, end, color=INKS["ink"], alpha=0.07, linewidth=0)
            axes.set_title(label_text(server))
            axes.set_xlabel("seconds since the first window began")
            axes.set_yticks(sorted(set(members["slot"])))
            axes.invert_yaxis()
        panels[0].set_ylabel("slot")
        place(figure, left=0.45, top=0.28)

    data = pd.concat(
        [
            pd.DataFrame({
                "server": server,
                "trial": members["trial"],
                "slot": members["slot"],
                "prefill, ms": (members["prefill_ns"] - members["begin_ns"]) / _NS_PER_MS,
                "window, ms": (members["end_ns"] - members["begin_ns"]) / _NS_PER_MS,
                "begins after the first, ms": (members["begin_ns"] - members["begin_ns"].min()) / _NS_PER_MS,
            }).round(3)
            for server, members in waves.items()
        ]
    )  # fmt: skip
    said = [
        f"{len(members)} windows on {label_text(server)} share "
        f"{max(0.0, members['end_ns'].min() - members['begin_ns'].max()) / _NS_PER_MS:,.0f} ms, the shortest lasts "
        f"{(members['end_ns'] - members['begin_ns']).min() / _NS_PER_MS:,.0f} ms"
        for server, members in waves.items()
    ]
    alternative = f"The {listed(said)}."
    caption = (
        f"{alternative} One wave a server, the first of the largest level that took place: grey is prefill, "
        "coloured is decoding, shaded is the time that all windows share. A window ends with the reply's last byte."
    )
    height = 0.9 + 0.19 * max(len(members) for members in waves.values())
    svg = figure_svg("overlap", draw, width=WIDTH, height=height, alternative=alternative)
    return Plot("overlap", "Did the requests overlap?", svg, caption, data)


def growth_plot(
    cells: Sequence[Mapping[str, Any]], servers: Sequence[str], judged: Callable[[str], bool]
) -> Plot | None:
    """Draw the rate of moved waves by level with exact bounds.

    Args:
        cells: the cells of the findings.
        servers: the labels in run order.
        judged: tells whether a verdict stands on evidence.
    """
    kinds = {"concurrent_greedy": "greedy", "concurrent_seeded": "sampled with a fixed seed"}
    rows = [
        {
            "server": cell["server"],
            "kind": kinds[family],
            "level": int(level),
            "waves moved": cell["by_wave"]["divergent"],
            "waves": cell["by_wave"]["n"],
            "low": cell["by_wave"]["low"],
            "high": cell["by_wave"]["high"],
        }
        for cell in cells
        if not cell["condition"].startswith(CONTROL) and judged(cell["verdict"])
        for family, _, level in [cell["condition"].rpartition("_c")]
        if family in kinds and cell["by_wave"]["n"]
    ]
    if not rows:
        return None
    data = pd.DataFrame(rows)
    levels = sorted(set(data["level"]))

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for number, server in enumerate(servers):
            for kind, face in zip(kinds.values(), (ink(number), INKS["paper"]), strict=True):
                own = data[(data["server"] == server) & (data["kind"] == kind)].sort_values("level")
                if own.empty:
                    continue
                rate = own["waves moved"] / own["waves"]
                x = own["level"].map(levels.index) + (number - (len(servers) - 1) / 2) * 0.08
                axes.vlines(x, own["low"], own["high"], color=ink(number), linewidth=1.2)
                axes.plot(x, rate, marker=marker(number), markersize=5.5, markerfacecolor=face, color=ink(number),
                          linestyle=":" if face == INKS["paper"] else line_style(number), linewidth=0.9)  # fmt: skip
        axes.set_xticks(range(len(levels)), [str(level) for level in levels])
        axes.set_xlim(-0.6, len(levels) - 0.4)
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "1/4", "1/2", "3/4", "1"])
        axes.set_xlabel("equal requests at once")
        axes.set_ylabel("waves in which a logprob moved")
        place(figure, left=0.55)
        name_series(axes, servers)

    said = [f"{row['waves moved']} of {row['waves']} at {row['level']} on {label_text(row['server'])}" for row in rows]
    alternative = f"Waves in which a logprob moved: {listed(said)}."
    caption = (
        "Bars are exact 95 % bounds over waves, whose members share a batch. Hollow marks: sampled with a fixed seed."
    )
    svg = figure_svg("growth", draw, width=WIDTH, height=2.9, alternative=alternative)
    return Plot("growth", "How does it grow with concurrency?", svg, caption, data)
