"""The options that several verbs share, and how they become servers and plans.

Precedence: flag, then `DETERMINISM_*` variable, then plan file, then default. A key is read from the environment or
from a file, never from the command line, and never shown.
"""

import gc
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli.terminal import hide, say
from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.local.owned import LaunchSettings
    from audit.sitting import Target

ServerOption = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="NAME=URL", help="A running llama-server; may be given again."),
]
LocalOption = Annotated[
    list[str] | None,
    typer.Option("--local", metavar="MODEL", help="Start llama.cpp here with this model; may be given again."),
]
BinaryOption = Annotated[
    str | None, typer.Option("--binary", metavar="PATH", help="A llama-server binary instead of the embedded build.")
]
KeyFileOption = Annotated[
    Path | None, typer.Option("--key-file", help="A file with the API key (or set DETERMINISM_API_KEY).")
]
CaOption = Annotated[Path | None, typer.Option("--ca", help="A file with the certificates of a private authority.")]
DeclareOption = Annotated[
    Path | None,
    typer.Option("--declare", help="A JSON file NAME -> what you know about that server (argv, model digest, ...)."),
]
SlotsOption = Annotated[int, typer.Option("--slots", min=1, max=256, help="Slots of a server started here.")]
CtxOption = Annotated[int, typer.Option("--ctx", min=64, help="Tokens that one slot of it holds.")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="Its threads; default all cores.")]
PlanOption = Annotated[Path | None, typer.Option("--plan", help="A plan.toml, or a registration's folder.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="The short plan.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]

# How many objects have to be made, without those that were freed, before Python looks for cycles; it has 700.
_OBJECTS_MADE = 1_000_000
DATA = Path(__file__).resolve().parent.parent / "data"


def api_key(key_file: Path | None) -> str | None:
    """Return the key of a file or of DETERMINISM_API_KEY."""
    if key_file is None:
        key = os.environ.get("DETERMINISM_API_KEY") or None
    else:
        try:
            key = key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--key-file {key_file} cannot be read: {error}") from error
    hide(key)
    return key


def declarations(path: Path | None) -> dict[str, dict[str, Any]]:
    """Read what the operator declares, by server name."""
    if path is None:
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--declare {path} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(value, dict) for value in values.values()):
        raise UsageError(f"--declare {path} must hold one object of objects", hint='{"NAME": {"argv": [...], ...}}')
    return values


def launch_settings(slots: int, ctx: int, threads: int | None) -> "LaunchSettings":
    """Return the settings of servers that are started here."""
    from audit.local.owned import LaunchSettings

    threads = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads or os.cpu_count()
    return LaunchSettings(slots=slots, ctx_per_slot=ctx, threads=threads or 1)


@contextmanager
def targets(
    *,
    server: list[str] | None,
    local: list[str] | None,
    binary: str | None,
    key_file: Path | None,
    ca: Path | None,
    declare: Path | None,
    settings: "LaunchSettings",
) -> Iterator[list["Target"]]:
    """Give the servers of a command line, those started here included, and stop these afterwards."""
    from audit.client import Address
    from audit.sitting import Target

    if not server and not local:
        raise UsageError("no server is named", hint="add --server NAME=URL, or --local MODEL to start one here")
    if binary is not None and not local:
        raise UsageError(f"--binary {binary} starts a server with a model", hint="add --local MODEL")
    declared, key = declarations(declare), api_key(key_file)
    with ExitStack() as stack:
        found = []
        for text in server or []:
            address = Address.parse(text, key=key, ca=ca)
            found.append(Target(address=address, declaration=declared.get(address.label)))
        for text in local or []:
            label, _, model = text.rpartition("=")
            owned = stack.enter_context(start(model, binary, settings))
            found.append(Target(address=Address(label=label or owned.model.name, url=owned.url), owned=owned))
        unknown = set(declared) - {target.address.label for target in found}
        if unknown:
            raise UsageError(f"--declare {declare} speaks of {min(unknown)!r}, which no --server names")
        yield found


def start(model: str, binary: str | None, settings: "LaunchSettings", *, port: int = 0) -> Any:  # noqa: ANN401 - loaded late
    """Start llama.cpp here and return the owned server."""
    from audit.local.models import resolve_binary, resolve_model
    from audit.local.owned import start_binary, start_embedded

    file = resolve_model(model)
    say(f"starting llama.cpp with {file.name}")
    if binary is None:
        return start_embedded(file, settings, port=port)
    return start_binary(resolve_binary(binary), file, settings, port=port)


def collect_rarely() -> None:
    """Let Python look for cycles of dead objects seldom, in a process that judges and ends.

    Nearly all that it loads and reads lives to its end, and would be walked at each of hundreds of looks.
    """
    gc.set_threshold(_OBJECTS_MADE)


def advise(folder: Path, findings: dict[str, Any]) -> None:
    """Say on stderr what is known to help where cells of an audit moved."""
    from audit.advice import advice_of, moved_cells

    for line in advice_of(folder, moved_cells(findings)):
        say(line)


def refuse_beside_resume(resume: Path | None, given: dict[str, object]) -> None:
    """Refuse flags, by their values, that say what the folder of a run that is taken up has in it.

    Raises: UsageError.
    """
    for flag, value in given.items():
        if resume is not None and value:
            raise UsageError(f"{flag} cannot stand beside --resume {resume}, which has its plan in it")


def chosen_path(path: Path | None, *, quick: bool) -> Path:
    """Return the plan file or registration folder that is named, the short plan, or the registered study."""
    if path is not None and quick:
        raise UsageError(f"--plan {path} and --quick name two plans", hint="give one of them")
    if path is not None or quick:
        return path or DATA / "quick.toml"
    checkout = DATA.parent.parent / "prereg" / "audit"
    return checkout if checkout.is_dir() else DATA / "prereg" / "audit"
