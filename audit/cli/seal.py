"""`determinism seal`: the digest of a run to deposit."""

from pathlib import Path
from typing import Annotated

import typer

from audit.cli.terminal import say


def command(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> int:
    """Print the seal's digest."""
    from audit.derived import seal_of
    from audit.errors import UsageError

    found = seal_of(run)
    if found is None:
        raise UsageError(
            f"{run} is unsealed: its run did not end",
            hint="an unsealed run is no evidence yet; finish it: determinism run --resume",
        )
    typer.echo(found)
    say(f"next: python3 -I -S scripts/verify.py --expect {found} {run}")
    return 0
