"""`determinism isolate`: which neighbour moved the numbers, as a pack that shows it without us."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import options
from audit.cli.terminal import say, show
from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.local.owned import LaunchSettings
    from audit.remedy.cobatch import Found

_WEAK = 3


def command(
    run: Annotated[Path, typer.Argument(help="The folder of an audit.")],
    cell: Annotated[str, typer.Argument(help="A divergent cell of it: CONDITION or SERVER:CONDITION.")],
    server: options.ServerOption = None,
    local: options.LocalOption = None,
    binary: options.BinaryOption = None,
    tries: Annotated[int, typer.Option("--tries", min=1, help="Runs of each batch that is tried on the way.")] = 3,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of the smallest batch, which are counted.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", help="The pack's folder; default results/local/TIME.")] = None,
    key_file: options.KeyFileOption = None,
    ca: options.CaOption = None,
) -> int:
    """Isolate what moved a cell."""
    import asyncio

    from audit.remedy.cobatch import find_cobatch
    from audit.remedy.isolate import Bench, isolate
    from audit.remedy.pack import is_weak, make_pack, sentence_of
    from audit.remedy.text import command_line
    from audit.store import Run

    if len([*(server or []), *(local or [])]) != 1:
        raise UsageError("a cell is isolated on one server", hint="add --server NAME=URL, or --local MODEL")
    opened = Run.open(run)
    found = find_cobatch(opened, cell)
    folder = out or Path("results/local") / time.strftime("isolate-%Y%m%dT%H%M%SZ", time.gmtime())
    settings = declared_settings(found)
    with options.targets(
        server=server, local=local, binary=binary, key_file=key_file, ca=ca, declare=None, settings=settings
    ) as (target,):
        bench = Bench(address=target.address, timeout_s=opened.plan.timeout_s)
        isolated = asyncio.run(isolate(found.cobatch, bench, slots=found.slots, tries=tries, runs=runs, say=say))
        declared = target.owned.declaration() if target.owned is not None else found.declared
        line = command_line({"argv": declared.get("argv") or ["llama-server", "..."], "environment": {}})
        packed = make_pack(folder, found, isolated, server_line=line, url=target.address.url, runs=runs)
    count = len(packed.cobatch.neighbours)
    show(f"{cell}: {count} of {len(found.cobatch.neighbours)} neighbours are in the pack\n{sentence_of(packed)}")
    say(f"wrote {folder}; next: sh {folder}/repro.sh URL")
    return _WEAK if is_weak(packed.counted) else 0


def declared_settings(found: "Found") -> "LaunchSettings":
    """Return the settings that the run's server was declared with, or those of an audit with its slots."""
    from audit.local.owned import LaunchSettings

    said = found.declared.get("settings")
    if not isinstance(said, dict):
        return LaunchSettings(slots=found.slots)
    return LaunchSettings(**{**said, "extra_args": tuple(said.get("extra_args", ()))})
