"""`determinism demo`: the whole pipeline against the built-in fake server, in seconds, with no model."""

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.fake import parse_faults
from audit.cli.terminal import say, show


def command(
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default results/local/demo-TIME.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", metavar="NAME[=VALUE]", help="The fault; default jitter_concurrent.")
    ] = None,
) -> int:
    """Show the pipeline."""
    import asyncio

    from audit.capture import capture
    from audit.cli.run import ProgressLine
    from audit.client import Address
    from audit.fake import FakeSettings, FakeThread
    from audit.prereg.choose import chosen_order
    from audit.report import derive
    from audit.report.text import findings_text, verdict_code
    from audit.sitting import Target

    folder = out or Path("results/local") / time.strftime("demo-%Y%m%dT%H%M%SZ", time.gmtime())
    faults = parse_faults(fault or ["jitter_concurrent"])
    with FakeThread(FakeSettings(step_ms=2.0)) as clean, FakeThread(FakeSettings(step_ms=2.0, faults=faults)) as faulty:
        servers = {"clean": clean, "faulty": faulty}
        targets = [Target(address=Address(label=label, url=fake.url)) for label, fake in servers.items()]
        line = ProgressLine()
        order = chosen_order(options.chosen_path(None, quick=True))
        asyncio.run(capture(order, targets, folder, report=line.show))
        line.end()
    findings, _ = derive(folder)
    show(findings_text(findings).removesuffix("\n"))
    options.advise(folder, findings)
    say(f"next: python3 -I -S scripts/verify.py {folder}")
    return verdict_code(findings, strict=False)
