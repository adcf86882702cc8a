"""`determinism fake`: the look-alike server by itself, faults by switch."""

from typing import Annotated

import typer


def command(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 picks a free one.")] = 0,
    slots: Annotated[int, typer.Option("--slots", min=1, max=256)] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Which toy model answers.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", metavar="NAME[=VALUE]", help="May be given again.")
    ] = None,
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="Print every fault: group, name, what it does.")
    ] = False,
) -> int:
    """Serve the fake until interrupted."""
    import asyncio

    from audit.fake import FakeSettings, serve_forever, switches

    if list_faults:
        width = max(len(switch.name) for switch in switches())
        typer.echo("\n".join(f"{one.group:<8}  {one.name:<{width}}  {one.text}" for one in switches()))
        return 0
    settings = FakeSettings(slots=slots, seed=seed, faults=parse_faults(fault or []))
    asyncio.run(serve_forever(settings, port, on_ready=lambda url: typer.echo(f"fake={url}")))
    return 0


def parse_faults(texts: list[str]) -> "Faults":  # type: ignore[name-defined] # noqa: F821 - loaded late
    """Read NAME or NAME=VALUE switches.

    Raises: UsageError that names the switch.
    """
    from audit.errors import UsageError
    from audit.fake import Faults, switches

    known = {switch.name: switch.default for switch in switches()}
    values: dict[str, object] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in known:
            raise UsageError(f"--fault {name!r} is not known", hint="--list-faults names them all")
        try:
            if isinstance(known[name], bool):
                values[name] = not separator or value.lower() in {"1", "true", "yes"}
            else:
                values[name] = float(value) if isinstance(known[name], float) else int(value)
        except ValueError as error:
            raise UsageError(f"--fault {text!r} needs a number, as in {name}=3") from error
    return Faults(**values)  # type: ignore[arg-type]
