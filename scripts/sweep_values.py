"""Change single JSON values of a run as a forger would, and sort the fields by whether anything notices.

In: the golden run. Each try takes a field at random, of it one value, and changes it; facts and streams get their new
address everywhere, the chain is linked again, and both sums are made again, the seal in the findings too. Out: a line
with seed and figures. A change is refused, or contradicts the findings, or its field is unanchored: nothing stored says
it twice. Unanchored fields are listed in docs/explanation/independence.md; one that is not listed is exit 1.

It deliberately changes one value at a time: edits of several that agree are in scripts/make_vectors.py.

    python -m scripts.sweep_values [--count N] [--seed S] [--write]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts.forgery import GOLDEN, REPOSITORY, Forgery, examine, failed, load_verifier, one_ulp, require_sound

JSON = Any
PAGE = REPOSITORY / "docs" / "explanation" / "independence.md"
BEGIN, END = "<!-- unanchored: begin -->\n", "<!-- unanchored: end -->\n"
# Of these facts no field has a name in the format: one row stands for all of them.
WHOLE = ("declaration", "models", "props")
# The keys below are names of the run, not fields of the format.
NAMED = (
    re.compile(r"(?<=^manifest\.dependencies\.).+"),
    re.compile(r"(?<=^manifest\.prompts\.).+"),
    re.compile(r"(?<=^manifest\.registration\.files\.).+(?=\.(blob|sha256)$)"),
)
SLOT = ("id", "is_processing", "n_prompt_tokens")
LINKED = ("n", "prev")


@dataclass
class Leaf:
    """One value: the object or list that holds it, its key there, and the document that it belongs to."""

    holder: JSON
    key: JSON
    document: JSON
    address: str = ""  # of a fact or stream, its digest


@dataclass
class Swept:
    """What a sweep found: counts by outcome, and of each unanchored field one change that nothing noticed."""

    outcomes: dict[str, int] = field(default_factory=dict)
    unanchored: dict[str, str] = field(default_factory=dict)
    bugs: list[str] = field(default_factory=list)
    fields: int = 0


def leaves(value: JSON, name: str) -> Iterator[tuple[str, JSON, JSON]]:
    """Yield the name, the holder and the key of each value that is no object and no list with elements."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        path = f"{name}.{key}" if isinstance(value, dict) else f"{name}[]"
        if isinstance(inner, (dict, list)) and inner:
            yield from leaves(inner, path)
        else:
            yield path, value, key


def kinds(run: Forgery) -> dict[str, str]:
    """Return what each fact of a run is, by digest."""
    found: dict[str, str] = {}
    for entry in run.manifest["servers"]:
        found |= {entry["attested"][name]: name for name in ("props", "models")} | {entry["declaration"]: "declaration"}
    found |= {digest: "prompt" for prompts in run.manifest["prompts"].values() for digest in prompts.values()}
    found |= {line["props"]: "props" for line in run.of("snapshot")}
    found |= {line["request"]: "request" for line in run.of("invoke")}
    return found | {line["reply"]["settings"]: "settings" for line in run.of("complete")}


def fields_of(run: Forgery) -> dict[str, list[Leaf]]:
    """Return all values of a run by the name of their field."""
    found: dict[str, list[Leaf]] = {}
    documents = [("manifest", run.manifest, ""), *((f"history.{line['line']}", line, "") for line in run.lines)]
    documents += [(kind, run.json(digest), digest) for digest, kind in sorted(kinds(run).items())]
    for kind, document, address in documents:
        for path, holder, key in leaves(document, kind):
            if not (kind.startswith("history") and key in LINKED):
                found.setdefault(field_name(kind, path, key), []).append(Leaf(holder, key, document, address))
    for path in sorted(path for path in run.files if path.startswith("streams/")):
        digest = "sha256:" + path[8:72]
        head, *steps = lines = run.steps(digest)
        places = [(f"stream.{key}", head, key) for key in head]
        for step in steps:
            for name, pair in [("stream", step), *(("stream.top", entry) for entry in step[2])]:
                places += [(f"{name}.id", pair, 0), (f"{name}.logprob", pair, 1)]
        for name, holder, key in places:
            found.setdefault(name, []).append(Leaf(holder, key, lines, digest))
    return found


def field_name(kind: str, path: str, key: JSON) -> str:
    """Return the name of a field, without what is a name of this run alone."""
    if kind in WHOLE:
        return f"{kind}.*"
    if path.endswith("slots[][]"):
        path = f"{path[:-2]}.{SLOT[key]}"
    for pattern in NAMED:
        path = pattern.sub("*", path)
    return path


def changed(value: JSON, chance: random.Random) -> JSON:
    """Return another value of the same type, where there is one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, value * 2 + 3, 0 if value else 7])
    if isinstance(value, float):
        return chance.choice([value * 1.5 + 0.25, one_ulp(value) if value < 0.0 else value * 0.5 - 1.0])
    if isinstance(value, str):
        number = value.isdecimal()
        return chance.choice([str(int(value) + 1), str(int(value) * 2 + 1)]) if number else other(value, chance)
    if value is None:
        return chance.choice([0, 1.5, "x", False])
    return [0] if isinstance(value, list) else {"x": 0}


def other(text: str, chance: random.Random) -> str:
    """Return another text; of a digest or a blob one of the same form."""
    if re.fullmatch(r"(sha256:)?[0-9a-f]{40,64}", text):
        return text[:-1] + ("0" if text[-1] != "0" else "1")
    return chance.choice([text + "x", text[:-1], text.swapcase()])


def attempt(number: int, seed: int, folder: Path, verifier: ModuleType, swept: Swept) -> None:
    """Change one value of the golden run, and note what the verifier says of it."""
    chance = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
    run = Forgery(GOLDEN)
    fields = fields_of(run)
    swept.fields = len(fields)
    name = chance.choice(sorted(fields))
    leaf = chance.choice(fields[name])
    old = leaf.holder[leaf.key]
    new = leaf.holder[leaf.key] = changed(old, chance)
    if new == old and type(new) is type(old):
        swept.outcomes["unchanged"] = swept.outcomes.get("unchanged", 0) + 1
        return
    if name.startswith("stream"):
        run.restream(leaf.address, leaf.document)
    elif leaf.address:
        run.readdress(leaf.address, run.fact(leaf.document))
    run.write(folder, "links", verifier)
    report = examine(verifier, folder)
    strong = failed(report) & set(verifier.CONTRADICTIONS) - {"findings"}
    if report["exit"] in (0, 3):
        outcome = "unanchored"
        swept.unanchored.setdefault(name, f"{old!r} -> {new!r}")
    elif report["exit"] == 5:  # noqa: PLR2004 - the verifier's exit code of a bug
        outcome = "bug"
        swept.bugs.append(f"{name}: {old!r} -> {new!r}: {report['sentence']}")
    else:
        outcome = "refused" if strong or not report["findings"] else "findings disagree"
    swept.outcomes[outcome] = swept.outcomes.get(outcome, 0) + 1


def sweep(count: int, seed: int, scratch: Path, verifier: ModuleType) -> Swept:
    """Make `count` tries in folders below `scratch`."""
    swept = Swept()
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            attempt(number, seed, Path(folder) / "run", verifier, swept)
    return swept


def listed(page: str) -> set[str]:
    """Return the unanchored fields that the page on independence lists."""
    return set(re.findall(r"^\| `([^`]+)` \|", page.partition(BEGIN)[2].partition(END)[0], re.MULTILINE))


def renewed(page: str, unanchored: dict[str, str]) -> str:
    """Return the page with its table of unanchored fields made again."""
    before, _, rest = page.partition(BEGIN)
    rows = "".join(f"| `{name}` |\n" for name in sorted(unanchored))
    return f"{before}{BEGIN}| field |\n|---|\n{rows}{END}{rest.partition(END)[2]}"


def main() -> int:
    """Sweep, and print what was found; return 0 where no field is unanchored that is not listed."""
    parser = argparse.ArgumentParser(description="Change single values of the golden run as a forger would.")
    parser.add_argument("--count", type=int, default=300, help="how many changes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="write the unanchored fields into the page")
    options = parser.parse_args()
    began, page = time.monotonic(), PAGE.read_text(encoding="ascii")
    verifier = load_verifier()
    require_sound(verifier, GOLDEN)
    with tempfile.TemporaryDirectory() as scratch:
        swept = sweep(options.count, options.seed, Path(scratch), verifier)
    if options.write:
        page = renewed(page, swept.unanchored)
        PAGE.write_text(page, encoding="ascii")
    unlisted = {name: change for name, change in swept.unanchored.items() if name not in listed(page)}
    for line in [*(f"not listed: {name}: {change}" for name, change in unlisted.items()), *swept.bugs]:
        print(line, file=sys.stderr)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(swept.outcomes.items()))
    print(f"seed {options.seed}: {options.count} changes of {swept.fields} fields: {counts};", end=" ")
    print(f"{len(swept.unanchored)} unanchored fields, {time.monotonic() - began:.0f} s")
    return int(bool(unlisted or swept.bugs))


if __name__ == "__main__":
    sys.exit(main())
