"""One comparison from beginning to end: builds and models are made ready, run, judged, and what was made is taken away.

In goes what a command line asked, out comes a sealed, reported record. Both verbs, `identity` and `bisect`, come
through here.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from audit.errors import UsageError
from audit.identity.architectures import known_architectures, untried
from audit.identity.assets import REAL_MODELS, Asset, real_assets, tiny_assets
from audit.identity.builds import Spec, prepare
from audit.identity.capture import capture_identity
from audit.identity.evidence import IdentityRun
from audit.identity.findings import identity_findings
from audit.identity.order import IdentityOrder
from audit.identity.page import identity_page
from audit.identity.running import Build
from audit.identity.source import built_from_source
from audit.store import OMITTED, write_derived
from audit.stream import canonical
from audit.tiny import TINY_VOCABULARY

__all__ = ["Choice", "Compared", "choose_assets", "compare_builds", "derive_identity", "identity_files", "ready"]

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which models are compared."""

    assets: Literal["tiny", "real"] = "tiny"
    models: Sequence[str] = ()
    families: Sequence[str] = ()
    quantizations: Sequence[str] = ()
    only: Sequence[str] = ()


@dataclass(frozen=True)
class Compared:
    """A finished comparison: its folder, and what was found."""

    folder: Path
    findings: dict[str, Any]


def choose_assets(
    choice: Choice, order: IdentityOrder, *, tree: Path | None = None
) -> tuple[list[Asset], dict[str, str]]:
    """Return the models, and the reasons of families that are not run.

    `tree` is the source of a build, whose list of architectures then counts as well.

    Raises: UsageError for a name that exists nowhere.
    """
    if choice.models or choice.assets == "real":
        models = choice.models or REAL_MODELS
        assets = real_assets(order.plan, order.registered, models, families=choice.families, only=choice.only)
        return assets, {}
    assets, skipped = tiny_assets(
        order.plan,
        order.registered,
        families=choice.families,
        quantizations=choice.quantizations,
        only=choice.only,
    )
    if tree is not None and not choice.families and not choice.only:
        skipped |= untried(known_architectures(tree))
    return assets, skipped


@contextlib.contextmanager
def ready(
    specs: Sequence[tuple[str, Spec]], *, repo: Path | None, keep: bool, say: Say
) -> Iterator[tuple[list[Build], Path | None]]:
    """Give builds that can run, and a source tree where there is one; what was made goes afterwards, unless kept.

    Raises: UsageError where a build cannot be had.
    """
    with contextlib.ExitStack() as stack:
        if keep:
            folder = Path(tempfile.mkdtemp(prefix="determinism-identity-"))
            stack.callback(say, f"kept: {folder}")
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="determinism-identity-")))
        logs = folder / "logs"
        revisions = [(label, spec) for label, spec in specs if spec.source == "git"]
        made: dict[str, Build] = {}
        tree = None
        if revisions:
            if repo is None:
                raise UsageError(f"{revisions[0][1].name!r} is a git revision of what?", hint="add --repo DIR")
            built, tree = stack.enter_context(built_from_source(revisions, repo, folder, keep=keep, say=say))
            made |= {build.entry.label: build for build in built}
        others = [(label, spec) for label, spec in specs if spec.source != "git"]
        made |= {build.entry.label: build for build in prepare(others, folder, logs=logs, say=say)}
        yield [made[label] for label, _ in specs], tree


def compare_builds(
    order: IdentityOrder,
    builds: Sequence[Build],
    assets: Sequence[Asset],
    folder: Path,
    *,
    not_run: dict[str, str],
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
) -> Compared | None:
    """Run, seal and judge; None where the user stopped it.

    Raises: UsageError where nothing can be compared.
    """
    if any(not build.entry.restarts for build in builds) and len(assets) != 1:
        raise UsageError(
            f"a server that runs already serves one model, and {len(assets)} are asked", hint="name it with --model"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Tiny models leave a core idle that would wait for their server's start; large ones need the memory.
    small = all(asset.vocabulary <= TINY_VOCABULARY for asset in assets)
    seal = capture_identity(
        order,
        builds,
        assets,
        folder,
        not_run=not_run,
        report=say,
        side_by_side=max(1, cores // order.plan.threads) if small else 1,
        stopped=stopped,
    )
    return None if seal is None else Compared(folder, derive_identity(folder))


def identity_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Compute the findings of a sealed identity record and its derived files, and write nothing.

    Raises: UsageError where it is unsealed, or a copy without rows; EvidenceError where facts contradict each other.
    """
    run = IdentityRun.open(folder)
    if run.seal is None:
        raise UsageError(
            f"{folder} is unsealed: its run did not end", hint="an unsealed run is no evidence; run it again"
        )
    if (folder / OMITTED).is_file():
        raise UsageError(
            f"{folder} is a copy without its rows, whose findings would lose what only rows show",
            hint=f"verify it: python3 -I -S scripts/verify.py {folder}",
        )
    found = identity_findings(run)
    return found, {"findings.json": canonical(found), **identity_page(run, found)}


def derive_identity(folder: Path) -> dict[str, Any]:
    """Compute as `identity_files` does, and write the files anew."""
    found, files = identity_files(folder)
    write_derived(folder, files)
    return found
