"""Hostile vectors about what replies and snapshots say of themselves: counts, order, status, numbers of slots.

As in judged.py, the run is sold with the findings of one on which nothing went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.forgery import Forgery
from scripts.vectors.table import REPEAT, ZEROS, Edit, add, echo, reply

JSON = Any
BASELINE = "baseline/greedy/a"


def counted(trial: str, **values: int) -> Edit:
    """Return an edit of a reply's counts, with the server's counters moved alike."""

    def edit(run: Forgery) -> None:
        answer, metrics = run.reply(trial), run.shot(trial, "after")["metrics"]
        for counter, key in (("prompt_tokens_total", "prompt_n"), ("tokens_predicted_total", "predicted_n")):
            moved = values.get(key, answer[key]) - answer[key]
            metrics[counter] = str(int(metrics[counter]) + moved)
        answer.update(values)

    return edit


def answered(change: Callable[[list[JSON]], object]) -> Edit:
    """Return an edit of the stream of a prompt, in every trial that gave it; `change` takes head and steps."""

    def edit(run: Forgery) -> None:
        digest = run.reply(BASELINE)["logprob"]
        lines = run.steps(digest)
        change(lines)
        run.restream(digest, lines)

    return edit


def completed(run: Forgery) -> JSON:
    """Return the complete line of the repeat."""
    return run.of("complete", trial=REPEAT)[0]


def lower_counters(run: Forgery) -> None:
    """Let a counter have fallen between two units."""
    for when in ("before", "after"):
        metrics = run.shot("other_slot/a/1/0", when)["metrics"]
        metrics["prompt_tokens_total"] = str(int(metrics["prompt_tokens_total"]) - 40)


def numbered_slots(run: Forgery) -> None:
    """Give all slots of all snapshots but the proven neighbour's the same number."""
    for line in run.of("snapshot"):
        line["slots"][2][0] = 0


def second(lines: list[JSON]) -> None:
    """Let a step have taken the third of its top-k, with its logprob."""
    lines[4][:2] = lines[4][2][2]


ORDER = "a top-k falls, names each id once, and holds the token"
COUNTS = "prompt, counts and steps are one another's"
add("baseline_was_speculative", "findings", "the echo of a baseline", echo(BASELINE, **{"speculative.types": "draft"}))
add("baseline_echoes_another", "prompt echo", "the echo of a baseline", reply(BASELINE, prompt_echo=ZEROS))
add("slots_numbered_twice", "idle", "a server numbers its slots", numbered_slots)
add("counter_fell", "accounting", "counters of one process only rise", lower_counters)
add("reply_with_a_failure", "pairs", "a reply has the status 200", lambda run: completed(run).update(status=503))
add("prompt_was_shorter", "counts", COUNTS, counted(REPEAT, tokens_evaluated=5, prompt_n=5))
add("more_was_generated", "counts", COUNTS, counted(REPEAT, predicted_n=100, tokens_predicted=3))
add("answer_too_long", "counts", COUNTS, answered(lambda lines: lines.append(lines[-1])))
add("id_beyond_the_vocabulary", "findings", ORDER, answered(lambda lines: lines[4][2][0].__setitem__(0, 10**6)))
add("top_k_reversed", "findings", ORDER, answered(lambda lines: lines[4][2].reverse()))
add(
    "logprob_above_zero",
    "streams",
    "a logprob is not above zero",
    answered(lambda lines: lines[4][2][0].__setitem__(1, 50.0)),
)
add("own_logprob_is_another", "findings", ORDER, answered(lambda lines: lines[4].__setitem__(1, -50.0)))
add("greedy_took_another", "greedy", "a greedy token leads its top-k", answered(second))
