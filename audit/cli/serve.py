"""`determinism serve`: start llama.cpp here with the settings of an audit."""

import json
import signal
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import say


def command(
    model: Annotated[list[str], typer.Argument(help="A model's name, tiny-ARCH-QUANT, or the path of a GGUF file.")],
    binary: options.BinaryOption = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The first one's port; 0 picks a free one.")
    ] = 0,
    slots: options.SlotsOption = 8,
    ctx: options.CtxOption = 1024,
    threads: options.ThreadsOption = None,
    declare: Annotated[
        bool, typer.Option("--print-declaration", help="Print what `run --declare` takes, as JSON.")
    ] = False,
) -> int:
    """Serve models until interrupted."""
    from contextlib import ExitStack

    settings = options.launch_settings(slots, ctx, threads)
    with ExitStack() as stack:
        owned = {}
        for index, name in enumerate(model):
            server = stack.enter_context(options.start(name, binary, settings, port=port + index if port else 0))
            owned[server.model.name] = server
            typer.echo(f"{server.model.name}={server.url}", err=declare)
        if declare:
            typer.echo(json.dumps({name: server.declaration() for name, server in owned.items()}, indent=1))
        say("serving; Ctrl-C ends it")
        wait_for_signal()
    return 0


def wait_for_signal() -> None:
    """Return when SIGINT, SIGTERM or SIGHUP arrives."""
    numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        signal.sigwait(numbers)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
