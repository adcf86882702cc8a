"""`determinism identity`: does a new build compute exactly what an old one did."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from audit.cli import options
from audit.cli.terminal import say, show

if TYPE_CHECKING:
    from audit.identity.gate import Choice, Compared
    from audit.identity.order import IdentityOrder

_INTERRUPTED = 130

BUILD = "A git revision (with --repo), binary:PATH, pypi:xllamacpp==VERSION, or http://HOST:PORT of one that runs."
RepoOption = Annotated[Path | None, typer.Option("--repo", help="The llama.cpp checkout of the git revisions.")]
AssetsOption = Annotated[
    Literal["tiny", "real"],
    typer.Option("--assets", help="tiny: random weights of many architectures; real: two small models."),
]
ModelOption = Annotated[
    list[str] | None, typer.Option("--model", help="Compare on this model instead: a name or a .gguf; again for more.")
]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Only these architectures, apart by commas.")]
OnlyOption = Annotated[str | None, typer.Option("--only", help="Only these cells, apart by commas.")]
QuantOption = Annotated[str | None, typer.Option("--quant", help="Only these quantizations of the tiny models.")]
StepsOption = Annotated[int | None, typer.Option("--steps", min=0, help="Decoded steps; a prompt has one row more.")]
DeviceOption = Annotated[
    Literal["cpu", "vulkan", "cuda", "metal"] | None, typer.Option("--device", help="Where both sides must run.")
]
TimeoutOption = Annotated[float | None, typer.Option("--timeout", min=1, help="Seconds that one process may take.")]
KeepOption = Annotated[bool, typer.Option("--keep", help="Leave builds, dumps and logs, and say where.")]
PlanOption = Annotated[Path | None, typer.Option("--plan", help="A plan.toml, or a registration's folder.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="The run folder; default results/local/TIME.")]
RequireOption = Annotated[bool, typer.Option("--require-all", help="Exit 3 where anything was NOT RUN.")]


def command(
    old: Annotated[str, typer.Argument(help=BUILD)],
    new: Annotated[str, typer.Argument(help=BUILD)],
    repo: RepoOption = None,
    assets: AssetsOption = "tiny",
    model: ModelOption = None,
    family: FamilyOption = None,
    only: OnlyOption = None,
    quant: QuantOption = None,
    steps: StepsOption = None,
    device: DeviceOption = None,
    timeout: TimeoutOption = None,
    keep: KeepOption = False,
    plan: PlanOption = None,
    out: OutOption = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write candidate rows for a parity record to this file.")
    ] = None,
    require_all: RequireOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Compare two builds."""
    from audit.identity.builds import parse_spec
    from audit.identity.findings import exit_code
    from audit.identity.parity import write_candidates

    specs = [("old", parse_spec(old)), ("new", parse_spec(new))]
    order = chosen_identity_order(plan, steps=steps, device=device, timeout=timeout)
    choice = chosen_assets(assets, model, family, only, quant)
    with interruptible():
        compared = run_builds(order, specs, choice, repo=repo, keep=keep, out=out)
    show_compared(compared, as_json=as_json)
    if record is not None:
        for refusal in write_candidates(compared.folder, record):
            say(f"not a candidate: {refusal}")
    return exit_code(compared.findings, require_all=require_all)


def chosen_identity_order(
    plan: Path | None, *, steps: int | None, device: str | None, timeout: float | None
) -> "IdentityOrder":
    """Return the plan that is named, or else the registered study, with what flags change."""
    from audit.identity.order import order_of

    checkout = options.DATA.parent.parent / "prereg" / "identity"
    path = plan or (checkout if checkout.is_dir() else options.DATA / "prereg" / "identity")
    return order_of(path, changes={"steps": steps, "device": device, "timeout_s": timeout})


def chosen_assets(
    assets: Literal["tiny", "real"],
    model: list[str] | None,
    family: str | None,
    only: str | None,
    quant: str | None,
) -> "Choice":
    """Return which models are compared."""
    from audit.identity.gate import Choice

    def words(text: str | None) -> list[str]:
        return [word.strip() for word in (text or "").split(",") if word.strip()]

    return Choice(
        assets=assets, models=model or [], families=words(family), quantizations=words(quant), only=words(only)
    )


def run_builds(
    order: "IdentityOrder",
    specs: list,  # type: ignore[type-arg]
    choice: "Choice",
    *,
    repo: Path | None,
    keep: bool,
    out: Path | None,
) -> "Compared":
    """Make builds and models ready, compare, and return what was found."""
    from audit.identity.gate import choose_assets, compare_builds, ready

    folder = out or Path("results/local") / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    choose_assets(choice, order)
    with ready(specs, repo=repo, keep=keep, say=say) as (builds, tree):
        found, skipped = choose_assets(choice, order, tree=tree)
        compared = compare_builds(order, builds, found, folder, not_run=skipped, say=say)
    if compared is None:
        raise KeyboardInterrupt
    return compared


def show_compared(compared: "Compared", *, as_json: bool) -> None:
    """Print what was found."""
    from audit.advice import advice_on_builds
    from audit.identity.evidence import IdentityRun
    from audit.identity.text import identity_text
    from audit.stream import canonical

    if as_json:
        show(canonical(compared.findings).decode().removesuffix("\n"))
    else:
        run = IdentityRun.open(compared.folder)
        show(identity_text(compared.findings, run.manifest, run.asked).removesuffix("\n"))
        say(f"wrote {compared.folder / 'report.html'}; next: python3 -I -S scripts/verify.py {compared.folder}")
    for line in advice_on_builds(compared.findings):
        say(line)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into what SIGINT does, so that builds and worktrees are always taken away."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
