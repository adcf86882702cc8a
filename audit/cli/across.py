"""`determinism across`: runs side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import show


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    as_json: options.JsonOption = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write the comparison as a page to this file.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Judge the runs on the Dask cluster of this scheduler."),
    ] = None,
) -> int:
    """Compare runs."""
    options.collect_rarely()
    from functools import partial

    from audit.report.across import across, across_page_context, across_text, one_by_one, run_names
    from audit.report.render import html_page

    judge = one_by_one
    if dask is not None:
        from audit.cluster import over_dask

        judge = partial(over_dask, dask)
    document = across(runs, judge=judge)
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
