"""Hostile vectors that a stored fact does contradict, while no rule of docs/reference/verdicts.md compares the two.

They count as undetectable as long as that is so. Where a rule is added, scripts/make_vectors.py says that the vector is
no longer sound, and it moves to the part of the check that sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.forgery import Forgery
from scripts.vectors.table import REPEAT, ZEROS, Edit, echo, reply, unseen

JSON = Any
BASELINE = "baseline/greedy/a"
OTHER = {"start": "1", "media_marker": None}


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


def moved_canary(run: Forgery) -> None:
    """Let another process have answered the last canary."""
    for when in ("before", "after"):
        run.shot("canary/last", when)["process"] = OTHER


def busy_canary(run: Forgery) -> None:
    """Let a slot have been busy before the last canary."""
    run.shot("canary/last", "before")["slots"][0][1] = True


def other_end(run: Forgery) -> None:
    """Let another server have been there at the end."""
    run.of("server")[-1]["attested"].update(build_info="other", model="other", slots=1, process=OTHER)


def lower_counters(run: Forgery) -> None:
    """Let a counter have fallen between two units."""
    for when in ("before", "after"):
        metrics = run.shot("other_slot/a/1/0", when)["metrics"]
        metrics["prompt_tokens_total"] = str(int(metrics["prompt_tokens_total"]) - 40)


def numbered_slots(run: Forgery) -> None:
    """Give all slots of all snapshots but the proven neighbour's the same number."""
    for line in run.of("snapshot"):
        line["slots"][2][0] = 0


unseen("unasked_process_of_a_canary", "another process answers a canary", moved_canary)
unseen("unasked_busy_canary", "the server is busy before a canary", busy_canary)
unseen(
    "unasked_baseline_speculates", "a baseline alone is speculative", echo(BASELINE, **{"speculative.types": "draft"})
)
unseen("unasked_baseline_echo", "a baseline echoes another prompt", reply(BASELINE, prompt_echo=ZEROS))
unseen("unasked_server_at_the_end", "the last server line names another server", other_end)
unseen("unasked_slot_numbers", "snapshots number slots twice", numbered_slots)
unseen("unasked_counter_falls", "a counter falls between two units", lower_counters)
unseen("unasked_status", "a reply with the status of a failure", lambda run: completed(run).update(status=503))
unseen("unasked_prompt_length", "a shorter prompt is evaluated", counted(REPEAT, tokens_evaluated=5, prompt_n=5))
unseen("unasked_predicted", "more tokens are generated than kept", counted(REPEAT, predicted_n=100, tokens_predicted=3))
unseen("unasked_steps", "an answer longer than asked", answered(lambda lines: lines.append(lines[-1])))
unseen(
    "unasked_token_id", "a token id beyond the vocabulary", answered(lambda lines: lines[4][2][0].__setitem__(0, 10**6))
)
unseen("unasked_top_k_order", "a top-k in another order", answered(lambda lines: lines[4][2].reverse()))
unseen("unasked_logprob_50", "a logprob far above zero", answered(lambda lines: lines[4][2][0].__setitem__(1, 50.0)))
unseen(
    "unasked_own_logprob",
    "a token's logprob is not its top-k's",
    answered(lambda lines: lines[4].__setitem__(1, -50.0)),
)
unseen(
    "unasked_greedy_token",
    "a greedy token is not the first",
    answered(lambda lines: lines[4].__setitem__(0, lines[4][2][2][0])),
)
