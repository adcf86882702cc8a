"""A registration's files, as one begins them.

In goes a folder, out come PREREG.md, plan.toml and predictions.json to be edited. `audit.lock` makes plan.json of them.
"""

from pathlib import Path

from audit.errors import UsageError
from audit.stream import canonical

__all__ = ["write_template"]

_PREREG = """# NAME

Written before the runs that it speaks of; never edited once it is committed.

## Status of data

What was seen before this was written: none, or which pilots, on which machine and build.

## Plan, size, stopping rule

plan.toml. Why these sizes; when a run ends; which runs count.

## Predictions

The same as predictions.json, for people.

## Exclusions

Which trials are left out, by which rule.

## When a control fails

What follows.

## What would kill the claim

"""
_PLAN = """format = 1
name = "NAME"
steps = 32
n_probs = 10
canary = { prompt = "prose", steps = 1 }

[prompts.prose]
text = "Once upon a time {registered}"

[prompts.other]
text = "A list of three things:"

[[conditions]]
name = "repeat_greedy"
prompts = ["prose", "other"]
count = 5

[[conditions]]
name = "concurrent_greedy"
prompts = ["prose", "other"]
levels = [4]
count = 5

[[conditions]]
name = "control_prompt"
prompts = ["prose", "other"]

[[conditions]]
name = "control_seed"
prompts = ["prose"]
count = 3

[[conditions]]
name = "control_temperature"
prompts = ["prose"]
"""
_PREDICTION = {
    "id": "P1",
    "statement": "Serial repeats of a greedy request are bit-identical.",
    "conditions": ["repeat_greedy"],
    "servers": "*",
    "unit": "cell",
    "measure": "logprob_identical",
    "holds": {"op": "==", "value": 1.0},
    "refuted": {"op": "<", "value": 1.0},
    "minimum": 10,
    "requires": ["control_prompt", "control_seed", "control_temperature", "canary"],
}


def _plan_name(name: str) -> str:
    """Return a folder's name in the letters that a plan's name may hold."""
    kept = "".join(one if one == "_" or (one.isascii() and one.isalnum()) else "-" for one in name.lower())
    return kept.lstrip("_-")[:64] or "study"


def write_template(folder: Path) -> list[Path]:
    """Write the three files that one edits.

    Returns: their paths.
    Raises: UsageError where the folder holds something.
    """
    name = folder.resolve().name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="a new study gets a new folder")
        contents = {
            "PREREG.md": _PREREG.replace("NAME", name).encode(),
            "plan.toml": _PLAN.replace("NAME", _plan_name(name)).encode(),
            "predictions.json": canonical({"format": 1, "predictions": [_PREDICTION]}),
        }
        for file, data in contents.items():
            (folder / file).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{folder}: a registration cannot be written here: {error.strerror}") from error
    return [folder / file for file in contents]
