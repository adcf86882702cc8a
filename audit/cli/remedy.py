"""`determinism remedy`: which setting makes a server reproducible, and what it costs."""

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli import options
from audit.cli.terminal import say, show
from audit.errors import UsageError

if TYPE_CHECKING:
    from audit.remedy.launcher import Launcher
    from audit.remedy.plan import RemedyPlan

_INTERRUPTED = 130
_ROUNDS, _CONFIRMED_MAX = 2, 3
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def command(
    model: Annotated[str | None, typer.Option("--model", metavar="GGUF", help="The model: a name or a .gguf.")] = None,
    binary: options.BinaryOption = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME", help="Try this setting only; again for more. Default: all."),
    ] = None,
    list_settings: Annotated[
        bool, typer.Option("--list-settings", help="Print the catalogue of settings, and start nothing.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Begin nothing more after this time: 20m, 900s, 1h."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=20, help="Starts that screen one setting; default 2.")
    ] = None,
    confirm: Annotated[
        int | None, typer.Option("--confirm", min=1, max=100, help="Settings to confirm at most; default 3.")
    ] = None,
    plan: Annotated[Path | None, typer.Option("--plan", help="The plan of an audit to ask instead.")] = None,
    slots: options.SlotsOption = 8,
    ctx: options.CtxOption = 1024,
    threads: options.ThreadsOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder; default results/local/TIME.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Take up an unsealed remedy with the same server and finish it."),
    ] = None,
    strict: Annotated[bool, typer.Option("--assert", help="Exit 1 where a divergence has no remedy.")] = False,
    as_json: options.JsonOption = False,
) -> int:
    """Measure the settings of a model on a build."""
    from audit.local.models import resolve_binary, resolve_model
    from audit.plan import Plan
    from audit.remedy.catalogue import CATALOGUE
    from audit.remedy.launcher import LlamaLauncher
    from audit.remedy.plan import RemedyPlan

    if list_settings:
        width = max(len(one.name) for one in CATALOGUE)
        show(
            "\n".join(f"{one.name:<{width}}  {' '.join(one.words)}: {one.what}; costs {one.cost}" for one in CATALOGUE)
        )
        return 0
    if model is None:
        raise UsageError("no model is named", hint="add --model with a name or the path of a .gguf")
    options.refuse_beside_resume(resume, {"--plan": plan, "--rounds": rounds, "--confirm": confirm, "--out": out})
    budget_s = seconds(budget)
    asked = None
    if resume is None:
        loaded = Plan.load(plan or options.DATA / "remedy.toml")
        asked = RemedyPlan.of(loaded, rounds=rounds or _ROUNDS, confirmed_max=confirm or _CONFIRMED_MAX)
    launcher = LlamaLauncher(
        file=resolve_model(model),
        base=options.launch_settings(slots, ctx, threads),
        binary=None if binary is None else resolve_binary(binary),
    )
    folder = resume or out or Path("results/local") / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    words: list[object] = ["determinism", "remedy", "--resume", folder, "--model", model]
    words += ["--binary", binary] if binary is not None else []
    words += [word for name in setting or [] for word in ("--setting", name)]
    words += ["--slots", slots, "--ctx", ctx, *(["--threads", threads] if threads else [])]
    again = shlex.join(map(str, words))
    return perform(
        asked, launcher, folder, names=setting, budget_s=budget_s, strict=strict, as_json=as_json, again=again
    )


def perform(
    plan: "RemedyPlan | None",
    launcher: "Launcher",
    folder: Path,
    *,
    names: list[str] | None = None,
    budget_s: float | None = None,
    strict: bool = False,
    as_json: bool = False,
    again: str = "",
) -> int:
    """Measure with any launcher, report, and return the exit code.

    Without a plan the folder holds an unsealed remedy, which is taken up; `again` is the command that does so.
    """
    from audit.cli.stop import Stop
    from audit.remedy.catalogue import chosen
    from audit.remedy.findings import report_code
    from audit.remedy.measure import measure
    from audit.remedy.page import derive_remedy

    with Stop() as stop:
        seal = measure(
            plan, launcher, chosen(names), folder, perform=stop.run, say=say, stopped=stop.asked, budget_s=budget_s
        )
    if seal is None:
        say(f"interrupted: {folder} is unsealed and keeps every finished start; resume it with\n{again}")
        return _INTERRUPTED
    findings = derive_remedy(folder)
    show_remedy(folder, findings, as_json=as_json)
    return report_code(findings, strict=strict)


def show_remedy(folder: Path, findings: dict, *, as_json: bool) -> None:  # type: ignore[type-arg]
    """Print what was found."""
    from audit.remedy.text import remedy_text
    from audit.stream import canonical

    if as_json:
        show(canonical(findings).decode().removesuffix("\n"))
        return
    show(remedy_text(findings).removesuffix("\n"))
    say(f"wrote {folder / 'report.html'}; next: python3 -I -S scripts/verify.py {folder}")


def seconds(text: str | None) -> float | None:
    """Read a time such as 20m, 900s or 1h.

    Raises: UsageError for anything else.
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    if found is None:
        raise UsageError(f"--budget {text!r} is no time", hint="as in --budget 20m, 900s or 1h")
    return float(found[1]) * _UNITS[found[2]]
