"""`determinism bisect`: which build changed the numbers of a model."""

import time
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import identity, options
from audit.cli.terminal import say, show

_FOUND = 1


def command(
    good: Annotated[
        str, typer.Argument(help="The older build: a git revision (with --repo) or pypi:xllamacpp==VERSION.")
    ],
    bad: Annotated[str, typer.Argument(help="The newer build, of the same kind.")],
    epochs: Annotated[
        bool, typer.Option("--epochs", help="Run all builds and group them into classes with equal rows.")
    ] = False,
    among: Annotated[
        str | None, typer.Option("--among", help="Besides the two only these versions, apart by commas.")
    ] = None,
    repo: identity.RepoOption = None,
    assets: identity.AssetsOption = "real",
    model: identity.ModelOption = None,
    family: identity.FamilyOption = None,
    only: identity.OnlyOption = None,
    quant: identity.QuantOption = None,
    steps: identity.StepsOption = None,
    device: identity.DeviceOption = None,
    timeout: identity.TimeoutOption = None,
    keep: identity.KeepOption = False,
    plan: identity.PlanOption = None,
    out: identity.OutOption = None,
    require_all: identity.RequireOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Look through the builds between two."""
    from audit.identity.builds import Spec, label_of, parse_spec
    from audit.identity.chain import between, first_changed
    from audit.identity.findings import exit_code

    wanted = [word.strip() for word in (among or "").split(",") if word.strip()]
    builds = between(parse_spec(good), parse_spec(bad), repo=repo, among=wanted)
    order = identity.chosen_identity_order(plan, steps=steps, device=device, timeout=timeout)
    choice = identity.chosen_assets(assets, model, family, only, quant)
    folder = out or Path("results/local") / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    with identity.interruptible():
        if epochs:
            specs = [(label_of(spec), spec) for spec in builds]
            compared = identity.run_builds(order, specs, choice, repo=repo, keep=keep, out=folder)
            identity.show_compared(compared, as_json=as_json)
            return exit_code(compared.findings, require_all=require_all)

        def differs(old: Spec, new: Spec) -> bool:
            say(f"comparing {old.name} with {new.name}")
            place = folder / label_of(new)
            found = identity.run_builds(order, [("old", old), ("new", new)], choice, repo=repo, keep=keep, out=place)
            return exit_code(found.findings, require_all=True) != 0

        changed = first_changed(builds, differs)
    if changed is None:
        show(f"{builds[-1].name} computes what {builds[0].name} does, on every cell that was compared")
        return 0
    place = builds.index(changed)
    show(f"{changed.name} is the first of {len(builds)} builds that differs; {builds[place - 1].name} does not")
    return _FOUND
