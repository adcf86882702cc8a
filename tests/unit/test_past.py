"""What is finished and what is due, from lines alone: a block whole, a unit looked at afterwards, a process known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from audit.past import Past, read_past
from audit.plan import Plan
from audit.record import (
    Attested,
    Begin,
    Complete,
    Failure,
    Invoke,
    Line,
    Process,
    Reply,
    Resume,
    ServerLine,
    Skip,
    Snapshot,
)
from audit.trial import Block

PLAN = Plan.parse(
    {
        "name": "past",
        "canary": {"prompt": "a"},
        "prompts": {"a": {"text": "a"}, "s": {"text": "{block}"}},
        "conditions": [
            {"name": "repeat_greedy", "prompts": ["a"], "count": 2},
            {"name": "cache", "prompts": ["s"], "opener": "a"},
            {"name": "prefill_vs_decode", "prompts": ["a"]},
        ],
        "steps": 2,
    }
)
BLOCKS = {block.block: block for block in PLAN.unfold("sha256:0")}
ONE, TWO, UNKNOWN = (Process(start=start, media_marker=None) for start in ("1", "2", None))
REPLY = msgspec.convert(
    dict.fromkeys(Reply.__struct_fields__) | {"token": "t", "steps": 2, "holes": 0, "above_zero": 0, "saturated": 0},
    Reply,
)  # fmt: skip


def server(process: Process, phase: Any = "start") -> ServerLine:  # noqa: ANN401 - a literal
    """Return a server line."""
    attested = Attested(
        build_info=None, model=None, models=None, n_ctx=None, process=process, props="p", server_header=None, slots=4,
        vocabulary=None,
    )  # fmt: skip
    return ServerLine(server="s", phase=phase, attested=attested, declaration=None)


def snapshot(unit: str, attempt: int, when: Any) -> Snapshot:  # noqa: ANN401 - a literal
    """Return a snapshot."""
    return Snapshot(
        server="s",
        unit=unit,
        attempt=attempt,
        when=when,
        health=None,
        slots=None,
        metrics=None,
        props=None,
        process=ONE,
    )


def tried(block: Block, attempt: int = 0, *, fail: str = "", upto: int = 9, close: bool = True) -> Iterator[Line]:
    """Yield the lines of an attempt at the first units of a block; `fail` is the trial that has no reply."""
    for unit in block.units[:upto]:
        yield snapshot(unit.unit, attempt, "before")
        for trial in unit.trials:
            for part in range(trial.steps if trial.form == "prefixes" else 1):
                same: dict[str, Any] = {
                    "server": "s",
                    "trial": trial.trial,
                    "unit": unit.unit,
                    "attempt": attempt,
                    "part": part,
                }
                yield Invoke(**same, request="r", slot=0)
                failed = trial.trial == fail
                yield Complete(
                    **same, sent_ns=0, first_byte_ns=0, last_byte_ns=0, status=200,
                    failure=Failure(kind="timeout", message="", body=None) if failed else None,
                    reply=None if failed else REPLY,
                )  # fmt: skip
        if close:
            yield snapshot(unit.unit, attempt, "after")


def past(*lines: Line) -> Past:
    """Return what these lines say of the one server."""
    numbered = [msgspec.structs.replace(line, n=number) for number, line in enumerate(lines)]
    return read_past(numbered, ["s"])[0]["s"]


CACHE, REPEAT, PREFIXES = BLOCKS["cache/s/0"], BLOCKS["repeat_greedy/a/0"], BLOCKS["prefill_vs_decode/a/0"]
RESUME = Resume(process=1, wall_ns=0, cut=0)


@pytest.mark.parametrize(
    ("block", "lines", "finished"),
    [
        (REPEAT, [], False),
        (REPEAT, list(tried(REPEAT)), True),
        (REPEAT, list(tried(REPEAT, close=False)), False),
        (REPEAT, list(tried(REPEAT, fail=REPEAT.block)), False),
        (REPEAT, [*tried(REPEAT, fail=REPEAT.block), *tried(REPEAT, 1)], True),
        (REPEAT, [*tried(REPEAT), snapshot(REPEAT.block, 1, "before")], False),
        (CACHE, list(tried(CACHE, upto=3)), False),
        (CACHE, list(tried(CACHE)), True),
        (CACHE, [*tried(CACHE, upto=3), RESUME, *list(tried(CACHE))[12:]], False),
        (CACHE, [*tried(CACHE, upto=3), RESUME, *tried(CACHE, 1)], True),
        (PREFIXES, list(tried(PREFIXES))[:-2], False),
        (PREFIXES, list(tried(PREFIXES)), True),
        (REPEAT, [Skip(server="s", unit=REPEAT.block, reason="slots", needed=9, available=4)], True),
        (REPEAT, [Skip(server="s", unit=REPEAT.block, reason="not owned", needed=None, available=None)], True),
        (REPEAT, [Skip(server="s", unit=REPEAT.block, reason="no reference", needed=None, available=None)], False),
    ],
)
def test_a_block_is_finished_when_one_process_made_all_of_it(block: Block, lines: list[Line], finished: bool) -> None:
    """Every reply of every unit, the server looked at afterwards, in one process; or skipped for ever."""
    assert past(Begin(process=0, wall_ns=0), server(ONE), *lines).finished(block) is finished


def test_attempts_are_numbered_on() -> None:
    """The next one after the last that has a line, whether or not anything was sent."""
    known = past(*tried(REPEAT), snapshot(REPEAT.block, 1, "before"))
    assert (known.next_attempt(REPEAT.block), known.next_attempt("repeat_greedy/a/1")) == (2, 0)


def everything(process: Process, *left_out: str) -> Past:
    """Return a past in which all blocks are done but these."""
    done = [line for name, block in BLOCKS.items() if name not in left_out for line in tried(block)]
    return past(Begin(process=0, wall_ns=0), server(process), *done)


@pytest.mark.parametrize(
    ("left_out", "before", "now", "due"),
    [
        ([], ONE, ONE, []),
        ([], ONE, TWO, []),
        (["canary/last"], ONE, TWO, ["canary/last"]),
        (["repeat_greedy/a/1"], ONE, ONE, ["repeat_greedy/a/1", "canary/last"]),
        (["repeat_greedy/a/1"], ONE, TWO, ["canary/first", "baseline/greedy/a", "repeat_greedy/a/1", "canary/last"]),
        (
            ["repeat_greedy/a/1"],
            UNKNOWN,
            UNKNOWN,
            ["canary/first", "baseline/greedy/a", "repeat_greedy/a/1", "canary/last"],
        ),
        (["baseline/greedy/a"], ONE, ONE, ["baseline/greedy/a", "canary/last"]),
    ],
)
def test_canary_and_baselines_come_again_for_a_process_that_is_not_the_same(
    left_out: list[str], before: Process, now: Process, due: list[str]
) -> None:
    """Only where measured blocks are left; and the last canary wherever anything came before it."""
    known = everything(before, *left_out)
    assert [block.block for block in known.due(BLOCKS.values(), now)] == due


def test_processes_are_counted_and_the_end_is_seen() -> None:
    """The next process has the next number, a server is at its end until another line of it comes."""
    lines: list[Line] = [Begin(process=0, wall_ns=0), server(ONE), server(ONE, "end")]
    pasts, process = read_past(lines, ["s"])
    assert (pasts["s"].ended, process) == (True, 1)
    pasts, process = read_past([*lines, RESUME, server(TWO)], ["s"])
    assert (pasts["s"].ended, pasts["s"].process, process) == (False, TWO, 2)
    assert read_past([], ["s"])[1] == 0
