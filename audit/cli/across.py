"""`determinism across`: runs side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import show

NAME = "across"
HELP = "Compare runs: which cells have another verdict, and which streams are of one class across runs."


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    as_json: options.JsonOption = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write the comparison as a page to this file.")
    ] = None,
) -> int:
    """Compare runs."""
    from audit.report.across import across, across_page_context, across_text, run_names
    from audit.report.render import html_page

    document = across(runs)
    if html is not None:
        html.write_bytes(html_page("across.html", across_page_context(document)))
    show(json.dumps(document, indent=1) if as_json else across_text(document).removesuffix("\n"))
    for name, folder in zip(run_names(runs), runs, strict=True):
        cells = [
            {**cell, "server": subject.removeprefix(f"{name}:"), "condition": entry["condition"]}
            for entry in document["cells"]
            for subject, cell in entry["subjects"].items()
            if cell is not None and subject.startswith(f"{name}:")
        ]
        options.advise(folder, {"cells": cells})
    return 0
