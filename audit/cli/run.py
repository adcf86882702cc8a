"""`determinism run`: execute a plan against servers and seal the record, or take up one that was interrupted."""

import contextlib
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import options
from audit.cli.stop import Stop
from audit.cli.terminal import printable, say, show
from audit.errors import DeterminismError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from audit.execution import Progress

    Act = Callable[..., Coroutine[Any, Any, str | None]]

_INTERRUPTED = 130


def command(
    server: options.ServerOption = None,
    local: options.LocalOption = None,
    binary: options.BinaryOption = None,
    plan: options.PlanOption = None,
    quick: options.QuickOption = False,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default results/local/TIME.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Take up an unsealed run with the same servers and finish it."),
    ] = None,
    key_file: options.KeyFileOption = None,
    ca: options.CaOption = None,
    declare: options.DeclareOption = None,
    slots: options.SlotsOption = 8,
    ctx: options.CtxOption = 1024,
    threads: options.ThreadsOption = None,
) -> int:
    """Run a plan."""
    options.refuse_beside_resume(resume, {"--plan": plan, "--quick": quick, "--out": out})
    folder = resume or out or Path("results/local") / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    more: list[object] = ["--slots", slots, "--ctx", ctx, *(["--threads", threads] if threads else [])] if local else []
    files = (("--binary", binary), ("--key-file", key_file), ("--ca", ca), ("--declare", declare))
    again = resume_command(folder, server, local, [*(word for pair in files if pair[1] for word in pair), *more])
    line, seal = ProgressLine(), None
    act = _taken_up(folder) if resume is not None else _begun(options.chosen_path(plan, quick=quick), folder, line)
    settings = options.launch_settings(slots, ctx, threads)
    try:
        with (
            Stop() as stop,
            options.targets(
                server=server, local=local, binary=binary, key_file=key_file, ca=ca, declare=declare, settings=settings
            ) as targets,
        ):
            seal = stop.run(act(targets, report=line.show, stopped=stop.asked))
    except DeterminismError as error:
        if _resumable(folder):
            kept = f"{folder} is unsealed and keeps every finished attempt; when the cause is gone:\n{again}"
            error.hint = f"{error.hint}\n{kept}" if error.hint else kept
        raise
    except KeyboardInterrupt:
        pass
    finally:
        line.end()
    if seal is None:
        kept = f"{folder} is unsealed and keeps every finished attempt; resume it with\n{again}"
        say(f"interrupted: {kept if _resumable(folder) else 'nothing was sent'}")
        return _INTERRUPTED
    say(f"sealed {seal}\nnext: determinism report {folder}")
    show(f"{folder}")
    return 0


def _begun(plan: Path, folder: Path, line: "ProgressLine") -> "Act":
    """Return what runs a plan from its begin."""
    from audit.capture import capture
    from audit.prereg.choose import chosen_order

    order = chosen_order(plan)
    return lambda targets, **more: capture(order, targets, folder, warn=line.warn, **more)


def _taken_up(folder: Path) -> "Act":
    """Return what finishes an interrupted run."""
    from audit.resume import resume
    from audit.unsealed import refuse_finished

    refuse_finished(folder)
    return partial(resume, folder)


def _resumable(folder: Path) -> bool:
    """Tell whether a folder holds a run that began and is not sealed."""
    return (folder / "manifest.json").is_file() and not (folder / "SHA256SUMS").exists()


def resume_command(folder: Path, server: list[str] | None, local: list[str] | None, more: list[object]) -> str:
    """Return the command that takes this run up, as one types it into a shell."""
    words: list[object] = ["determinism", "run", "--resume", folder]
    words += [word for text in server or [] for word in ("--server", text)]
    words += [word for text in local or [] for word in ("--local", text)]
    return shlex.join(map(str, [*words, *more]))


class ProgressLine:
    """One live line on a terminal, one plain line for each tenth of a run elsewhere, always on stderr."""

    def __init__(self) -> None:
        """Begin the clock."""
        self._begun_s = time.monotonic()
        self._live = sys.stderr.isatty()
        self._tenth = -1

    def show(self, progress: "Progress") -> None:
        """Show where the run is."""
        elapsed_s = time.monotonic() - self._begun_s
        left_s = elapsed_s / progress.done * (progress.total - progress.done) if progress.done else 0.0
        left = f", about {left_s:.0f} s left" if progress.done else ""
        text = f"{progress.server}  {progress.condition}  {progress.done}/{progress.total}  {elapsed_s:.0f} s{left}"
        tenth = progress.done * 10 // max(1, progress.total)
        if self._live:
            self._draw(printable(text))
        elif tenth != self._tenth:
            say(text)
        self._tenth = tenth

    def warn(self, text: str) -> None:
        """Say what the user should know before the run."""
        say(f"warning: {text}")

    def end(self) -> None:
        """Leave the live line."""
        if self._live:
            self._draw("")

    def _draw(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
