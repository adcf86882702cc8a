"""A small registration on disk, and the repository around it, for tests that run one.

In: a folder. Out: its four files, and commits of them. It touches no repository but the one it makes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from audit.lock import write_resolved

PLAN = """
name = "tiny"
steps = 8
n_probs = 3
pace_per_second = 1000.0
canary = { prompt = "a", steps = 1 }

[prompts.a]
text = "Once upon a time {registered}"

[prompts.b]
text = "def median(values):"

[[conditions]]
name = "repeat_greedy"
prompts = ["a"]
count = 2

[[conditions]]
name = "control_prompt"
prompts = ["a", "b"]

[[conditions]]
name = "control_seed"
prompts = ["a"]

[[conditions]]
name = "control_temperature"
prompts = ["a"]
"""
PREDICTION = {
    "id": "P1",
    "statement": "Serial repeats are bit-identical.",
    "conditions": ["repeat_greedy"],
    "servers": "*",
    "unit": "cell",
    "measure": "logprob_identical",
    "holds": {"op": "==", "value": 1.0},
    "refuted": {"op": "<", "value": 1.0},
    "minimum": 2,
    "requires": ["control_prompt", "control_seed", "control_temperature", "canary"],
}


def register(folder: Path, *, plan: str = PLAN) -> Path:
    """Write a locked registration and return its folder."""
    folder.mkdir(parents=True)
    (folder / "PREREG.md").write_text("# tiny\n")
    (folder / "plan.toml").write_text(plan)
    (folder / "predictions.json").write_text(json.dumps({"format": 1, "predictions": [PREDICTION]}))
    write_resolved(folder)
    return folder


def git(repository: Path, *arguments: str) -> str:
    """Run git in a repository and return what it prints."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(root: Path) -> Path:
    """Make a repository with a user of its own and return its folder."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    for name, value in {"user.name": "a", "user.email": "a@example.org", "commit.gpgsign": "false"}.items():
        git(root, "config", name, value)
    return root


def commit(root: Path, message: str = "prereg: tiny") -> str:
    """Commit everything and return the commit."""
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")
