"""The site of docs/ builds without a warning, holds every page, and asks nothing of the network when it is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site_links import outside


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    # Without it the theme prints who will succeed it, which is no warning about these pages.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_every_page_is_in_the_site_and_in_its_contents(repository: Path, site: Path) -> None:
    """A page that the contents forget would be found by nobody."""
    contents = (repository / "mkdocs.yml").read_text(encoding="ascii").split("nav:")[1]
    pages = sorted(path.relative_to(repository / "docs").as_posix() for path in (repository / "docs").rglob("*.md"))
    assert [page for page in pages if not re.search(rf"(?<![\w/-]){re.escape(page)}", contents)] == []
    for page in pages:
        built = page.removesuffix("README.md") + "index.html" if page.endswith("README.md") else page[:-3] + ".html"
        assert (site / built).is_file(), page


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    """Style, script, font and picture are all in the site; an address is only ever something to click."""
    loading = re.compile(r'<(?:script|img|iframe|source|video)[^>]+src="?([^" >]+)|<link[^>]+href="?([^" >]+)')
    for page in site.rglob("*.html"):
        found = [one or other for one, other in loading.findall(page.read_text(encoding="utf-8"))]
        assert [address for address in found if re.match(r"(https?:)?//", address)] == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(\"?https?:|@import \"?https?:", style.read_text(encoding="utf-8")) == [], style


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("../reference/plan.md", "../reference/plan.md"),
        ("../../results/README.md", "https://github.com/determinism-audit/determinism/blob/main/results/README.md"),
        ("../../README.md#limits", "https://github.com/determinism-audit/determinism/blob/main/README.md#limits"),
    ],
)
def test_links_that_leave_the_site_lead_to_the_repository(link: str, shown: str) -> None:
    """And those inside stay as they are."""
    assert outside(link, "how-to/page.md") == shown
