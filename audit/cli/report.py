"""`determinism report`: compute the findings of a run and render them."""

from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options

NAME = "report"
HELP = "Compute the findings of a run from its stored facts and show its cells."
_INCONCLUSIVE = 3


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: options.JsonOption = False,
    trials: Annotated[
        Path | None, typer.Option("--trials", help="Also write the table of all trials as CSV to this file.")
    ] = None,
    strict: Annotated[bool, typer.Option("--assert", help="Exit 1 where a prediction is refuted.")] = False,
) -> int:
    """Report a run."""
    from audit.kind import kind_of

    if kind_of(run) == "identity":
        return _identity(run, as_json=as_json, strict=strict)
    from audit.report import derive, trials_csv
    from audit.report.text import findings_text, verdict_code

    findings, files = derive(run)
    if trials is not None:
        trials.write_bytes(trials_csv(run))
    if as_json:
        typer.echo(files["findings.json"].decode(), nl=False)
    else:
        typer.echo(findings_text(findings), nl=False)
        typer.echo(f"next: python3 -I -S scripts/verify.py {run}", err=True)
    return verdict_code(findings, strict=strict)


def _identity(run: Path, *, as_json: bool, strict: bool) -> int:
    from audit.cli.identity import show
    from audit.identity.findings import report_code
    from audit.identity.gate import Compared, derive_identity

    findings = derive_identity(run)
    show(Compared(run, findings), as_json=as_json)
    return report_code(findings, strict=strict)
