"""The command line: `determinism`, one file per verb, no logic.

In go arguments, out come data on stdout, conversation on stderr and an exit code that is the verdict (see
docs/reference/exit-codes.md). Verbs load what they need when they run, so that `--help` answers at once.
"""

import sys
import traceback
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from audit import __version__
from audit.cli import accuracy, demo, export, fake, plan, prereg, probe, report, run, seal, serve
from audit.errors import DeterminismError

__all__ = ["app", "main"]

ISSUES = "https://github.com/determinism-audit/determinism/issues"
_USAGE, _BUG, _INTERRUPTED = 2, 5, 130

app = typer.Typer(
    name="determinism",
    help="Prove whether a llama.cpp server gives the same numbers twice, with evidence a stranger can check.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb in (demo, serve, fake, probe, plan, run, report, seal, export):
    app.command(name=verb.NAME, help=verb.HELP)(verb.command)
for group in (prereg, accuracy):
    app.add_typer(group.app, name=group.NAME, help=group.HELP)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"determinism-audit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that stand before a verb."""
    del version


def main() -> None:
    """Run the command line and exit with the verdict."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    """Return the exit code of a command line; an uncaught exception is a bug and not a refutation."""
    try:
        code = get_command(app).main(args=arguments, prog_name="determinism", standalone_mode=False)
    except DeterminismError as error:
        typer.echo(f"error: {error.message}", err=True)
        if error.hint:
            typer.echo("\n".join(f"  {line}" for line in error.hint.splitlines()), err=True)
        return error.exit_code
    except typer.Abort:
        typer.echo("interrupted", err=True)
        return _INTERRUPTED
    except TyperException as error:
        typer.echo(f"error: {error.format_message()}", err=True)
        typer.echo("  determinism --help lists verbs, determinism VERB --help its options", err=True)
        return _USAGE
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        return _INTERRUPTED
    except BrokenPipeError:
        return _USAGE
    except Exception:  # noqa: BLE001 - the one place where a bug is told from a verdict
        typer.echo(traceback.format_exc(), err=True)
        typer.echo(f"error: this is a bug in determinism {__version__}; please report it: {ISSUES}", err=True)
        return _BUG
    return code if isinstance(code, int) else 0
