"""A copy of a run that shows no prompt and no stream, and can still be judged.

In goes a sealed run folder, out comes a copy in which manifest, history and seal are the same bytes. What is left out
is listed by name and digest in omitted.json, outside the seal, with the plan without its prompts' words, so that a
reader can still unfold it. Nothing is judged here.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.kind import kind_of
from audit.plan import Plan
from audit.record import Complete, Invoke
from audit.store import OMITTED, SUMS, Run, write_derived
from audit.stream import FORMAT, canonical

__all__ = ["export_digests"]

_PLACEHOLDERS = ("{registered}", "{block}")
_DERIVED = ("findings.json", "cells.csv")
_PAGES = ("report.html", "report.md")


def _bears_words(run: Run) -> set[str]:
    """Return the facts that hold token ids: frozen prompts, request bodies, and echoes of a grammar of ids."""
    names = {name for prompts in run.manifest.prompts.values() for name in prompts.values()}
    echoes = set()
    for line in run.lines():
        if isinstance(line, Invoke):
            names.add(line.request)
        elif isinstance(line, Complete) and line.reply is not None and line.reply.settings is not None:
            echoes.add(line.reply.settings)
    for name in echoes - names:
        echo = run.fact(name)
        # A forced trial sends its reference's ids as a grammar, which the server repeats.
        if not isinstance(echo, dict) or echo.get("grammar"):
            names.add(name)
    return {f"facts/{name.removeprefix('sha256:')}.json" for name in names}


def _without_words(plan: Plan) -> dict[str, Any]:
    """Return the plan in which each prompt's words are gone but for the placeholders, which decide how it unfolds."""
    values: dict[str, Any] = plan.model_dump(mode="json")
    for name, prompt in values["prompts"].items():
        kept = "".join(word for word in _PLACEHOLDERS if plan.prompts[name].holds(word))
        prompt.update(text=kept, chat=None, ids=None)
    return values


def export_digests(folder: Path, copy: Path) -> int:
    """Write the copy.

    Args:
        folder: a sealed run.
        copy: the folder to write, which must not exist.

    Returns: how many files are left out.
    Raises: UsageError where the run is unsealed or a copy itself, or the copy exists; EvidenceError where facts
        contradict each other.
    """
    if not (folder / SUMS).is_file():
        raise UsageError(f"{folder} is unsealed: its run did not end", hint="only a sealed run can be exported")
    if (folder / OMITTED).is_file():
        raise UsageError(f"{folder} is a copy that leaves files out", hint="export the run that it was made from")
    if kind_of(folder) != "audit":
        # A plan of another kind holds no words that are anybody's secret, and no digest needs the rows' bytes. Its
        # pages hold none either, and show what only rows tell.
        return _copy(folder, copy, lambda path: "rows" in path.split("/")[:-1], plan=None, derived=(*_DERIVED, *_PAGES))
    run = Run.open(folder)
    bearing = _bears_words(run)
    hidden = {"plan.json", "registration/plan.json", "registration/plan.toml"}

    def leaves_out(path: str) -> bool:
        return path.startswith(("streams/", "rows/", "bodies/")) or path in bearing or path in hidden

    return _copy(folder, copy, leaves_out, plan=_without_words(run.plan))


def _copy(
    folder: Path,
    copy: Path,
    leaves_out: Callable[[str], bool],
    *,
    plan: dict[str, Any] | None,
    derived: tuple[str, ...] = _DERIVED,
) -> int:
    """Copy a sealed run without some of its files; `plan` stands in for plan.json where that is one of them."""
    sums = [line.split("  ", 1) for line in (folder / SUMS).read_text().splitlines()]
    omitted = {path: f"sha256:{digest}" for digest, path in sums if leaves_out(path)}
    listed = canonical({"format": FORMAT, "files": omitted, "plan": plan})
    made = {name: (folder / name).read_bytes() for name in derived if (folder / name).is_file()}
    try:
        copy.mkdir(parents=True)
        for _, path in sums:
            if path not in omitted:
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / path, copy / path)
        shutil.copyfile(folder / SUMS, copy / SUMS)
        (copy / OMITTED).write_bytes(listed)
    except OSError as error:
        raise UsageError(f"{copy}: the copy cannot be written: {error.strerror}", hint="give a new folder") from error
    if made:
        write_derived(copy, made)
    return len(omitted)
