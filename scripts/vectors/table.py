"""The table of hostile vectors, and the edits that several of them are made of.

In: a vector's name, the check that fails, the redundancy that the check rests on, and a function that edits a
`Forgery`. Out: VECTORS, in the order in which the parts of this package are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scripts.forgery import Forgery, one_ulp

JSON = Any
Edit = Callable[[Forgery], object]
ZEROS = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Vector:
    """One edit: its name, the check that fails, what that check compares, and how far the forger goes."""

    name: str
    check: str
    redundancy: str
    forge: str
    edit: Edit


VECTORS: list[Vector] = []
REPEAT = "repeat_greedy/a/0"
WAVE = "concurrent_greedy_c2/a/0/w0"
MS = 1_000_000
SEAL_ONLY = "expect"
FORGED = "findings"
UNDETECTABLE: dict[str, str] = {}


def add(name: str, check: str, redundancy: str, edit: Edit, *, forge: str = "links") -> None:
    """Add a vector to the table."""
    VECTORS.append(Vector(name, check, redundancy, forge, edit))


def line(kind: str, index: int = 0, **values: object) -> Edit:
    """Return an edit of one line of a kind."""
    return lambda run: run.of(kind)[index].update(values)


def reply(trial: str, **values: object) -> Edit:
    """Return an edit of a trial's reply."""
    return lambda run: run.reply(trial).update(values)


def first(run: Forgery, folder: str, word: bytes = b"") -> str:
    """Return the first stored file of a folder that holds a word."""
    return next(path for path, data in sorted(run.files.items()) if path.startswith(folder) and word in data)


def patch(path: str, old: bytes, new: bytes) -> Edit:
    """Return an edit of the first file below a path that holds `old`."""

    def edit(run: Forgery) -> None:
        name = first(run, path, old)
        run.files[name] = run.files[name].replace(old, new, 1)

    return edit


def request(trial: str, *, everywhere: bool = False, **values: object) -> Edit:
    """Return an edit of a trial's request, re-addressed for this trial or everywhere."""

    def edit(run: Forgery) -> None:
        invoke = run.of("invoke", trial=trial)[0]
        digest = run.fact({**run.json(invoke["request"]), **values})
        if everywhere:
            run.readdress(invoke["request"], digest)
        else:
            invoke["request"] = digest

    return edit


def metric(unit: str, when: str, **values: str) -> Edit:
    """Return an edit of a snapshot's counters."""
    return lambda run: run.shot(unit, when)["metrics"].update(values)


def echo(trial: str, **values: object) -> Edit:
    """Return an edit of the settings that a server echoed for one trial."""

    def edit(run: Forgery) -> None:
        answer = run.reply(trial)
        answer["settings"] = run.fact({**run.json(answer["settings"]), **values})

    return edit


def rename(step: list[JSON], old: int, new: int) -> None:
    """Let two ids change places in a step, so that the other one was taken and all else fits."""
    other = {old: new, new: old}
    step[0] = other[step[0]]
    step[2] = [[other.get(name, name), logprob] for name, logprob in step[2]]


def moved(trial: str, step: int = 4, *, token: bool = False, cut: int = 0) -> Edit:
    """Return an edit that moves a logprob of one trial by one ULP, or its token, or cuts its last steps off."""

    def edit(run: Forgery) -> None:
        digest = run.reply(trial)["logprob"]
        lines = run.steps(digest)
        if cut:
            lines = lines[:-cut]
        elif token:
            rename(lines[step], lines[step][0], 5 if lines[step][0] != 5 else 6)  # noqa: PLR2004 - any other id
        else:
            lines[step][2][-1][1] = one_ulp(lines[step][2][-1][1])
        run.restream(digest, lines, (trial,))

    return edit


def unseen(name: str, what: str, edit: Edit) -> None:
    """Add a vector that only a deposited seal catches; `what` says what was made up."""
    add(name, SEAL_ONLY, "none: only the deposited seal", edit, forge="findings")
    UNDETECTABLE[name] = what
