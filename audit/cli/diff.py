"""`determinism diff`: explain the difference between two trials or two streams."""

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import show


def command(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT",
            help="RUN TRIAL TRIAL; RUN TRIAL for a trial and its reference; or two of RUN:TRIAL and STREAM.jsonl. "
            "With several servers a trial is SERVER:TRIAL.",
        ),
    ],
    as_json: options.JsonOption = False,
) -> int:
    """Explain a difference."""
    from audit.report.diff import diff_document, diff_text, explain, sides

    explained = explain(*sides(what))
    show(json.dumps(diff_document(explained), indent=1) if as_json else diff_text(explained).removesuffix("\n"))
    told = explained.trial.circumstances
    if explained.difference is not None and told is not None:
        cell = {"server": told.server, "condition": told.condition, "verdict": "divergent"}
        options.advise(Path(what[0].partition(":")[0]), {"cells": [cell]})
    return 0
