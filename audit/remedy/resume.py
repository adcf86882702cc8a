"""An unsealed remedy taken up again: what its history says is walked through, and what is missing is started.

In go the folder and the same launcher and settings, out comes the sealed record. Who is screened again and who is
confirmed is decided anew from the sealed starts, which gives what was decided before; where the time decided, the
history does. It is refused where model, build, server line or settings are others. The audit that was interrupted is
begun again whole.
"""

import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.files import PARTIAL
from audit.history import History
from audit.record import Begin, End, Resume, to_bytes
from audit.remedy.catalogue import Setting
from audit.remedy.launcher import Launcher
from audit.remedy.measure import Measuring, carry_out
from audit.remedy.past import Past
from audit.remedy.record import ARMS, AnyRemedyLine, ArmLine, RemedyManifest, RemedyRun
from audit.store import RunWriter
from audit.stream import digest
from audit.unsealed import refuse_finished

__all__ = ["resume_remedy"]


def resume_remedy(
    launcher: Launcher,
    settings: Sequence[Setting],
    folder: Path,
    *,
    perform: Callable[[Coroutine[Any, Any, str | None]], str | None],
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
    budget_s: float | None = None,
) -> str | None:
    """Take up an unsealed remedy and seal it.

    Args:
        launcher: starts the servers, as it did before.
        settings: what is tried, in the same order.
        folder: the run folder.
        perform: runs a coroutine to its end.
        say: is told where the work is.
        stopped: is asked before each start, and within its audit, whether the user wants to stop.
        budget_s: seconds from now after which nothing more is begun; None for no end.

    Returns: the digest of the seal, or None where it was stopped again.
    Raises: UsageError where model, build, server line or settings are not those of the record, or another process
        writes it; EvidenceError where the folder contradicts itself.
    """
    refuse_finished(folder)
    history = History.take_up(folder)
    writer = None
    try:
        run = RemedyRun.open(folder)
        lines, cut = list(run.lines(cut=True)), history.cut
        _refuse_others(run.manifest, lines, launcher)
        _clean(folder, lines, say)
        writer = RunWriter(folder, history)
        if any(isinstance(line, End) for line in lines):
            return writer.seal()
        process = sum(isinstance(line, Begin | Resume) for line in lines)
        if lines:
            writer.append(Resume(process=process, wall_ns=time.time_ns(), cut=cut))
        else:
            writer.begin_history(digest(to_bytes(run.manifest)))
        return carry_out(
            Measuring(
                plan=run.plan,
                launcher=launcher,
                settings=settings,
                writer=writer,
                perform=perform,
                say=say,
                stopped=stopped,
                budget_s=budget_s,
                past=Past(lines),
            )
        )
    finally:
        (writer or history).close()


def _refuse_others(manifest: RemedyManifest, lines: Sequence[AnyRemedyLine], launcher: Launcher) -> None:
    """Refuse another model or another server line; what the build is, its own line says."""
    bare = next((line.argv for line in lines if isinstance(line, ArmLine) and not line.settings), None)
    pairs = [
        ("the model", f"{manifest.model} {manifest.model_sha256}", f"{launcher.model} {launcher.model_sha256}"),
        ("slots", str(manifest.slots), str(launcher.slots)),
        ("threads", str(manifest.threads), str(launcher.threads)),
    ]
    if bare is not None:
        pairs.append(("the server line", " ".join(without_port(bare)), " ".join(without_port(launcher.line()))))
    for what, before, now in pairs:
        if before != now:
            raise UsageError(
                f"{what} was {before} when this remedy began, and is {now}",
                hint="give the command that it was begun with; nothing was written",
            )


def without_port(argv: Sequence[str]) -> list[str]:
    """Return a server line without its port, which is another at each start."""
    return [word for at, word in enumerate(argv) if not at or argv[at - 1] != "--port"]


def _clean(folder: Path, lines: Sequence[AnyRemedyLine], say: Callable[[str], None]) -> None:
    """Remove half-written files, and the start that no line names: it was interrupted, and is begun again."""
    named = {line.arm for line in lines if isinstance(line, ArmLine)}
    try:
        for partial in folder.rglob("*" + PARTIAL):
            partial.unlink()
        for arm in sorted((folder / ARMS).glob("*")):
            if arm.name not in named:
                shutil.rmtree(arm)
                say(f"{arm.name} was interrupted, and is begun again")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from error
