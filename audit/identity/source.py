"""Git revisions of a llama.cpp checkout become builds: a worktree each, the dumper written into it, built side by side.

In go revisions and a checkout, out come builds that give logits. All are configured with the same cmake options and
built at the same time; with ccache the second build of nearly the same source is short. The worktrees are removed when
the context ends, however it ends.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from audit.dumper import CMAKE_OPTIONS, build_commands, write_sources
from audit.errors import UsageError
from audit.identity.builds import Spec
from audit.identity.dumping import DumpingRunner
from audit.identity.record import BuildEntry
from audit.identity.running import Build
from audit.identity.scrub import scrubbed

__all__ = ["built_from_source"]

_GIT_SECONDS_MAX = 120
_BUILD_SECONDS_MAX = 3600
_HEARTBEAT_SECONDS = 15
_POLL_SECONDS = 0.2
_LOG_LINES = 15


@contextlib.contextmanager
def built_from_source(
    revisions: Sequence[tuple[str, Spec]], repo: Path, folder: Path, *, keep: bool, say: Callable[[str], None]
) -> Iterator[tuple[list[Build], Path]]:
    """Build every revision, and remove the worktrees afterwards, unless they are kept.

    Args:
        revisions: label and spec of each.
        repo: a checkout of llama.cpp.
        folder: where worktrees and builds go.
        keep: leave them there.
        say: is told what happens, also while nothing else does.

    Raises: UsageError where a revision does not exist, a program is missing, or a build fails.
    """
    missing = [name for name in ("git", "cmake", "ninja", "c++") if shutil.which(name) is None]
    if missing:
        raise UsageError(f"building from source needs {', '.join(missing)}", hint="install it, or compare wheels")
    commits = [_git(repo, "rev-parse", "--verify", "--quiet", f"{spec.name}^{{commit}}") for _, spec in revisions]
    sides = [folder / f"source{index}" for index in range(len(revisions))]
    try:
        for side, commit in zip(sides, commits, strict=True):
            side.mkdir(parents=True)
            _git(repo, "worktree", "add", "--quiet", "--detach", str(side / "tree"), commit)
            write_sources(side / "tree")
        _build_all([label for label, _ in revisions], sides, say)
        yield (
            [
                _build(label, spec, commit, side)
                for (label, spec), commit, side in zip(revisions, commits, sides, strict=True)
            ],
            sides[-1] / "tree",
        )
    finally:
        if not keep:
            for side in sides:
                # A worktree that was not made yet is not there to be removed, and must not hide why.
                with contextlib.suppress(UsageError):
                    _git(repo, "worktree", "remove", "--force", str(side / "tree"))
                shutil.rmtree(side, ignore_errors=True)
            with contextlib.suppress(UsageError):
                _git(repo, "worktree", "prune")


def _build(label: str, spec: Spec, commit: str, side: Path) -> Build:
    entry = BuildEntry(
        label=label,
        source="git",
        name=f"git:{spec.name}",
        commit=commit,
        archive=None,
        options=list(CMAKE_OPTIONS),
        restarts=True,
    )
    runner = DumpingRunner(program=side / "build" / "determinism-dump", folder=side, environment=scrubbed())
    return Build(entry=entry, rows="logits", runner=runner)


def _git(repo: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=False,
            timeout=_GIT_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--repo {repo}: git {arguments[0]} failed: {error}") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or "no such revision").splitlines()
        raise UsageError(f"--repo {repo}: git {' '.join(arguments[:2])} failed for {arguments[-1]!r}: {words[-1]}")
    return done.stdout.strip()


def _build_all(labels: Sequence[str], sides: Sequence[Path], say: Callable[[str], None]) -> None:
    """Configure and build all sides at the same time; the first that fails ends the others."""
    jobs = max(1, (os.cpu_count() or 1) // len(sides))
    running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
    begun = time.monotonic()
    spoken = begun
    try:
        for label, side in zip(labels, sides, strict=True):
            log = side / "build.log"
            script = build_commands(side, jobs=jobs)
            environment = {**scrubbed(), "CCACHE_BASEDIR": str(side), "CCACHE_NOHASHDIR": "true"}
            with log.open("wb") as file:
                process = subprocess.Popen(
                    ["/bin/sh", "-ec", script],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            running[label] = process, log
        while running:
            for label, (process, log) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[label]
                if code != 0:
                    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
                    raise UsageError(f"the build of {label} failed with code {code}", hint=tail)
                say(f"built {label} after {time.monotonic() - begun:.0f} s")
            now = time.monotonic()
            if now - begun > _BUILD_SECONDS_MAX:
                raise UsageError(f"the builds did not end within {_BUILD_SECONDS_MAX} s")
            if now - spoken > _HEARTBEAT_SECONDS and running:
                spoken = now
                say(f"building {', '.join(running)}: {now - begun:.0f} s")
            time.sleep(_POLL_SECONDS)
    finally:
        for process, _ in running.values():
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a build with all that it started: it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
