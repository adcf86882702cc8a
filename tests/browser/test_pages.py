"""The pages in a real browser: silent, asking for nothing, readable by everyone, on any screen and on paper.

Chromium is Debian's; a machine without it lists these tests as NOT RUN. Nothing here reaches beyond this machine: a
page is a file, and every request that it would make is an error.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OTHERS = ("identity", "hostile identity", "accuracy", "hostile accuracy", "hostile remedy")
NAMES = ("stored", "eventful", "hostile", "across", *OTHERS)


@contextmanager
def opened(
    browser: Browser, path: Path, *, width: int = 1400, dark: bool = False, scripts: bool = True
) -> Iterator[tuple[Page, list[str]]]:
    """Open a page; yield it with the list of everything that it should not have done."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    complaints: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: complaints.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    assert complaints.pop(0) == f"request: {path.as_uri()}"
    yield page, complaints
    context.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_silent_and_asks_for_nothing(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """No message on the console, no error, no dialog, no second request, whatever is used and on any screen."""
    for width, dark in ((1400, False), (400, True)):
        with opened(browser, pages[name], width=width, dark=dark) as (page, complaints):
            if page.locator("#show").count():
                page.select_option("#show", "identical")
                assert page.locator(".matrix tr[data-verdicts]:visible").count() > 0
                page.click("#fold")
            assert page.locator("#witnesses details:not([open])").count() == 0
            page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
            assert complaints == []


@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_its_screen(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """What is wide scrolls by itself; the page does not, with everything unfolded."""
    with opened(browser, pages[name]) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        for width in (1400, 768, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", NAMES)
def test_anchors_lead_somewhere(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """Every link of the page names an element, and following one shows it."""
    with opened(browser, pages[name]) as (page, _):
        lost = page.evaluate(
            "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
            ".filter(name => !document.getElementById(name))"
        )
        assert lost == []
        links = page.locator("article.witness a")
        if links.count():
            links.first.click()
            target = page.evaluate("decodeURIComponent(location.hash.slice(1))")
            assert page.evaluate("document.querySelector(':target').id") == target
            assert page.evaluate(
                "(() => { const box = document.querySelector(':target').getBoundingClientRect();"
                " return box.bottom > 0 && box.top < innerHeight })()"
            )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["stored", "hostile", "across", *OTHERS])
def test_axe_finds_no_violation(browser: Browser, pages: dict[str, Path], name: str, *, dark: bool) -> None:
    """Names, roles, order, contrast: nothing that axe-core knows is wrong; smaller pages with everything unfolded."""
    with opened(browser, pages[name], dark=dark) as (page, _):
        if name != "stored":
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found: dict[str, Any] = Axe().run(page).response
        assert {one["id"]: one["nodes"][0]["html"][:200] for one in found["violations"]} == {}
        assert len(found["passes"]) > 10


def test_dark_is_dark_and_light_is_light(browser: Browser, pages: dict[str, Path]) -> None:
    """The ground follows the reader's scheme, and so does ink inside the plots."""
    grounds = {}
    for dark in (False, True):
        with opened(browser, pages["stored"], dark=dark) as (page, _):
            read = "getComputedStyle(document.body).backgroundColor"
            ground = [int(part) for part in re.findall(r"\d+", page.evaluate(read))[:3]]
            text = page.evaluate("getComputedStyle(document.querySelector('svg.plot text')).fill")
            ink = [int(part) for part in re.findall(r"\d+", text)[:3]]
            grounds[dark] = (sum(ground), sum(ink))
    (light, dark_ink), (dark_ground, light_ink) = grounds[False], grounds[True]
    assert light > 700
    assert dark_ink < 400
    assert dark_ground < 150
    assert light_ink > 350


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_readable_without_scripts(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """Everything is there; only the parts that need a script are not shown."""
    with opened(browser, pages[name], scripts=False) as (page, complaints):
        assert page.locator("main section").count() >= 1
        assert page.locator(".tools:visible").count() == 0
        assert page.locator("h1").is_visible()
        assert complaints == []


@pytest.mark.parametrize("name", ["stored", "hostile"])
def test_a_page_prints_to_a4(browser: Browser, pages: dict[str, Path], name: str, tmp_path: Path) -> None:
    """As a PDF of A4 pages, light whatever the screen is, with the tables of the witnesses unfolded."""
    with opened(browser, pages[name], dark=True) as (page, complaints):
        data = page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.locator("article.witness table.topk").first.is_visible()
        assert not page.locator("nav").is_visible()
        assert complaints == []
    assert data.startswith(b"%PDF-")
    boxes = {tuple(round(float(part)) for part in box.split()) for box in re.findall(rb"/MediaBox \[([^\]]+)\]", data)}
    assert boxes == {(0, 0, 595, 842)}


@pytest.mark.parametrize("name", ["hostile", "hostile identity", "hostile accuracy"])
def test_hostile_text_is_seen_and_does_nothing(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """No element of a record's making exists, no script of it ran, and its text can be read."""
    with opened(browser, pages[name]) as (page, complaints):
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1
        assert page.locator("a[href^='javascript']").count() == 0
        assert "<script>alert(1)</script>" in page.inner_text("body")
        assert "\\x1b[31m" in page.inner_text("body")
        assert complaints == []


@pytest.mark.parametrize("name", OTHERS)
def test_pages_of_other_kinds_print_light_on_a4(
    browser: Browser, pages: dict[str, Path], name: str, tmp_path: Path
) -> None:
    """Whatever the screen is, and without what only a screen can use."""
    with opened(browser, pages[name], dark=True) as (page, complaints):
        data = page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator("nav").is_visible()
        assert complaints == []
    boxes = {tuple(round(float(part)) for part in box.split()) for box in re.findall(rb"/MediaBox \[([^\]]+)\]", data)}
    assert boxes == {(0, 0, 595, 842)}


def test_a_cell_leads_to_its_difference_and_back(browser: Browser, pages: dict[str, Path]) -> None:
    """Following the link of a differing cell shows the value, and the value names its cell."""
    with opened(browser, pages["identity"]) as (page, _):
        page.locator(".cells a").first.click()
        target = page.locator(":target")
        assert target.locator("mark").count() == 4
        target.locator("h3 a").click()
        assert "0/27 rows equal" in page.locator(":target").inner_text()


def test_the_policy_stops_what_escaping_would_let_through(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Even with a script and an image planted into the page, the one does not run and the other is never fetched."""
    text = pages["eventful"].read_text(encoding="ascii")
    planted = tmp_path / "planted.html"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        evil = f'<script>document.title = "ran"</script><img src="{address}" alt="x" onerror="document.title = 1">'
        planted.write_text(text.replace("<main", f"{evil}<main", 1), encoding="ascii")
        with opened(browser, planted) as (page, complaints):
            assert page.title() == "Audit of a and b"
            refused = [line for line in complaints if "Content Security Policy" in line]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert len(refused) >= 2


def test_every_plot_of_the_stored_run_has_a_text_alternative(browser: Browser, pages: dict[str, Path]) -> None:
    """As a reader without eyes meets it: a named image each, and a named group each stave of the map."""
    with opened(browser, pages["stored"]) as (page, _):
        named = page.evaluate(
            "[...document.querySelectorAll('svg[role=img]')].map(one => document.getElementById("
            "one.getAttribute('aria-labelledby')).textContent)"
        )
        assert len(named) == 5
        assert all(re.search(r"\d", words) for words in named)
        labels = page.evaluate("[...document.querySelectorAll('svg.map[role=group]')].map(one => one.ariaLabel)")
        assert len(labels) > 10
        assert all("requests" in label for label in labels)


def test_the_stored_page_is_small_enough(pages: dict[str, Path]) -> None:
    """Below 2 MB, as it is on disk."""
    assert max(pages[name].stat().st_size for name in OTHERS) < 500_000
    assert 100_000 < pages["stored"].stat().st_size < 2_000_000
