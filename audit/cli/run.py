"""`determinism run`: execute a plan against servers and seal the record."""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from audit.cli import options
from audit.errors import ServerError

if TYPE_CHECKING:
    from audit.capture import Progress

NAME = "run"
HELP = "Execute a plan against servers: facts are written, nothing is judged."
_INTERRUPTED = 130


def command(
    server: options.ServerOption = None,
    local: options.LocalOption = None,
    binary: options.BinaryOption = None,
    plan: options.PlanOption = None,
    quick: options.QuickOption = False,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default results/local/TIME.")] = None,
    key_file: options.KeyFileOption = None,
    ca: options.CaOption = None,
    declare: options.DeclareOption = None,
    slots: options.SlotsOption = 8,
    ctx: options.CtxOption = 1024,
    threads: options.ThreadsOption = None,
) -> int:
    """Run a plan."""
    from audit.capture import capture
    from audit.prereg.choose import chosen_order

    order = chosen_order(options.chosen_path(plan, quick=quick))
    folder = out or Path("results/local") / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    settings = options.launch_settings(slots, ctx, threads)
    stop = Stop()
    with (
        options.targets(
            server=server, local=local, binary=binary, key_file=key_file, ca=ca, declare=declare, settings=settings
        ) as targets,
        stop,
    ):
        line = ProgressLine()
        try:
            seal = asyncio.run(capture(order, targets, folder, report=line.show, warn=line.warn, stopped=stop.asked))
        except ServerError:
            if (folder / "manifest.json").is_file():
                typer.echo(f"\n{folder} is unsealed and keeps every finished attempt", err=True)
            raise
        line.end()
    if seal is None:
        typer.echo(f"interrupted: {folder} is unsealed and keeps every finished attempt", err=True)
        return _INTERRUPTED
    typer.echo(f"{folder}")
    typer.echo(f"sealed {seal}\nnext: determinism report {folder}", err=True)
    return 0


class Stop:
    """Turns the first SIGINT or SIGTERM into a wish to stop after the current unit; the second stops at once."""

    def __init__(self) -> None:
        """Begin with no wish."""
        self._asked = False
        self._before: dict[int, object] = {}

    def asked(self) -> bool:
        """Tell whether to stop."""
        return self._asked

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _take(self, _number: int, _frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        typer.echo("\nstopping after the current trial; once more stops at once", err=True)


class ProgressLine:
    """One live line on a terminal, one plain line a condition elsewhere, always on stderr."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._begun_s = time.monotonic()
        self._live = sys.stderr.isatty()
        self._last = ""

    def show(self, progress: "Progress") -> None:
        """Show where the run is."""
        elapsed_s = time.monotonic() - self._begun_s
        left_s = elapsed_s / progress.done * (progress.total - progress.done) if progress.done else 0.0
        left = f", about {left_s:.0f} s left" if progress.done else ""
        text = f"{progress.server}  {progress.condition}  {progress.done}/{progress.total}  {elapsed_s:.0f} s{left}"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif not progress.done or progress.done * 10 // progress.total > (progress.done - 1) * 10 // progress.total:
            typer.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Say what the user should know before the run."""
        typer.echo(f"warning: {text}", err=True)

    def end(self) -> None:
        """Leave the live line."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
