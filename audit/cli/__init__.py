"""The command line: `determinism`, one file per verb, no logic.

In go arguments, out come data on stdout, conversation on stderr and an exit code that is the verdict (see
docs/reference/exit-codes.md). Verbs load what they need when they run, so that `--help` answers at once.
"""

import errno
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from audit import __version__
from audit.cli import (
    accuracy,
    across,
    bisect,
    demo,
    diff,
    export,
    fake,
    identity,
    isolate,
    plan,
    prereg,
    probe,
    remedy,
    report,
    run,
    seal,
    serve,
)
from audit.cli.terminal import leave, say
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
for verb in (
    demo,
    serve,
    fake,
    probe,
    plan,
    run,
    report,
    diff,
    across,
    seal,
    export,
    identity,
    bisect,
    remedy,
    isolate,
):
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
    code = _run(sys.argv[1:])
    leave()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Return the exit code of a command line; an uncaught exception is a bug and not a refutation."""
    try:
        code = get_command(app).main(args=arguments, prog_name="determinism", standalone_mode=False)
    except DeterminismError as error:
        say(f"error: {error.message}")
        if error.hint:
            say("\n".join(f"  {line}" for line in error.hint.splitlines()))
        return error.exit_code
    except TyperException as error:
        say(f"error: {error.format_message()}")
        say("  determinism --help lists verbs, determinism VERB --help its options")
        return _USAGE
    except SystemExit:
        return _USAGE  # typer's end where nobody reads stdout any more; its own code 1 would be a refuted prediction
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where a bug is told from a verdict
        if isinstance(error, OSError) and error.errno in {errno.EPIPE, errno.EIO}:
            return _USAGE  # the same for a terminal that is gone
        import traceback

        say(traceback.format_exc())
        say(f"error: this is a bug in determinism {__version__}; please report it: {ISSUES}")
        return _BUG
    return code if isinstance(code, int) else 0
