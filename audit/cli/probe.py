"""`determinism probe`: is this server auditable, and what can it not attest."""

import json
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import show


def command(
    server: Annotated[list[str], typer.Option("--server", metavar="NAME=URL", help="May be given again.")],
    key_file: options.KeyFileOption = None,
    ca: options.CaOption = None,
    as_json: options.JsonOption = False,
) -> int:
    """Probe servers."""
    import asyncio

    from audit.client import Address
    from audit.probe import probe, probe_text

    key = options.api_key(key_file)
    found = [asyncio.run(probe(Address.parse(text, key=key, ca=ca))) for text in server]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        show("\n".join(probe_text(one) for one in found))
    return 0 if all(one["auditable"] for one in found) else 2
