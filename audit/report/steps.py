"""The table of steps: where and by how much each moved stream left its reference, step by step.

In go the trials and the streams of a run, out comes one row a compared step of each pair of streams that differ. A pair
is compared up to and including the first step whose token differs. Figures, `steps.csv` and the report's words come
from this table. Controls, which must differ, and trials without logprobs are not in it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd

from audit.compare import margin_of, ulp_distance
from audit.store import Run
from audit.stream import Stream

__all__ = ["COLUMNS", "step_table"]


class _Row(NamedTuple):
    """One step of a pair; `logprob` is what the trial's stream gives to the reference's token."""

    server: str
    condition: str
    prompt: str
    sampled: bool
    trial: str
    trials: int
    step: int
    moved: bool
    token: int
    reference_token: int
    logprob: float | None
    reference_logprob: float | None
    margin: float | None


COLUMNS = (*_Row._fields, "flipped", "nats", "ulp")
_TEXT = msgspec.json.Encoder()


def step_table(run: Run, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the table, in the order of the plan.

    `trial` is the first trial that shows the pair of streams and `trials` how many of its cell do; `moved` says that
    anything of the step differs, `flipped` that its token does; `nats` and `ulp` are the distance of the two logprobs
    of the reference's token, missing where one is; `margin` is the reference's best minus second-best logprob.
    """
    differing = trials[trials["usable"] & (trials["outcome"] != "identical") & trials["logprob"].notna()]
    differing = differing[~differing["family"].str.startswith("control_") & (differing["family"] != "without_logprobs")]
    keys = ["server", "condition", "logprob", "reference_logprob"]
    pairs: dict[tuple[str, ...], list[list[str]]] = {}
    columns = [*keys, "prompt", "trial", "block", "reference"]
    for row in differing.dropna(subset=keys)[columns].to_numpy().tolist():
        pairs.setdefault(tuple(row[: len(keys)]), []).append(row[len(keys) :])
    rows: list[_Row] = []
    for (server, condition, name, reference), shown in pairs.items():
        if run.has("streams", name) and run.has("streams", reference):
            prompt, trial, *blocks = shown[0]
            begin = (server, condition, prompt, any("seeded" in block for block in blocks), trial, len(shown))
            rows += [_Row(*begin, **one._asdict()) for one in _compared(run.stream(name), run.stream(reference))]
    table = pd.DataFrame(rows, columns=list(_Row._fields))
    table = table.astype({"sampled": bool, "moved": bool, "margin": float})  # without a row nothing has a type
    table["flipped"] = table["token"] != table["reference_token"]
    table["nats"] = table["logprob"].astype(float) - table["reference_logprob"].astype(float)
    table["ulp"] = _ulps(table)
    return table


class _Compared(NamedTuple):
    """What one compared step adds to its row."""

    step: int
    moved: bool
    token: int
    reference_token: int
    logprob: float | None
    reference_logprob: float | None
    margin: float | None


def _compared(stream: Stream, reference: Stream) -> Iterator[_Compared]:
    """Yield the steps up to and including the first whose token differs."""
    for index, (step, other) in enumerate(zip(stream.steps, reference.steps, strict=False)):
        value = step.logprob if step.token == other.token else dict(step.top).get(other.token)
        moved = step != other or _TEXT.encode(step) != _TEXT.encode(other)  # -0.0 is not 0.0
        yield _Compared(index, moved, step.token, other.token, value, other.logprob, margin_of(other))
        if step.token != other.token:
            return


def _ulps(table: pd.DataFrame) -> "pd.Series[int]":
    """Return the distances in ULP, missing where a value is, or where it is no float32."""
    ulps = pd.Series(pd.NA, index=table.index, dtype="Int64")
    values = table[["logprob", "reference_logprob"]].astype(float)
    with np.errstate(over="ignore"):
        known = (values == values.astype(np.float32).astype(float)).all(axis=1)
    if known.any():
        ulps[known] = ulp_distance(values.loc[known, "logprob"], values.loc[known, "reference_logprob"])
    return ulps
