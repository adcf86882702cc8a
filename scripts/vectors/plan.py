"""Hostile vectors: edits that contradict the plan, with chain, sums and where it helps the findings made again."""

from __future__ import annotations

from scripts.forgery import Forgery
from scripts.vectors.table import FORGED, REPEAT, Edit, add, line, request

# Plan: order, attempts, pairs, skips, requests -----------------------------------------------------------------------

PLAN = "the plan unfolds in one way"


def swap_units(run: Forgery) -> None:
    """Exchange two solo units, and make the times again."""
    at = run.lines.index(run.shot("other_slot/a/1/0", "before"))
    lines = run.lines[at : at + 8]
    times = [one["at_ns"] for one in lines]
    run.lines[at : at + 8] = [*lines[4:], *lines[:4]]
    for one, time in zip(run.lines[at : at + 8], times, strict=True):
        shift = time - one["at_ns"]
        one["at_ns"] = time
        if one["line"] == "complete":
            one.update({key: one[key] + shift for key in ("sent_ns", "first_byte_ns", "last_byte_ns")})
            one["sent_ns"] = run.lines[run.lines.index(one) - 1]["at_ns"]


def retry(run: Forgery) -> None:
    """Try a unit again after a success, to keep the better reply."""
    own = [dict(one, attempt=1) for one in run.lines if one.get("unit") == REPEAT]
    end = own[-1]["at_ns"]
    for one in own:
        one["at_ns"] = end
        if one["line"] == "complete":
            one.update(sent_ns=end, first_byte_ns=end, last_byte_ns=end)
    at = run.lines.index(run.shot(REPEAT, "after")) + 1
    run.lines[at:at] = own


def renumber(run: Forgery) -> None:
    """Number an only attempt as the second, as if the first had been cut out."""
    for one in run.lines:
        if one.get("unit") == REPEAT:
            one["attempt"] = 1


def invent_skip(run: Forgery) -> None:
    """Put a skip in the place of a unit that was tried."""
    at = run.lines.index(run.shot(REPEAT, "before"))
    said = {"line": "skip", "at_ns": run.lines[at]["at_ns"], "server": "s", "unit": REPEAT}
    run.drop(REPEAT)
    run.lines.insert(at, {**said, "reason": "slots", "needed": 4, "available": 3})


def cut_part(run: Forgery) -> None:
    """Leave the last request of a trial of prefixes out."""
    for kind in ("invoke", "complete"):
        run.lines.remove(run.of(kind, trial="prefill_vs_decode/b/0/prefixes")[-1])


def cut_line(kind: str, **wanted: object) -> Edit:
    """Return an edit that removes the first such line."""
    return lambda run: run.lines.remove(run.of(kind, **wanted)[0])


def skip(**values: object) -> Edit:
    """Return an edit of the first skip of each unit."""
    return lambda run: [one.update(values) for one in run.of("skip")]


add("trial_dropped", "order", PLAN, lambda run: run.drop(REPEAT), forge=FORGED)
add("wave_dropped", "order", PLAN, lambda run: run.drop("concurrent_greedy_c2/a/0/w1"), forge=FORGED)
add("control_dropped", "order", PLAN, lambda run: run.drop("control_seed/a/0"), forge=FORGED)
add("units_swapped", "order", "the registered digest dictates the order", swap_units)
add("members_swapped", "order", PLAN, lambda run: run.of("wave")[1]["members"].reverse())
add("wave_released_apart", "order", "each family has its delays", line("wave", 2, delays_ns=[0, 5_000_000]))
add("slot_asked", "order", "a trial has its slot", lambda run: run.of("invoke", trial=REPEAT)[0].update(slot=1))
add("skip_removed", "order", PLAN, lambda run: run.drop("concurrent_greedy_c4/a/0/w1"), forge=FORGED)
add("retried_after_success", "attempts", "none after a success", retry, forge=FORGED)
add("first_attempt_hidden", "attempts", "attempts are numbered", renumber)
add("reply_withheld", "pairs", "each invoke has its complete", cut_line("complete", trial=REPEAT), forge=FORGED)
add("request_withheld", "pairs", "each complete has its invoke", cut_line("invoke", trial=REPEAT))
add("wave_without_release", "pairs", "members follow a wave line", cut_line("wave", unit="concurrent_greedy_c2/a/0/w0"))
add("part_withheld", "pairs", "as many requests as steps", cut_part, forge=FORGED)
add("skip_relabelled", "skips", "a reason that holds", skip(reason="not owned"), forge=FORGED)
add("skip_exaggerates", "skips", "the plan says how many slots", skip(needed=9))
add("skip_belittles", "skips", "the manifest says how many slots", skip(available=1))
add("skip_invented", "skips", "the plan says how many slots", invent_skip, forge=FORGED)


def cut_top_k(run: Forgery) -> None:
    """Ask for two logprobs in place of three, everywhere: requests, echoes, streams and all that names them."""
    for path in [path for path in run.files if path.startswith("facts/")]:
        fact = run.json("sha256:" + path[6:70])
        if isinstance(fact, dict) and fact.get("n_probs") == 3:  # noqa: PLR2004 - what the golden plan asks for
            run.edit_fact("sha256:" + path[6:70], lambda value: value.update(n_probs=2))
    for path in [path for path in run.files if path.startswith("streams/")]:
        head, *steps = run.steps("sha256:" + path[8:72])
        cut = [[token, own, entries[:2]] for token, own, entries in steps]
        run.restream("sha256:" + path[8:72], [{**head, "n_probs": 2}, *cut])


REQUEST = "the plan dictates every byte of a request"
add("seed_changed", "requests", "the registered digest dictates the seeds", request("control_seed/a/0", seed=7))
add("seed_changed_everywhere", "requests", REQUEST, request("baseline/seeded/a", everywhere=True, seed=7))
add("n_probs_everywhere", "requests", REQUEST, cut_top_k, forge=FORGED)
add("cache_switched_on", "requests", REQUEST, request(REPEAT, everywhere=True, cache_prompt=True))
add("temperature_lowered", "requests", REQUEST, request("control_temperature/a/0", temperature=1.0))
add("steps_lowered", "requests", REQUEST, request(REPEAT, n_predict=1))
add(
    "grammar_dropped", "requests", "the reference's ids dictate it", request("prefill_vs_decode/b/0/forced", grammar="")
)
