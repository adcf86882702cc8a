"""Take the pictures of a stored run's report that the README and the site show: light, dark, and 400 px wide.

In: the report of the authoritative run, and Chromium. Out: PNG files under docs/assets, with few colours so that each
stays below 400 kB. The fonts are those of this machine; TeX Gyre Pagella and Inter (Debian's fonts-texgyre and
fonts-inter) look as meant. It judges nothing and is no check: tests/browser looks at the page itself.

    python -m scripts.screenshots [--run FOLDER] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

REPOSITORY = Path(__file__).resolve().parents[1]
RUN = REPOSITORY / "results" / "2026-11-30-embedded-b11549"
OUT = REPOSITORY / "docs" / "assets"
SIZE_MAX = 400_000
COLOURS = 160
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Shot(NamedTuple):
    """One picture: its name, scheme, width, and the parts of the page that it shows, one below the other."""

    name: str
    scheme: Literal["light", "dark"]
    width: int
    height: int
    begin: str


SHOTS = (
    Shot("report-light", "light", 1240, 1500, "#conclusion"),
    Shot("report-cells", "light", 1240, 1500, "#cells"),
    Shot("report-map", "light", 1240, 1200, "#map"),
    Shot("report-margins", "light", 1240, 620, "#margins"),
    Shot("report-dark", "dark", 1240, 1500, "#map"),
    Shot("report-narrow", "light", 400, 1500, "#conclusion"),
)


def picture(browser: Browser, page: Path, shot: Shot) -> bytes:
    """Return one picture as PNG."""
    size: ViewportSize = {"width": shot.width, "height": shot.height}
    context = browser.new_context(viewport=size, color_scheme=shot.scheme, device_scale_factor=1.5)
    opened = context.new_page()
    opened.goto(page.as_uri())
    if shot.begin != "#conclusion":
        opened.evaluate("name => document.querySelector(name).scrollIntoView({behavior: 'instant'})", shot.begin)
    taken = opened.screenshot()
    context.close()
    return taken


def small(data: bytes) -> bytes:
    """Return a PNG with few colours, which is enough for text and flat drawings."""
    from PIL import Image  # noqa: PLC0415 - matplotlib brings it

    written = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        written, format="PNG", optimize=True
    )
    return written.getvalue()


def main(arguments: list[str] | None = None) -> int:
    """Take every picture; return 1 where Chromium is missing or a picture is too large."""
    parser = argparse.ArgumentParser(description="Take the pictures of a report.")
    parser.add_argument("--run", type=Path, default=RUN, help="a run folder with report.html")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder to write into")
    options = parser.parse_args(arguments)
    program = shutil.which("chromium")
    if program is None:
        print("error: chromium is not installed", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only to take pictures

    options.out.mkdir(parents=True, exist_ok=True)
    large = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        for shot in SHOTS:
            data = small(picture(browser, options.run.resolve() / "report.html", shot))
            (options.out / f"{shot.name}.png").write_bytes(data)
            large += len(data) > SIZE_MAX
            print(f"{shot.name}.png  {len(data)} bytes{'  too large' if len(data) > SIZE_MAX else ''}")
        browser.close()
    return int(large > 0)


if __name__ == "__main__":
    sys.exit(main())
