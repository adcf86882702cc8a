"""An unsealed remedy taken up again: its history is checked against what goes on, and its folder made ready.

In go the folder and the launcher, out come a writer that goes on behind the last whole line, the plan, and what was
done. It is refused where model, slots, threads or server line are others. The audit that was interrupted is begun again
whole.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from audit.errors import UsageError
from audit.files import PARTIAL
from audit.history import History
from audit.record import Begin, Resume
from audit.remedy.launcher import Launcher
from audit.remedy.past import Past
from audit.remedy.plan import RemedyPlan
from audit.remedy.record import ARMS, AnyRemedyLine, ArmLine, RemedyManifest, RemedyRun
from audit.store import RunWriter
from audit.unsealed import refuse_finished

__all__ = ["Left", "take_up"]


class Left(NamedTuple):
    """What a process left of a remedy, and a writer that goes on with it."""

    writer: RunWriter
    plan: RemedyPlan
    past: Past


def take_up(folder: Path, launcher: Launcher, say: Callable[[str], None]) -> Left:
    """Take up an unsealed remedy, and say so in its history, unless only its seal is missing.

    Args:
        folder: the run folder.
        launcher: starts the servers, as it did before.
        say: is told which start is begun again.

    Raises: UsageError where model or server line are not those of the record, or another process writes it;
        EvidenceError where the folder contradicts itself.
    """
    refuse_finished(folder)
    history = History.take_up(folder)
    try:
        run = RemedyRun.open(folder)
        lines = list(run.lines(cut=True))
        _refuse_others(run.manifest, lines, launcher)
        _clean(folder, lines, say)
        past, writer = Past(lines), RunWriter(folder, history)
        if not past.ended:
            writer.go_on(run.manifest, process=sum(isinstance(line, Begin | Resume) for line in lines))
        return Left(writer, run.plan, past)
    except BaseException:
        history.close()
        raise


def _refuse_others(manifest: RemedyManifest, lines: Sequence[AnyRemedyLine], launcher: Launcher) -> None:
    """Refuse another model or another server line; what the build is, its own line says."""
    bare = next((line.argv for line in lines if isinstance(line, ArmLine) and not line.settings), None)
    pairs = [
        ("the model", f"{manifest.model} {manifest.model_sha256}", f"{launcher.model} {launcher.model_sha256}"),
        ("slots", str(manifest.slots), str(launcher.slots)),
        ("threads", str(manifest.threads), str(launcher.threads)),
    ]
    if bare is not None:
        pairs.append(("the server line", " ".join(_without_port(bare)), " ".join(_without_port(launcher.line()))))
    for what, before, now in pairs:
        if before != now:
            raise UsageError(
                f"{what} was {before} when this remedy began, and is {now}",
                hint="give the command that it was begun with; nothing was written",
            )


def _without_port(argv: Sequence[str]) -> list[str]:
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
