"""`determinism export`: a copy of a run without what one does not want to publish."""

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.terminal import say


def command(
    run: Annotated[Path, typer.Argument(help="A sealed run folder.")],
    digests: Annotated[Path, typer.Option("--digests", help="The folder to write the copy into.")],
) -> int:
    """Export a run."""
    from audit.export import export_digests

    omitted = export_digests(run, digests)
    typer.echo(digests)
    say(f"{omitted} files are left out, listed in omitted.json")
    say(f"next: python3 -I -S scripts/verify.py {digests}")
    return 0
