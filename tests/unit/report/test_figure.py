"""A figure is the same bytes for the same data, and lives beside others in a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import matplotlib as mpl
import pytest

from audit.report.figure import INKS, figure_svg, mark_decades
from tests.unit.report.reported import HOSTILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(figure: Figure) -> None:
    """Draw lines, clipped marks and a label that looks like code."""
    axes = figure.subplots()
    axes.plot([1, 2, 3], [0.12345, 0.2, 0.3], color=INKS["k0"])
    axes.scatter([1, 2], [0.1, 0.2], marker="x", c=INKS["moved"])
    axes.text(1, 0.2, '<b id="x">3.14159 #000001 $y_1$ url(#z)')
    mark_decades(axes.xaxis, 1.0, 3.0)


def svg(name: str = "one") -> str:
    """Return the figure."""
    return str(figure_svg(name, draw, width=3, height=2, alternative="A line & <marks>."))


def test_the_same_figure_twice_is_the_same_bytes() -> None:
    """No date, no random id, and no setting of this process takes part."""
    first = svg()
    mpl.rcParams["svg.hashsalt"] = "another"
    mpl.rcParams["lines.linewidth"] = 9.0
    try:
        assert svg() == first
        assert mpl.rcParams["lines.linewidth"] == 9.0
    finally:
        mpl.rcdefaults()
    assert "metadata" not in first


def test_matplotlib_documents_its_artists_again_once_it_is_loaded() -> None:
    """What is left out while it loads is there for whoever uses it later."""
    from matplotlib.artist import kwdoc
    from matplotlib.lines import Line2D

    svg()
    assert "linewidth" in kwdoc(Line2D)


def test_ids_are_the_figures_own_and_each_is_used() -> None:
    """Two figures of a page share no id, and every reference leads to one of its own."""
    for name in ("one", "two"):
        ids = re.findall(r' id="([^"]+)"', re.sub(r">[^<]*<", "><", svg(name)))
        assert len(ids) == len(set(ids))
        assert all(one.startswith(f"{name}-") for one in ids)
        assert set(re.findall(r'(?:href="|url\()#([\w-]+)', re.sub(r">[^<]*<", "><", svg(name)))) <= set(ids)


def test_colours_are_roles_and_text_is_untouched_text() -> None:
    """A page decides what ink is; words in a figure are neither rounded nor recoloured, and open no tag."""
    drawn = svg()
    assert re.findall(r"(?:fill|stroke): #\w+", drawn) == []
    assert "var(--k0)" in drawn
    assert "3.14159 #000001 $y_1$ url(#z)" in drawn
    assert "<b " not in drawn
    assert '<title id="one-alt">A line &amp; &lt;marks&gt;.</title>' in drawn
    assert 'role="img" aria-labelledby="one-alt"' in drawn


@pytest.mark.parametrize("text", [HOSTILE, "\U0001f600" * 50, ""])
def test_a_hostile_label_is_drawn_without_a_warning(text: str) -> None:
    """A label is made fit before it is drawn; warnings are errors here."""
    from audit.report.figure import label_text

    def labelled(figure: Figure) -> None:
        figure.subplots().set_title(label_text(text))

    assert "<script" not in figure_svg("x", labelled, width=2, height=1, alternative=text)
