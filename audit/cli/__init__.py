"""The command line: `determinism`, one file per verb, no logic.

In go arguments, out come data on stdout, conversation on stderr and an exit code that is the verdict (see
docs/reference/exit-codes.md). Verbs load what they need when they run, so that `--help` answers at once.
"""

import errno
import gc
import importlib
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from audit import __version__
from audit.cli.terminal import leave, say
from audit.errors import DeterminismError

__all__ = ["command_line", "main"]

ISSUES = "https://github.com/determinism-audit/determinism/issues"
_USAGE, _BUG, _INTERRUPTED = 2, 5, 130

_VERBS = {
    "demo": "Run, judge and report an audit of two built-in fake servers, one clean and one with a planted fault.",
    "serve": "Start llama.cpp here with one or more models and print where each listens.",
    "fake": "Serve the llama-server look-alike with toy numbers, to test a harness against; faults by "
    "--fault NAME[=VALUE].",
    "probe": "Ask servers whether they can be audited: logprobs, precision, slots, cache, build, and what "
    "they cannot attest.",
    "plan": "Show a plan unfolded: cells, trials, requests, tokens, what each cell could detect.",
    "run": "Execute a plan against servers: facts are written, nothing is judged.",
    "report": "Compute the findings of a run from its stored facts, show them, and write report.html and its tables.",
    "diff": "Explain where two trials differ, step by step: of one run, of two runs, or two stream files.",
    "across": "Compare runs: which cells have another verdict, and which streams are of one class across runs.",
    "seal": "Print the digest of a run's seal, which is what one deposits with a third party.",
    "export": "Copy a run without streams, rows, bodies, token ids and prompts; manifest, history and seal "
    "stay as they are.",
    "identity": "Compare two builds of llama.cpp: every row of every model, as bytes.",
    "bisect": "Find the build that changed the numbers between a good and a bad one, or compare all of them in a row.",
    "remedy": "Start llama.cpp under one setting after another, and measure which makes it reproducible and "
    "at what price.",
    "isolate": "Find the smallest batch that moves the numbers of one divergent cell, and write it down as a "
    "few lines of curl.",
    "prereg": "Registrations: a template, where one stands in git's history, the digest to deposit.",
    "accuracy": "How far a server's rows are from a float32 reference, against bounds that were frozen before.",
}
# Verbs that have verbs of their own.
_GROUPS = ("prereg", "accuracy")


def command_line(verb: str | None = None) -> typer.Typer:
    """Return the command line with the options of one verb, or of all where None is given.

    Each verb is a module of its name. To load them all and to have typer read what each of them takes is a third of
    what `--help` costs, so a verb that was not asked for is a name and a line of help.
    """
    made = typer.Typer(
        name="determinism",
        help="Prove whether a llama.cpp server gives the same numbers twice, with evidence a stranger can check.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(_root)
    for name, text in _VERBS.items():
        if verb not in {None, name}:
            made.command(name=name, help=text)(_not_asked_for)
        elif name in _GROUPS:
            made.add_typer(importlib.import_module(f"audit.cli.{name}").app, name=name, help=text)
        else:
            made.command(name=name, help=text)(importlib.import_module(f"audit.cli.{name}").command)
    return made


def _not_asked_for() -> None:
    """Stand for a verb in the list of all."""


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"determinism-audit {__version__}")
        raise typer.Exit


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
    # Nothing that is still there will be used again: without this, Python searches all of it for cycles before it ends.
    gc.freeze()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Return the exit code of a command line; an uncaught exception is a bug and not a refutation."""
    try:
        asked = next((word for word in arguments if not word.startswith("-")), "")
        code = get_command(command_line(asked)).main(args=arguments, prog_name="determinism", standalone_mode=False)
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
