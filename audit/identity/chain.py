"""The builds between a good and a bad one, and which of them changed the numbers.

In go two specs of one kind, out comes the list of builds from one to the other: git revisions along the ancestry, or
the published versions of xllamacpp in order. Halving the list finds the first build that differs from the good one, if
numbers change only once in between; comparing all of them in a row supposes nothing.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from audit.errors import UsageError
from audit.identity.builds import Spec

__all__ = ["between", "first_changed"]

_SECONDS_MAX = 120
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def between(good: Spec, bad: Spec, *, repo: Path | None, among: Sequence[str] = ()) -> list[Spec]:
    """List the builds from `good` to `bad`, both included.

    Args:
        good: the older one.
        bad: the newer one, of the same source.
        repo: the checkout of git revisions.
        among: keep only these versions besides the two, empty for all.

    Raises: UsageError where the two have no such order.
    """
    if {good.source, bad.source} == {"git"}:
        if repo is None:
            raise UsageError(f"{good.name!r} is a git revision of what?", hint="add --repo DIR")
        command = ["git", "-C", str(repo), "rev-list", "--reverse", "--ancestry-path", f"{good.name}..{bad.name}"]
        commits = _lines(command, f"git rev-list {good.name}..{bad.name}")
        found = [good, *(Spec("git", commit) for commit in commits)]
    elif {good.source, bad.source} == {"pypi"}:
        versions = sorted(_published(), key=_order)
        first, last = (spec.name.partition("==")[2] for spec in (good, bad))
        unknown = [version for version in (first, last, *among) if version not in versions]
        if unknown:
            raise UsageError(f"the index has no xllamacpp {unknown[0]}", hint=f"the newest is {versions[-1]}")
        inside = [version for version in versions if _order(first) <= _order(version) <= _order(last)]
        kept = [version for version in inside if not among or version in {first, last, *among}]
        found = [Spec("pypi", f"xllamacpp=={version}") for version in kept]
    else:
        raise UsageError(
            f"between {good.source} {good.name} and {bad.source} {bad.name} there are no builds to look through",
            hint="give two git revisions with --repo, or two pypi:xllamacpp versions",
        )
    if len(found) < len((good, bad)):
        raise UsageError(f"{bad.name} does not come after {good.name}", hint="give the older build first")
    return found


def first_changed(builds: Sequence[Spec], differs: Callable[[Spec, Spec], bool]) -> Spec | None:
    """Return the first build that differs from the one before it, by halving; None where the last equals the first.

    Args:
        builds: the builds in order.
        differs: compares the first of them with another one.
    """
    if not differs(builds[0], builds[-1]):
        return None
    low, high = 0, len(builds) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if differs(builds[0], builds[middle]):
            high = middle
        else:
            low = middle
    return builds[high]


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _published() -> list[str]:
    """Ask pip which versions of xllamacpp the configured index has."""
    command = [sys.executable, "-m", "pip", "index", "versions", "xllamacpp", "--disable-pip-version-check"]
    for line in _lines(command, "pip index versions xllamacpp"):
        _, found, listed = line.partition("Available versions:")
        if found:
            return [version for version in listed.replace(" ", "").split(",") if _VERSION.fullmatch(version)]
    raise UsageError("pip names no versions of xllamacpp", hint="check the network, and that this Python has pip")


def _lines(command: list[str], what: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{what} failed: {error}") from error
    if done.returncode != 0:
        raise UsageError(f"{what} failed: {(done.stderr.strip() or 'it said nothing').splitlines()[-1]}")
    return done.stdout.splitlines()
