"""`determinism prereg new|status|lock`: write a registration down, see where it stands, fix its digest."""

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
FolderArgument = Annotated[Path, typer.Argument(help="A registration's folder, such as prereg/audit.")]


@app.command(name="new", help="Write a template of three files to edit; lock makes the fourth, plan.json.")
def new(folder: Annotated[Path, typer.Argument(help="The folder to make, such as prereg/mine.")]) -> int:
    """Write a template."""
    from audit.prereg.template import write_template

    for path in write_template(folder):
        typer.echo(path)
    say(f"next: edit them, then determinism prereg lock {folder}")
    return 0


@app.command(name="status", help="Is it committed and unchanged; exit 3 where it is not registered.")
def status(folder: FolderArgument, as_json: options.JsonOption = False) -> int:
    """Show where a registration stands."""
    from audit.lock import load_any

    found, predictions = load_any(folder)
    facts = {
        "name": found.name,
        "status": found.status,
        "commit": found.commit,
        "digest": found.digest,
        "predictions": predictions,
    }
    typer.echo(
        json.dumps(facts, indent=1) if as_json else "\n".join(f"{name:12}{value}" for name, value in facts.items())
    )
    return 0 if found.status == "registered" else 3


@app.command(name="lock", help="Resolve plan.toml into plan.json and print the digest to deposit.")
def lock(folder: FolderArgument) -> int:
    """Fix a registration."""
    from audit.lock import load_any, write_resolved

    write_resolved(folder)
    found, _ = load_any(folder)
    typer.echo(found.digest)
    say(f"next: commit {folder} and nothing else in that commit, before the first run")
    return 0
