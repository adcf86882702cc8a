"""Advice: what helps against a divergence on the very build that showed it, as far as anybody has measured it.

In go a run folder and its findings, out come lines for a person: the settings that a stored remedy has shown to help on
this build with this model; where there is none, what llama.cpp itself says, with its source; where that says nothing
about the condition either, nothing. Of two builds that differ only upstream says something. Advice is for the terminal
and never part of a record or of its report.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from audit.stream import canonical, digest

__all__ = ["ENTRIES", "Position", "advice_of", "advice_on_builds", "build_key", "entry_of", "moved_cells", "position"]

JSON = dict[str, Any]
ENTRIES = Path(__file__).parent / "data" / "advice.json"
LOCAL = Path("results/local")
_MOVED = ("divergent", "token-identical")
# What upstream's sentence is about: requests that share a batch, or a prompt of which a part was computed before.
_BATCH = ("concurrent_", "oversubscribed_", "cross_batch_", "wave_repeat", "cache_warm", "cache_prefix")
_SYSTEM_LIBRARY = "libm."


class Position(NamedTuple):
    """What somebody says, and where."""

    words: str
    source: str


def position() -> Position:
    """Return upstream's own position on batches."""
    return Position(
        'llama.cpp says of `cache_prompt` that, depending on the backend, "the logits are not guaranteed to be '
        'bit-for-bit identical for different batch sizes"',
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    )


def position_on_versions() -> Position:
    """Return what upstream says of two builds, in a maintainer's words."""
    return Position(
        'a maintainer of llama.cpp says that "there is no guarantee that results will b[e] bit-for-bit identical '
        'across versions"',
        "https://github.com/ggml-org/llama.cpp/issues/12816",
    )


def build_key(declared: Mapping[str, Any]) -> str | None:
    """Return what a declared build and model are known by; None where the declaration does not pin them.

    That is the digest of the model and of the mapped libraries that hold its arithmetic, or of the program where it is
    one file; the system's own libm is left out, since it is not part of the build.
    """
    libraries = sorted(
        (str(one.get("name")), str(one.get("sha256")))
        for one in declared.get("libraries") or []
        if isinstance(one, Mapping) and one.get("sha256") and not str(one.get("name")).startswith(_SYSTEM_LIBRARY)
    )
    program = declared.get("executable_sha256") if str(declared.get("build")).startswith("binary:") else None
    model = declared.get("model_sha256")
    if not model or not (libraries or program):
        return None
    return digest(canonical({"libraries": libraries, "model": model, "program": program}))


def entry_of(folder: Path, *, source: str) -> JSON | None:
    """Return what a reported remedy has shown, for the table of advice; None where it shows nothing or is none."""
    findings = _read(folder / "findings.json")
    if not isinstance(findings, dict) or findings.get("kind") != "remedy" or not findings.get("sound"):
        return None
    declared = next(iter(_declared(folder / "arms" / findings["arms"][0]["arm"]).values()), None)
    key = None if declared is None else build_key(declared)
    remedies = [
        {
            "setting": row["setting"],
            "conditions": [cell["condition"] for cell in row["cells"] if cell["status"] == "remedy"],
            "best": row["pareto"],
        }
        for row in findings["settings"]
        if row["remedied"]
    ]
    if key is None or not remedies:
        return None
    named = {"build": findings["build"], "model": findings["model"]}
    return {"key": key, **named, "remedies": remedies, "source": source}


def advice_of(folder: Path, moved: Sequence[tuple[str, str]], *, table: Path = ENTRIES) -> list[str]:
    """Return advice on cells (server, condition) of an audit that moved, one line each.

    Args:
        folder: the audit's folder, of which the declarations are read.
        moved: the cells.
        table: the measured entries that are shipped.
    """
    batched = [(server, condition) for server, condition in moved if condition.startswith(_BATCH)]
    if not batched:
        return []
    declared = _declared(folder)
    known = {entry["key"]: entry for entry in [*_entries(table), *_own(LOCAL)]}
    lines, unknown = [], False
    for server in dict.fromkeys(server for server, _ in batched):
        entry = known.get(build_key(declared.get(server, {})) or "")
        conditions = [condition for name, condition in batched if name == server]
        words = [] if entry is None else [_words(server, entry, one, conditions) for one in entry["remedies"]]
        lines += [line for line in words if line]
        unknown = unknown or not any(words)
    if unknown:
        said = position()
        lines.append(f"advice: {said.words} ({said.source})")
        lines.append("advice: `determinism remedy --model GGUF` measures which setting helps on a build of your own")
    return lines


def advice_on_builds(findings: Mapping[str, Any]) -> list[str]:
    """Return advice where two builds of an identity record gave rows that differ; no setting is known to help there."""
    cells = [cell for pair in findings["pairs"] for cell in pair["cells"]]
    if all(cell["difference"] is None for cell in cells):
        return []
    said = position_on_versions()
    return [
        f"advice: {said.words} ({said.source})",
        "advice: `determinism bisect OLD NEW` finds the build between two that changed the numbers",
    ]


def moved_cells(findings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the cells of an audit's findings in which logprobs or tokens moved."""
    return [(cell["server"], cell["condition"]) for cell in findings.get("cells", []) if cell["verdict"] in _MOVED]


def _words(server: str, entry: JSON, remedy: JSON, conditions: Sequence[str]) -> str | None:
    helped = [condition for condition in conditions if condition in remedy["conditions"]]
    if not helped:
        return None
    return (
        f"advice: {server}: {remedy['setting']} made {', '.join(helped)} identical on this very build "
        f"({entry['build']}) with this model; measured in {entry['source']}"
    )


def _entries(table: Path) -> list[JSON]:
    found = _read(table)
    return list(found["entries"]) if isinstance(found, dict) else []


def _own(root: Path) -> Iterable[JSON]:
    """Yield what remedies of the user's own have shown."""
    for path in sorted(root.glob("*/findings.json")):
        entry = entry_of(path.parent, source=path.parent.as_posix())
        if entry is not None:
            yield entry


def _declared(folder: Path) -> dict[str, JSON]:
    """Return what is declared of each server of an audit; nothing where the folder does not say it."""
    manifest = _read(folder / "manifest.json")
    servers = manifest.get("servers", []) if isinstance(manifest, dict) else []
    found = {}
    for server in servers:
        name = server.get("declaration")
        fact = _read(folder / "facts" / f"{name.removeprefix('sha256:')}.json") if name else None
        if isinstance(fact, dict):
            found[server["label"]] = fact
    return found


def _read(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON document, None where there is none: advice never fails."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
