"""What the browser tests share: Debian's Chromium, and pages of stored and made-up runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from audit.report import derive
from audit.report.across import across, across_page_context
from audit.report.render import html_page
from scripts.screenshots import ARGUMENTS
from tests.integration.other_kinds import hostile_accuracy, hostile_identity, hostile_remedy
from tests.unit.report.reported import eventful, hostile

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AUTHORITATIVE = "2026-11-30-embedded-b11549"
OTHER_KINDS = {
    "identity": "2026-11-30-identity-source-one-ulp",
    "accuracy": "2026-11-30-accuracy-tiny-llama-q4_0",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium once, or say that it is missing.

    It ends with its tests: as long as it runs, so does an event loop, and no other test can begin one.
    """
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def pages(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the files of every kind of page, by name."""
    folder = tmp_path_factory.mktemp("pages")
    made = {"eventful": eventful, "hostile": hostile}
    for name, write in made.items():
        write(folder / name)
        derive(folder / name)
    # A browser that runs holds this thread's event loop, which the fakes of the comparison need.
    with ThreadPoolExecutor(max_workers=1) as aside:
        aside.submit(hostile_identity, folder / "identity").result()
        aside.submit(hostile_remedy, folder / "remedy").result()
    hostile_accuracy(repository / "results" / OTHER_KINDS["accuracy"], folder / "accuracy")
    across_page = folder / "across.html"
    across_page.write_bytes(html_page("across.html", across_page_context(across([folder / name for name in made]))))
    return {
        "stored": repository / "results" / AUTHORITATIVE / "report.html",
        **{name: folder / name / "report.html" for name in made},
        **{kind: repository / "results" / run / "report.html" for kind, run in OTHER_KINDS.items()},
        **{f"hostile {kind}": folder / kind / "report.html" for kind in (*OTHER_KINDS, "remedy")},
        "across": across_page,
    }
