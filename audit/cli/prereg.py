"""`determinism prereg new|status|lock`: write a registration down, see where it stands, fix its digest."""

import json
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options

NAME = "prereg"
HELP = "Registrations: a template, where one stands in git's history, the digest to deposit."

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
FolderArgument = Annotated[Path, typer.Argument(help="A registration's folder, such as prereg/audit.")]


@app.command(name="new", help="Write a template of three files to edit; lock makes the fourth, plan.json.")
def new(folder: Annotated[Path, typer.Argument(help="The folder to make, such as prereg/mine.")]) -> int:
    """Write a template."""
    from audit.prereg.template import write_template

    for path in write_template(folder):
        typer.echo(path)
    typer.echo(f"next: edit them, then determinism prereg lock {folder}", err=True)
    return 0


@app.command(name="status", help="Is it committed and unchanged; exit 3 where it is not registered.")
def status(folder: FolderArgument, as_json: options.JsonOption = False) -> int:
    """Show where a registration stands."""
    from audit.prereg.registration import load_files

    found = load_files(folder)
    facts = {
        "name": found.name,
        "status": found.status,
        "commit": found.commit,
        "digest": found.digest,
        "predictions": _check(folder),
    }
    typer.echo(
        json.dumps(facts, indent=1) if as_json else "\n".join(f"{name:12}{value}" for name, value in facts.items())
    )
    return 0 if found.status == "registered" else 3


@app.command(name="lock", help="Resolve plan.toml into plan.json and print the digest to deposit.")
def lock(folder: FolderArgument) -> int:
    """Fix a registration."""
    from audit.accuracy.order import write_resolved_accuracy
    from audit.prereg.registration import load_files
    from audit.prereg.template import write_resolved

    (write_resolved_accuracy if _kind(folder) == "accuracy" else write_resolved)(folder)
    _check(folder)
    typer.echo(load_files(folder).digest)
    typer.echo(f"next: commit {folder} and nothing else in that commit, before the first run", err=True)
    return 0


def _kind(folder: Path) -> str:
    """Return the kind of study that a registration's plan.toml is of; what cannot be read is for its reader to say."""
    import tomllib

    try:
        return str(tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8")).get("kind", "audit"))
    except (OSError, ValueError):
        return "audit"


def _check(folder: Path) -> list[str]:
    """Read a registration as its kind asks, and return the ids of its predictions."""
    from audit.accuracy.order import load_accuracy_registration
    from audit.prereg import load_registration

    if _kind(folder) == "accuracy":
        return [prediction.id for prediction in load_accuracy_registration(folder).predictions]
    return [prediction.id for prediction in load_registration(folder).predictions.predictions]
