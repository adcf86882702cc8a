"""One figure as SVG text that is the same bytes everywhere: no date, no random id, no machine's fonts or settings.

In goes a function that draws on a matplotlib figure, out comes an `svg` element to be put into a page. Colours are
roles (`INKS`) and become CSS variables of the page, so that one drawing serves light, dark and paper; text stays text,
in the page's font. matplotlib is loaded when the first figure is drawn, and its settings are put back afterwards.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup, escape

from audit.report.visible import terminal

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["INKS", "figure_svg", "ink", "label_text", "line_style", "mark_decades", "marker", "name_series", "place"]

# A role and the colour that stands for it while matplotlib draws; no other part of a drawing has these colours.
INKS = {
    "ink": "#000001",
    "muted": "#000002",
    "rule": "#000003",
    "paper": "#000004",
    "moved": "#000005",
    "token": "#000006",
    "same": "#000007",
    **{f"k{number}": f"#0000{number + 16:02x}" for number in range(6)},
}
_SETTINGS: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INKS["muted"],
    "axes.grid": True,
    "axes.labelcolor": INKS["muted"],
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INKS["ink"],
    "axes.titlelocation": "left",
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.unicode_minus": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "grid.color": INKS["rule"],
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "determinism",
    "text.color": INKS["ink"],
    "text.parse_math": False,
    "xtick.color": INKS["muted"],
    "ytick.color": INKS["muted"],
    "xtick.labelcolor": INKS["muted"],
    "ytick.labelcolor": INKS["ink"],
    "xtick.major.size": 2.5,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
}
_LABEL_MAX = 28
_MARKERS = "osD^vP"
_LINES = ("-", "--", "-.", ":")
_HUES = 6
_TAG = re.compile(r"<[^>]+>")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^")]+)')
_NOISE = ("; stroke-linecap: square", "; stroke-linejoin: miter", ' type="text/css"', " z ")


def label_text(text: str) -> str:
    """Return a label that any font can draw: printable ASCII, and not longer than a legend can bear."""
    shown = terminal(text)
    return shown if len(shown) <= _LABEL_MAX else f"{shown[: _LABEL_MAX - 3]}..."


def figure_svg(name: str, draw: Callable[["Figure"], None], *, width: float, height: float, alternative: str) -> Markup:
    """Draw a figure.

    Args:
        name: a word that makes the drawing's ids unlike those of another figure of the page.
        draw: gets the empty figure.
        width: in inches.
        height: in inches.
        alternative: says in words what the figure shows.
    """
    mpl = _matplotlib()
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - slow to load, and only needed here
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    written = io.StringIO()
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(width, height))
        draw(figure)
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(written, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _page_svg(written.getvalue(), name, alternative)


def _matplotlib() -> "ModuleType":
    """Load matplotlib without the documentation that it writes of its artists meanwhile, half of what loading costs."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to load, and only needed here
    from matplotlib import artist  # noqa: PLC0415 - the same

    known = vars(artist)["kwdoc"]
    vars(artist)["kwdoc"] = lambda _: ""
    try:
        import matplotlib.figure  # noqa: PLC0415 - loads all artists
    finally:
        vars(artist)["kwdoc"] = known
    return mpl


def place(figure: "Figure", *, left: float, right: float = 0.12, top: float = 0.12, bottom: float = 0.45) -> None:
    """Set the margins around the axes, in inches: fixed ones cost nothing, and do not depend on what is drawn."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left / width, right=1 - right / width, top=1 - top / height, bottom=bottom / height, wspace=0.22
    )


def ink(number: int) -> str:
    """Return the colour of the series with a number."""
    return INKS[f"k{number % _HUES}"]


def marker(number: int) -> str:
    """Return the shape of the series with a number."""
    return _MARKERS[number % len(_MARKERS)]


def line_style(number: int) -> str:
    """Return the dash pattern of the series with a number."""
    return _LINES[number % len(_LINES)]


def name_series(
    axes: "Axes",
    servers: Sequence[str],
    *,
    lines: bool = False,
    where: Literal["lower right", "upper left"] = "lower right",
) -> None:
    """Name the servers, where there are several."""
    if len(servers) < 2:  # noqa: PLR2004 - one server needs no legend
        return
    for number, server in enumerate(servers):
        shape = {"linestyle": line_style(number)} if lines else {"linestyle": "", "marker": marker(number)}
        axes.plot([], [], color=ink(number), label=label_text(server), markersize=4.5, **shape)  # type: ignore[arg-type]
    axes.legend(loc=where, fontsize=8)


def mark_decades(axis: Any, low: float, high: float, *, most: int = 12) -> None:  # noqa: ANN401 - an axis of matplotlib
    """Label powers of ten in plain digits, at most so many of them."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    every = 1 + (last - first) // most
    ticks = [10.0**power for power in range(first, last + 1, every)]
    axis.set_ticks(ticks, [_power(power) for power in range(first, last + 1, every)])
    axis.set_ticks([], minor=True)


def _power(power: int) -> str:
    return f"{10**power}" if 0 <= power <= 3 else f"{10.0**power:g}" if -3 <= power < 0 else f"1e{power}"  # noqa: PLR2004


def _page_svg(text: str, name: str, alternative: str) -> Markup:
    """Turn a whole SVG file into an element that lives in a page beside others."""
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, inner = body[: body.index(">")], body[body.index(">") + 1 : body.rindex("</svg>")]
    view = re.search(r'viewBox="([^"]+)"', head)
    used = {match[1] for tag in _TAG.findall(inner) for match in _REFERENCE.finditer(tag)}
    names = {old: f"{name}-{number}" for number, old in enumerate(sorted(used))}
    inner = _TAG.sub(lambda tag: _page_tag(tag[0], names), inner)
    inner = re.sub(r">\s+<", "><", inner).strip()
    head = f'<svg class="plot" viewBox="{view[1] if view else ""}" role="img" aria-labelledby="{name}-alt">'
    # A drawing of this module holds nothing that a record says but words, which matplotlib and `escape` made harmless.
    return Markup(f'{head}<title id="{name}-alt">{escape(alternative)}</title>{inner}</svg>')  # noqa: S704 - see above


def _page_tag(tag: str, names: dict[str, str]) -> str:
    """Shorten one tag: roles for colours, tenths of a point, and of all ids those that the drawing itself uses."""
    tag = re.sub(r"\s+", " ", tag.replace("xlink:href", "href"))
    tag = re.sub(r' id="([^"]*)"', lambda match: f' id="{names[match[1]]}"' if match[1] in names else "", tag)
    tag = _REFERENCE.sub(lambda match: match[0].replace(match[1], names[match[1]]), tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    tag = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), tag)
    for noise in _NOISE:
        tag = tag.replace(noise, "")
    for role, colour in INKS.items():
        tag = tag.replace(colour, f"var(--{role})")
    return tag.replace("'DejaVu Sans'", "var(--sans)")
