"""Three plots of what moved: where it starts, how large it is, and why tokens survive it.

In goes the table of steps of an audit, out come plots: a question, an SVG element with words for who does not see it, a
caption, and the data as a table. A plot that has nothing to show is None. The plots of waves are in wave_plots.py, and
the map of the run in run_map.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from audit.report.figure import INKS, figure_svg, ink, label_text, line_style, mark_decades, marker, name_series, place
from audit.report.words import condition_words, counted, in_order, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["WIDTH", "Plot", "first_steps_plot", "margin_plot", "size_plot"]

WIDTH = 7.2
_BINS_A_DECADE = 8
_SHARES_DRAWN = 200
_SQUARE = np.array([(0.1, 0.1), (0.9, 0.1), (0.9, 0.9), (0.1, 0.9), (0.1, 0.1)])


class Plot(NamedTuple):
    """A question, the drawing that answers it, and what it was drawn from."""

    name: str
    question: str
    svg: Markup
    caption: str
    data: pd.DataFrame


def first_steps_plot(steps: pd.DataFrame, servers: Sequence[str]) -> Plot | None:
    """Draw the first step that differs, by condition."""
    first = steps[steps["moved"]].groupby(["server", "condition", "trial"], sort=False).first().reset_index()
    if first.empty:
        return None
    data = (
        first.groupby(["server", "condition", "step", "flipped"], sort=False)["trials"].sum().reset_index(name="trials")
    )
    conditions = in_order(list(data["condition"]))
    places = {condition: len(conditions) - 1 - place for place, condition in enumerate(conditions)}

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for number, server in enumerate(servers):
            own = data[data["server"] == server]
            lane = (number - (len(servers) - 1) / 2) * -0.28
            y, x = own["condition"].map(places) + lane, own["step"] + 1
            sizes = 12 + 10 * np.sqrt(own["trials"].to_numpy(dtype=float))
            faces = [INKS["paper"] if flipped else ink(number) for flipped in own["flipped"]]
            axes.scatter(x, y, s=sizes, marker=marker(number), c=faces, edgecolors=ink(number), linewidths=1.0)
        axes.set_xscale("log")
        known = [step for step in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096) if step <= data["step"].max()]
        axes.xaxis.set_ticks([step + 1 for step in known], [str(step) for step in known])
        axes.xaxis.set_ticks([], minor=True)
        axes.set_yticks(list(places.values()), [condition_words(condition) for condition in places])
        axes.set_ylim(-0.7, len(conditions) - 0.3)
        axes.set_xlim(0.85, (int(data["step"].max()) + 1) * 1.2)
        axes.set_xlabel("first step that differs")
        place(figure, left=2.25)
        name_series(axes, servers)

    at_once = int(data.loc[data["step"] == 0, "trials"].sum())
    total = int(data["trials"].sum())
    alternative = (
        f"Of {counted(total, 'moved trial')}, {at_once} differ from the first generated token on; "
        f"the latest first difference is at step {int(data['step'].max())}."
    )
    caption = "Larger marks stand for more trials. A hollow mark: the first difference is already another token."
    height = 0.9 + 0.3 * len(conditions)
    svg = figure_svg("first-steps", draw, width=WIDTH, height=height, alternative=alternative)
    data = data.assign(condition=pd.Categorical(data["condition"], conditions)).sort_values(
        ["server", "condition", "step"], kind="stable"
    )
    shown = data.rename(columns={"step": "first step", "flipped": "token differs"})
    return Plot("first-steps", "Where does divergence start?", svg, f"{alternative} {caption}", shown)


def size_plot(steps: pd.DataFrame, servers: Sequence[str]) -> Plot | None:
    """Draw the cumulative distribution of ULP and of nats."""
    known = steps[steps["moved"] & steps["ulp"].notna()].assign(size=lambda table: table["nats"].abs())
    if known.empty or not (known["size"] > 0).any():
        return None
    panels = (("ulp", "float32 values between the two (ULP)"), ("size", "change of the logprob in nats"))

    def draw(figure: "Figure") -> None:
        both = figure.subplots(1, 2, sharey=True)
        for axes, (column, title) in zip(both, panels, strict=True):
            values = known.loc[known[column] > 0, column].astype(float)
            for number, server in enumerate(servers):
                own = known[known["server"] == server].sort_values(column, kind="stable")
                if own.empty:
                    continue
                share = own["trials"].cumsum() / own["trials"].sum()
                kept = ~(share * _SHARES_DRAWN).astype(int).duplicated(keep="last")
                x = own[column].astype(float).clip(lower=values.min() / 2)
                axes.step(x[kept], share[kept], where="post", color=ink(number), linestyle=line_style(number))
            axes.set_xscale("log")
            axes.set_xlabel(title)
            mark_decades(axes.xaxis, float(values.min()), float(values.max()))
        both[0].set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "1/4", "1/2", "3/4", "1"])
        both[0].set_ylabel("share of moved steps")
        place(figure, left=0.55)
        name_series(both[0], servers, lines=True, where="upper left")

    rows = [_quantiles(server, known[known["server"] == server]) for server in servers]
    data = pd.DataFrame([row for row in rows if row["moved steps"]])
    alternative = "Median change of a moved step's logprob: " + listed(
        [
            f"{row['ULP, median']:,} ULP or {row['nats, median']:.2g} nats on {label_text(row['server'])}"
            for row in rows
            if row["moved steps"]
        ]
    )
    caption = (
        f"{alternative}. Counted are the steps of moved trials at which anything differs, up to the first other token; "
        "the logprob is that of the reference's token. Unchanged values, where only other tokens of the step moved, "
        "stand at the left edge."
    )
    svg = figure_svg("sizes", draw, width=WIDTH, height=2.7, alternative=f"{alternative}.")
    return Plot("sizes", "How large is it?", svg, caption, data)


def _quantiles(server: str, known: pd.DataFrame) -> dict[str, Any]:
    weights = known["trials"].to_numpy(dtype=int)
    ulps = np.sort(np.repeat(known["ulp"].to_numpy(dtype=np.int64), weights))
    nats = np.sort(np.repeat(known["size"].to_numpy(dtype=float), weights))
    row: dict[str, Any] = {"server": server, "moved steps": len(ulps)}
    for name, at in (("lowest tenth", 0.1), ("median", 0.5), ("highest tenth", 0.9), ("largest", 1.0)):
        place = min(len(ulps) - 1, int(at * len(ulps)))
        row |= {
            f"ULP, {name}": int(ulps[place]) if len(ulps) else 0,
            f"nats, {name}": nats[place] if len(ulps) else 0.0,
        }
    return row


def margin_plot(steps: pd.DataFrame, servers: Sequence[str]) -> Plot | None:
    """Draw margin against jitter of greedy trials, with the flips marked."""
    greedy = steps[~steps["sampled"] & steps["nats"].notna() & (steps["margin"] > 0)]
    greedy = greedy.assign(size=greedy["nats"].abs())
    greedy = greedy[greedy["size"] > 0]
    if greedy.empty:
        return None
    shown = [server for server in servers if (greedy["server"] == server).any()]

    def draw(figure: "Figure") -> None:
        panels = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
        (left, bottom), (right, top) = (greedy[["margin", "size"]].agg(edge).tolist() for edge in ("min", "max"))
        for axes, server in zip(panels, shown, strict=True):
            own = greedy[greedy["server"] == server]
            _density(axes, own[~own["flipped"]])
            flips = own[own["flipped"]]
            axes.scatter(flips["margin"], flips["size"], marker="x", s=22, c=INKS["moved"], linewidths=1.2)
            axes.plot(
                [min(left, bottom), right], [min(left, bottom), right], color=INKS["ink"], linewidth=0.8, linestyle="--"
            )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(label_text(server))
            axes.set_xlabel("margin of the two best tokens (nats)")
            mark_decades(axes.xaxis, left, right, most=16 // len(shown))
            mark_decades(axes.yaxis, bottom, top)
            axes.set_xlim(left / 2, right * 2)
            axes.set_ylim(bottom / 2, top * 2)
        panels[0].set_ylabel("jitter (nats)")
        place(figure, left=0.65, top=0.28)

    data = pd.DataFrame([_flips(server, greedy[greedy["server"] == server]) for server in shown])
    total, flips = int(greedy["trials"].sum()), int(greedy.loc[greedy["flipped"], "trials"].sum())
    widest = greedy.loc[greedy["flipped"], "margin"].max()
    alternative = f"At {flips:,} of {total:,} steps that moved, another token was chosen" + (
        f"; the widest margin that was overcome is {widest:.2g} nats." if flips else "."
    )
    caption = (
        f"{alternative} Squares: steps whose token survived, darker where there are more; crosses: another token was "
        "chosen. Left of the dashed line the change is larger than the margin."
    )
    svg = figure_svg("margins", draw, width=WIDTH, height=3.3, alternative=alternative)
    return Plot("margins", "Why do greedy tokens survive?", svg, caption, data)


def _density(axes: "Axes", points: pd.DataFrame) -> None:
    """Draw points as squares of a grid in four strengths, one path each, so that thousands of them stay small."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415 - loaded already by whoever draws
    from matplotlib.path import Path  # noqa: PLC0415 - the same

    places = np.floor(np.log10(points[["margin", "size"]]) * _BINS_A_DECADE).astype(int)
    bins = points.groupby([places["margin"], places["size"]])["trials"].sum()
    lower = bins.index.to_frame().to_numpy()
    strength = np.minimum(3, np.log2(bins.to_numpy(dtype=float)) // 2).astype(int)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
    for number in range(4):
        own = lower[strength == number]
        if len(own):
            corners = 10 ** ((own[:, np.newaxis] + _SQUARE) / _BINS_A_DECADE)
            path = Path(corners.reshape(-1, 2), np.tile(codes, len(own)))
            # Unlike `add_patch` this does not look for the ends of each square, which the axes do not go by.
            axes.add_artist(PathPatch(path, facecolor=INKS["ink"], edgecolor="none", alpha=0.16 + 0.2 * number))


def _flips(server: str, own: pd.DataFrame) -> dict[str, Any]:
    flips = own[own["flipped"]]
    return {
        "server": server,
        "moved steps": int(own["trials"].sum()),
        "another token": int(flips["trials"].sum()),
        "margin, median": float(own["margin"].median()),
        "jitter, median": float(own["size"].median()),
        "widest margin overcome": float(flips["margin"].max()) if len(flips) else None,
        "narrowest margin kept": float(own.loc[~own["flipped"], "margin"].min()),
    }
