"""Hostile vectors: a run on which something went wrong, sold with the findings of one on which nothing did.

The check named is the judgement that the two differ in; without it the findings would agree.
"""

from __future__ import annotations

from scripts.forgery import Forgery, sha
from scripts.vectors.table import MS, REPEAT, WAVE, Edit, add, echo, line, metric, moved, reply

QUEUE = "oversubscribed_c4/b/0/w0"

# Judgements ----------------------------------------------------------------------------------------------------------


def counted(trial: str, unit: str, part: int = 0, **values: int) -> Edit:
    """Return an edit of a reply's token counts, with the server's counter moved alike."""

    def edit(run: Forgery) -> None:
        answer, metrics = run.reply(trial, part), run.shot(unit, "after")["metrics"]
        moved = values.get("prompt_n", answer["prompt_n"]) - answer["prompt_n"]
        metrics["prompt_tokens_total"] = str(int(metrics["prompt_tokens_total"]) + moved)
        answer.update(values)

    return edit


def busy_slot(run: Forgery) -> None:
    """Let a slot process before a unit begins."""
    run.shot(REPEAT, "before")["slots"][1][1] = True


def other_props(run: Forgery) -> None:
    """Let the server have other properties after a unit."""
    shot = run.shot(REPEAT, "after")
    shot["props"] = run.fact({**run.json(shot["props"]), "total_slots": 4})


def other_canary(run: Forgery) -> None:
    """Move the last canary's first value by one bit, rows and digests alike."""
    rows = run.reply("canary/last")["rows"]
    data = bytearray(run.files[f"rows/{rows['file'][7:]}.f32"])
    data[0] ^= 1
    width = 4 * rows["shape"][1]
    rows["file"] = run.store("rows", bytes(data), ".f32")
    rows["digests"] = ["sha256:" + sha(bytes(data[at : at + width])) for at in range(0, len(data), width)]


def same_answer(trial: str, other: str) -> Edit:
    """Return an edit that gives a trial another trial's stream, counts and all."""

    def edit(run: Forgery) -> None:
        keys = ("logprob", "token", "steps", "holes", "above_zero", "saturated")
        run.reply(trial).update({key: run.reply(other)[key] for key in keys})

    return edit


def swap_baselines(run: Forgery) -> None:
    """Exchange the answers to two prompts: of the baselines, and so of nothing else."""
    keys = ("logprob", "token", "steps", "holes", "above_zero", "saturated")
    a, b = run.reply("baseline/greedy/a"), run.reply("baseline/greedy/b")
    kept = {key: a[key] for key in keys}
    a.update({key: b[key] for key in keys})
    b.update(kept)


def serialized(run: Forgery) -> None:
    """Let the member of a wave that ended last have been worked on for an instant after the other had ended."""
    last = max(run.of("complete", unit=WAVE), key=lambda one: one["last_byte_ns"])
    last["reply"].update(prompt_ms=0.0, predicted_ms=0.0001)
    other = next(one for one in run.of("complete", unit=WAVE) if one is not last)
    shift = last["last_byte_ns"] - other["last_byte_ns"]
    if shift < MS:  # both ended together: the last is moved on, within its own line's time
        last["last_byte_ns"] = last["at_ns"]


def one_slot(run: Forgery) -> None:
    """Let one slot have answered all requests of a wave that asked for none."""
    for one in run.of("complete", unit=QUEUE):
        one["reply"]["id_slot"] = 0


def impatient(run: Forgery) -> None:
    """Let a surplus request begin before any other had ended, in the place of one that came later."""
    windows = ((0, 10), (0, 20), (12, 30), (5, 40))
    lines = run.of("complete", unit=QUEUE)
    origin = max(one["at_ns"] for one in run.of("invoke", unit=QUEUE)) + MS
    for one, (begin, end) in zip(lines, windows, strict=True):
        one["reply"].update(prompt_ms=0.0, predicted_ms=float(end - begin))
        one.update(sent_ns=origin, first_byte_ns=origin, last_byte_ns=origin + end * MS, at_ns=origin + end * MS)


def same_process(run: Forgery) -> None:
    """Let the restart have been none: the process is the one that was there before, and so it counts on."""
    process = run.of("server")[0]["attested"]["process"]
    counters = ("prompt_tokens_total", "tokens_predicted_total")
    reached = dict.fromkeys(counters, 0)
    base = dict(reached)
    for one in run.lines:
        if one["line"] == "snapshot":
            one["process"] = process
            counted = {name: base[name] + int(one["metrics"][name]) for name in counters}
            one["metrics"].update({name: str(count) for name, count in counted.items()})
            reached = counted
        elif one["line"] == "server":
            one["attested"]["process"] = process
            base = reached if one["phase"] == "restart" else base


def empty_neighbour(run: Forgery) -> None:
    """Let the slot beside hold one token only."""
    run.shot("idle_neighbour/a/0/member", "before")["slots"][1][2] = 1


def lone_prefix(run: Forgery) -> None:
    """Let one request of a trial of prefixes have been longer by two tokens than the one before."""
    trial = "prefill_vs_decode/b/0/prefixes"
    length = run.reply(trial, 3)["tokens_evaluated"] + 1
    counted(trial, trial, 3, tokens_evaluated=length, prompt_n=length)(run)


SOLD = "the facts say otherwise"
COUNTERS = "the server counts tokens too"
add("slot_was_busy", "idle", "snapshots show each slot", busy_slot)
add("request_was_deferred", "idle", "counters of requests", metric(REPEAT, "before", requests_deferred="1"))
add("others_were_served", "accounting", COUNTERS, metric(REPEAT, "after", prompt_tokens_total="1"))
add("tokens_unaccounted", "accounting", COUNTERS, reply(REPEAT, predicted_n=7))
add("server_changed", "same server", "each snapshot names the server", other_props)
add(
    "process_changed",
    "same server",
    "each snapshot names the process",
    line("snapshot", 5, process={"start": "1", "media_marker": None}),
)
add("canary_moved", "canary", "two canaries are compared by their rows", other_canary)
add(
    "echo_of_another_prompt",
    "prompt echo",
    "a reply echoes its prompt",
    reply(REPEAT, prompt_echo="sha256:" + "0" * 64),
)
add("answer_of_another_prompt", "other baseline", "baselines of two prompts", same_answer(REPEAT, "baseline/greedy/b"))
add("baselines_swapped", "other baseline", "repeats of the same baseline", swap_baselines)
add("cache_was_used", "cache", "cache_n is 0 without the cache", reply(REPEAT, cache_n=1))
COLD = "cache/story/0/warm1"
add(
    "cache_was_cold",
    "cache",
    "cache_n and prompt_n are the prompt",
    lambda run: counted(COLD, COLD, cache_n=0, prompt_n=run.reply(COLD)["tokens_evaluated"])(run),
)
add("cache_sum", "cache", "cache_n and prompt_n are the prompt", reply(COLD, tokens_evaluated=90))
add("another_slot_answered", "slot", "a reply names its slot", reply(REPEAT, id_slot=2))
add("wave_was_serialized", "windows", "processing windows of a wave", serialized)
add(
    "neighbour_was_absent",
    "windows",
    "processing windows of a wave",
    lambda run: run.of("complete", unit="cross_batch_together/a/0/w0", trial="cross_batch_together/a/0/w0/1")[0][
        "reply"
    ].update(predicted_ms=0.0),
)
add("one_slot_served_all", "slots", "replies name their slots", one_slot)
add("slots_were_idle", "busy", "busy slots a decode", metric(WAVE, "after", n_busy_slots_per_decode="1"))
add("surplus_did_not_wait", "queue", "surplus begins after an end", impatient)
add("restart_was_none", "process", "a process has a start and a marker", same_process)
add("neighbour_was_empty", "neighbour", "a slot says how much it holds", empty_neighbour)
add("forced_ids_differ", "ids", "token digests", moved("prefill_vs_decode/b/0/forced", token=True))
add("prefix_jumps", "prefix", "lengths grow by one", lone_prefix)
add("echo_of_other_settings", "settings", "a reply echoes its settings", echo(REPEAT, temperature=0.5))
add("answer_cut_short", "length", "eight steps on both sides", moved(REPEAT, cut=1))
add("slot_differs_alone", "solo slot", "waves lean on each slot alone", moved("other_slot/a/1/0"))
add("divergence_sold", "findings", "classes by digest", moved(REPEAT))
add("other_token_sold", "findings", "classes by digest", moved(REPEAT, token=True))
add("control_did_not_move", "findings", "classes by digest", same_answer("control_seed/a/0", "baseline/seeded/a"))
add(
    "condition_relabelled",
    "requests",
    "the plan dictates each trial's seed",
    lambda run: [
        one.update(
            {
                key: one[key].replace(REPEAT, "@").replace("other_slot/a/1/0", REPEAT).replace("@", "other_slot/a/1/0")
                for key in ("unit", "trial")
                if one.get(key)
            }
        )
        for one in run.lines
        if one.get("unit")
    ],
)


def rounded(run: Forgery) -> None:
    """Round every logprob of a prompt to six digits, in all trials alike."""
    digest = run.reply("baseline/greedy/a")["logprob"]
    head, *steps = run.steps(digest)
    cut = [[token, round(own, 3), [[name, round(value, 3)] for name, value in top]] for token, own, top in steps]
    run.restream(digest, [head, *cut])


def shorter_top_k(run: Forgery) -> None:
    """Drop the last entry of one step, in all trials alike."""
    digest = run.reply("baseline/greedy/a")["logprob"]
    lines = run.steps(digest)
    lines[2][2].pop()
    run.restream(digest, lines)


def top_k_twice(run: Forgery) -> None:
    """Let one step list an id twice, in all trials alike."""
    digest = run.reply("baseline/greedy/a")["logprob"]
    lines = run.steps(digest)
    lines[4][2][1] = lines[4][2][0]
    run.restream(digest, lines)


add("logprobs_rounded", "findings", "logprobs are float32 values", rounded)
add("top_k_shortened", "findings", "as many entries as asked", shorter_top_k)
add("top_k_twice", "streams", "a step that lists an id twice is a hole", top_k_twice)
