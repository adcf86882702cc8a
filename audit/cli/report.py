"""`determinism report`: compute the findings of a run and render them."""

from pathlib import Path
from typing import Annotated

import typer

from audit.cli import options
from audit.cli.terminal import say, show


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: options.JsonOption = False,
    steps: Annotated[bool, typer.Option("--steps", help="Also write steps.csv, which is large.")] = False,
    trials: Annotated[
        Path | None, typer.Option("--trials", help="Also write the table of all trials as CSV to this file.")
    ] = None,
    strict: Annotated[bool, typer.Option("--assert", help="Exit 1 where a prediction is refuted.")] = False,
) -> int:
    """Report a run."""
    options.collect_rarely()
    from audit.kind import kind_of

    if kind_of(run) == "identity":
        return _identity(run, as_json=as_json, strict=strict)
    if kind_of(run) == "accuracy":
        return _accuracy(run, as_json=as_json, strict=strict)
    if kind_of(run) == "remedy":
        return _remedy(run, as_json=as_json, strict=strict)
    from audit.report import derive, trials_csv
    from audit.report.kinds import reporter_of
    from audit.report.verifier import verifier_words
    from audit.store import Run

    findings, files = derive(run, with_steps=steps)
    if trials is not None:
        trials.write_bytes(trials_csv(run))
    kind = reporter_of(Run.open(run))
    if as_json:
        typer.echo(files["findings.json"].decode(), nl=False)
    else:
        show(kind.text(findings).removesuffix("\n"))
        say(f"wrote {run / 'report.html'} and {len(files) - 1} more files\n{verifier_words(run)}")
    options.advise(run, findings)
    return kind.code(findings, strict=strict)


def _identity(run: Path, *, as_json: bool, strict: bool) -> int:
    from audit.cli.identity import show_compared
    from audit.identity.findings import report_code
    from audit.identity.gate import Compared, derive_identity

    findings = derive_identity(run)
    show_compared(Compared(run, findings), as_json=as_json)
    return report_code(findings, strict=strict)


def _accuracy(run: Path, *, as_json: bool, strict: bool) -> int:
    from audit.accuracy.findings import derive_check
    from audit.accuracy.text import report_code
    from audit.cli.accuracy import show_check

    findings = derive_check(run)
    show_check(run, findings, as_json=as_json)
    return report_code(findings, strict=strict)


def _remedy(run: Path, *, as_json: bool, strict: bool) -> int:
    from audit.cli.remedy import show_remedy
    from audit.remedy.findings import report_code
    from audit.remedy.page import derive_remedy

    findings = derive_remedy(run)
    show_remedy(run, findings, as_json=as_json)
    return report_code(findings, strict=strict)
