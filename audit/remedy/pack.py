"""The repro pack: a folder that shows a divergence with curl alone, fit for a report to those who make the server.

In go what was isolated and the server's line, out come request bodies as files, `server.txt`, `repro.sh`, `result.json`
and a README. The script is then run, where curl is there, and its own count is written down: k of n runs, and `weak`
where that is fewer than 5 of 10.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from audit.errors import UsageError
from audit.remedy.cobatch import Cobatch, Found
from audit.remedy.isolate import WEAK_BELOW, Isolated, summary
from audit.stream import canonical

__all__ = ["Counted", "Packed", "is_weak", "make_pack", "sentence_of"]

_TIMEOUT_S = 900
_TEN = 10


class Counted(NamedTuple):
    """How many of n runs showed the divergence, and who ran them."""

    k: int
    n: int
    by: str


class Packed(NamedTuple):
    """What a pack holds, and what was counted with it."""

    cobatch: Cobatch
    counted: Counted


def is_weak(counted: Counted) -> bool:
    """Tell whether so few runs show it that others may not see it: fewer than 5 of 10, or the same share."""
    return counted.k * _TEN < WEAK_BELOW * counted.n


def make_pack(folder: Path, found: Found, isolated: Isolated, *, server_line: str, url: str, runs: int) -> Packed:
    """Write the pack of the smallest co-batch that its own script shows on a server, and count with that script.

    A script starts a program a request, which takes longer than our client does; what that hides is too small for a
    report, and the next larger co-batch is taken. Without curl the counts are those of our client.

    Raises: UsageError where the folder holds something or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="give another --out")
        best = Packed(isolated.stages[0], Counted(isolated.shown.k, isolated.shown.n, "our client"))
        counted = []
        for stage in isolated.stages:
            _write(folder, stage, runs)
            by_script = _run_script(folder, url)
            if by_script is None:
                break
            counted.append(Packed(stage, by_script))
            if not is_weak(by_script):
                break
        if counted:
            best = max(counted, key=lambda one: one.counted.k)
        _write(folder, best.cobatch, runs)
        (folder / "server.txt").write_text(f"{server_line}\n", encoding="ascii", errors="backslashreplace")
        said = {"condition": found.condition, "trial": found.trial, "counted": best.counted._asdict()}
        (folder / "result.json").write_bytes(canonical({**said, **summary(isolated)}))
        readme = _readme(found, isolated, best)
        (folder / "README.md").write_text(readme, encoding="ascii", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{folder}: a pack cannot be written here: {error.strerror}") from error
    return best


def _write(folder: Path, cobatch: Cobatch, runs: int) -> None:
    """Write bodies and script, and take away those of another co-batch."""
    for old in folder.glob("neighbour-*.json"):
        old.unlink()
    (folder / "victim.json").write_bytes(canonical(cobatch.victim.body))
    for number, one in enumerate(cobatch.neighbours, 1):
        (folder / f"neighbour-{number}.json").write_bytes(canonical(one.body))
    (folder / "repro.sh").write_text(_script(cobatch, runs), encoding="ascii")
    (folder / "repro.sh").chmod(0o755)


def _script(cobatch: Cobatch, runs: int) -> str:
    """Return a few lines of curl: the request alone, then beside its neighbours, and whether its logprobs differ."""

    def later(delay_ms: float) -> str:
        return f"sleep {delay_ms / 1000:g}; " if delay_ms else ""

    asks = [
        f"  ({later(one.delay_ms)}ask neighbour-{at}.json) > /dev/null &\n"
        for at, one in enumerate(cobatch.neighbours, 1)
    ]
    return (
        "#!/bin/sh\n"
        "# Are a reply's logprobs the same alone and beside others? usage: sh repro.sh [URL] [RUNS]; needs curl.\n"
        f"url=${{1:-http://127.0.0.1:8080}} runs=${{2:-{runs}}} differ=0 run=0\n"
        'cd "$(dirname "$0")" && out=$(mktemp -d) || exit 2\n'
        'ask() { curl -sf -H \'Content-Type: application/json\' -d @"$1" "$url/completion" '
        "| grep -o '\"logprob\":[^,}]*'; }\n"
        'ask victim.json > "$out/alone" || exit 2\n'
        'while [ "$run" -lt "$runs" ]; do\n'
        + "".join(asks)
        + f'  {later(cobatch.victim.delay_ms)}ask victim.json > "$out/beside"; wait\n'
        '  cmp -s "$out/alone" "$out/beside" || differ=$((differ + 1)); run=$((run + 1))\n'
        "done\n"
        'rm -r "$out"; echo "$differ of $runs runs differ"\n'
    )


def _run_script(folder: Path, url: str) -> Counted | None:
    """Run the script of a pack against a server; None where there is no curl.

    Raises: UsageError where it does not say what it counted.
    """
    shell = shutil.which("sh")
    if shell is None or shutil.which("curl") is None:
        return None
    done = subprocess.run(
        [shell, "repro.sh", url], cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    found = re.fullmatch(r"([0-9]+) of ([0-9]+) runs differ", done.stdout.strip())
    if found is None:
        raise UsageError(f"{folder}/repro.sh exited with {done.returncode} and said {done.stdout.strip()!r}")
    return Counted(int(found[1]), int(found[2]), "repro.sh")


def sentence_of(packed: Packed) -> str:
    """Return what a pack says of itself."""
    k, n, by = packed.counted
    weak = " This pack is weak: others may not see it." if is_weak(packed.counted) else ""
    return f"{k} of {n} runs show it, counted by {by}.{weak}"


def _readme(found: Found, isolated: Isolated, packed: Packed) -> str:
    count = len(packed.cobatch.neighbours)
    beside = f"{count} other request{'s' * (count != 1)}"
    step = "" if isolated.first_step is None else f" The first step that moved was {isolated.first_step} (0 = prefill)."
    rows = "".join(f"| {one.factor} | {one.words} | {one.k} of {one.n} |\n" for one in isolated.tried)
    return (
        f"# The same request, other logprobs beside {beside}\n\n"
        f"`victim.json` sent alone gives the same logprobs every time; sent together with {beside} it gives others, "
        f"with the prompt cache off and a fixed seed. {sentence_of(packed)}{step}\n\n"
        "## To see it\n\n"
        f"Start the server as in `server.txt` (build {found.declared.get('build', 'not declared')}), then\n\n"
        "    sh repro.sh http://127.0.0.1:8080\n\n"
        "It needs curl and nothing of the program that wrote this.\n\n"
        "## What was varied\n\n"
        f"One factor at a time, from the whole wave ({isolated.whole.k} of {isolated.whole.n} runs moved), before it "
        "was halved to what is here.\n\n"
        f"| factor | variation | moved in |\n|---|---|---|\n{rows}"
    )
