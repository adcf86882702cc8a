"""`determinism accuracy decode|capture|calibrate|check|reproduce`: a server against a float32 reference."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from audit.cli import options
from audit.cli.terminal import say, show

if TYPE_CHECKING:
    from audit.accuracy.capture import Done, Job
    from audit.accuracy.inputs import InputFiles
    from audit.sitting import Target

_BEYOND, _MISSING, _INTERRUPTED = 1, 2, 130

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
CorpusArgument = Annotated[Path, typer.Argument(help="The corpus, a canonical JSON index.")]
CapturesArgument = Annotated[list[Path], typer.Argument(help="Folders of captures, in any order.")]
ModelsOption = Annotated[
    list[str] | None, typer.Option("--model", help="A model of the corpus; may be given again; default all.")
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="A registration's folder or a plan.toml; default an exploratory plan.")
]


@app.command(name="decode", help="Write a quantized model in float32; with --check prove that a file is just that.")
def decode(
    model: Annotated[str, typer.Argument(help="A model by name, or a GGUF file.")],
    out: Annotated[Path, typer.Option("--out", help="The float32 file: written, or with --check read.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; compare every value and all metadata.")
    ] = False,
) -> int:
    """Decode a model."""
    from audit.accuracy import decode as decoding
    from audit.local.models import resolve_model

    source = resolve_model(model).path
    done = decoding.check_decoded(source, out) if check else decoding.decode(source, out)
    show(f"sha256:{done.sha256}")
    word = "exact" if check else "decoded"
    say(f"{word}: {done.values} values in {done.tensors} tensors of sha256:{done.source_sha256}")
    if not check:
        say(f"next: determinism accuracy decode {model} --out {out} --check")
    return 0


@app.command(name="capture", help="Record one group of one model, each sequence alone and in whole waves.")
def capture(
    corpus: CorpusArgument,
    model: Annotated[str, typer.Option("--model", help="A model of the corpus.")],
    group: Annotated[str, typer.Option("--group", help="original, short, long or fresh.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write, which must exist and be empty.")],
    local: Annotated[
        str | None, typer.Option("--local", metavar="MODEL", help="Start llama.cpp here with this model.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME=URL", help="A running llama-server, with --declare.")
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="The reference: the decoded model, serial only.")
    ] = False,
    bounds: Annotated[
        Path | None, typer.Option("--bounds", help="The frozen bounds: needed for short, long and fresh.")
    ] = None,
    plan: PlanOption = None,
    binary: options.BinaryOption = None,
    declare: options.DeclareOption = None,
    key_file: options.KeyFileOption = None,
    ca: options.CaOption = None,
    threads: options.ThreadsOption = None,
) -> int:
    """Capture a group."""
    from audit.accuracy.capture import Job, check_job
    from audit.accuracy.inputs import InputFiles
    from audit.accuracy.order import chosen_accuracy_order
    from audit.accuracy.plan import server_settings
    from audit.errors import UsageError

    if (server is None) == (local is None) or (reference and local is None):
        raise UsageError("a capture is of one server", hint="--local MODEL, or --server NAME=URL and no --reference")
    with InputFiles() as inputs:
        order = chosen_accuracy_order(plan, corpus=inputs.read(corpus), name=str(corpus))
        frozen = None if bounds is None else inputs.read(bounds)
        job = Job(order=order, model=model, group=group, side="reference" if reference else "server", bounds=frozen)
        check_job(job)
        cores = options.launch_settings(1, 64, threads).threads
        settings = server_settings(order.corpus, model, job.side, cores)
        _add_files(inputs, local, binary)
        with options.targets(
            server=[server] if server else None,
            local=[local] if local else None,
            binary=binary,
            key_file=key_file,
            ca=ca,
            declare=declare,
            settings=settings,
        ) as (target,):
            done = _run(job, target, out, inputs)
    return _captured(done, out)


@app.command(name="calibrate", help="Freeze bounds: 1.5 times the largest values of the original group, in a new file.")
def calibrate(
    corpus: CorpusArgument,
    captures: CapturesArgument,
    out: Annotated[Path, typer.Option("--out", help="The bounds file to make.")],
    model: ModelsOption = None,
    plan: PlanOption = None,
) -> int:
    """Freeze bounds."""
    from audit.accuracy.bounds import write_bounds
    from audit.accuracy.calibrate import calibrate as calibrated
    from audit.accuracy.inputs import InputFiles
    from audit.accuracy.order import chosen_accuracy_order

    with InputFiles() as inputs:
        order = chosen_accuracy_order(plan, corpus=inputs.read(corpus), name=str(corpus))
        bounds = calibrated(captures, order, models=model or list(order.corpus.models))
        inputs.end()
    typer.echo(write_bounds(bounds, out))
    for name, one in bounds.models.items():
        limits = f"{one.bounds.max_abs:.6g} nats, {one.bounds.relative_l2:.6g}, {one.bounds.total_variation:.6g}"
        say(f"{name}: {limits} (absolute, relative L2, total variation) from {one.rows} rows")
    say(f"next: capture short, long and fresh with --bounds {out}")
    return 0


@app.command(name="check", help="Compare every captured row with its bounds; exit 1 where one is beyond them.")
def check(
    corpus: CorpusArgument,
    captures: CapturesArgument,
    bounds: Annotated[Path, typer.Option("--bounds", help="The frozen bounds.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    model: ModelsOption = None,
    plan: PlanOption = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Also write all rows as one Parquet file.")] = None,
    as_json: options.JsonOption = False,
) -> int:
    """Check captures."""
    from audit.accuracy.check import Checking
    from audit.accuracy.check import check as checked
    from audit.accuracy.findings import derive_check
    from audit.accuracy.inputs import InputFiles
    from audit.accuracy.order import chosen_accuracy_order
    from audit.accuracy.record import AccuracyRun
    from audit.accuracy.table import write_parquet
    from audit.accuracy.text import check_code
    from audit.cli.run import ProgressLine
    from audit.execution import Progress

    line = ProgressLine()
    with InputFiles() as inputs:
        order = chosen_accuracy_order(plan, corpus=inputs.read(corpus), name=str(corpus))
        checking = Checking(
            order=order, folders=captures, bounds=inputs.read(bounds), models=model or list(order.corpus.models)
        )
        checked(
            checking,
            out,
            inputs,
            report=lambda name, done, total: line.show(
                Progress(server="check", condition=name, done=done, total=total)
            ),
        )
    line.end()
    findings = derive_check(out)
    if parquet is not None:
        say(f"{write_parquet(AccuracyRun.open(out), parquet)} rows in {parquet}")
    show_check(out, findings, as_json=as_json)
    return check_code(findings)


def show_check(folder: Path, findings: dict[str, Any], *, as_json: bool) -> None:
    """Show what a check found."""
    import json

    from audit.accuracy.text import check_text

    show(json.dumps(findings, indent=1) if as_json else check_text(findings).removesuffix("\n"))
    say(f"wrote {folder / 'report.html'}; next: python3 -I -S scripts/verify.py {folder}")


@app.command(name="reproduce", help="Capture a reference again from its record; exit 1 where a row differs.")
def reproduce(
    original: Annotated[Path, typer.Argument(help="The folder of a reference's capture.")],
    local: Annotated[str, typer.Option("--local", metavar="MODEL", help="The decoded model.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write, which must exist and be empty.")],
    binary: options.BinaryOption = None,
) -> int:
    """Reproduce a reference."""
    from audit.accuracy.archive import open_capture
    from audit.accuracy.capture import Job
    from audit.accuracy.inputs import InputFiles
    from audit.accuracy.reproduce import compared, order_of, settings_of
    from audit.local.launch import LaunchSettings

    first = open_capture(original)
    job = Job(
        order=order_of(first),
        model=first.head.model,
        group=first.head.group,
        side="reference",
        reproduces=first.packed(),
    )
    with InputFiles() as inputs:
        _add_files(inputs, local, binary)
        with options.targets(
            server=None,
            local=[local],
            binary=binary,
            key_file=None,
            ca=None,
            declare=None,
            settings=LaunchSettings(**settings_of(first)),
        ) as (target,):
            done = _run(job, target, out, inputs)
    code = _captured(done, out)
    if code:
        return code
    found = compared(first, out)
    show(f"{found.rows - len(found.differing)} of {found.rows} rows are the same, by {found.build}")
    for sequence, position in found.differing[:10]:
        show(f"differs: {sequence} position {position}")
    return _BEYOND if found.differing else 0


def _add_files(inputs: "InputFiles", local: str | None, binary: str | None) -> None:
    """Hash what a server of ours is started from."""
    from audit.local.models import resolve_binary, resolve_model

    if local is not None:
        inputs.add(resolve_model(local).path)
    if binary is not None:
        inputs.add(resolve_binary(binary))


def _run(job: "Job", target: "Target", out: Path, inputs: "InputFiles") -> "Done":
    """Capture with a line of progress, until the end or the user's wish to stop."""
    from audit.accuracy.capture import Done
    from audit.accuracy.capture import capture as captured
    from audit.cli.run import ProgressLine
    from audit.cli.stop import Stop

    line = ProgressLine()
    try:
        with Stop() as stop:
            return stop.run(captured(job, target, out, inputs, report=line.show, stopped=stop.asked))
    except KeyboardInterrupt:
        return Done(seal=None, refused={})
    finally:
        line.end()


def _captured(done: "Done", out: Path) -> int:
    """Say what became of a capture, and return its exit code."""
    if done.seal is None:
        say(f"interrupted: {out} is unsealed; remove it and capture the group again")
        return _INTERRUPTED
    typer.echo(out)
    say(f"sealed {done.seal}")
    for trial, reason in done.refused.items():
        say(f"refused: {trial}: {reason}")
    return _MISSING if done.refused else 0
