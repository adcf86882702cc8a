"""Numbers that move, and where: for every condition a server that is sensitive to it alone."""

from __future__ import annotations

from scripts.fault_cases.table import ON, Table

CASES = Table()
add = CASES.add

MOVED = "token-identical"  # rounding noise changes logprobs and no token
HIT = "other_slot/a/1/0"
BESIDE = {"other_slot": "unstable", "stream_vs_whole": "unstable", "control_prompt": "unstable"}
NOISE = "logprob digests differ while token digests agree"

add("clean", None, "solo", "every proof holds, every control diverges")
add("clean", None, "waves", "the same with several at a time", word="in waves")

add("one_ulp", HIT, "short", "the witness: this trial, its middle step, its last rank, 1 ULP",
    cells={"other_slot": MOVED},
    witness={"trial": HIT, "step": 4, "rank": 4, "level": "logprob", "ulp": 1})  # fmt: skip
add("one_ulp", "repeat_greedy/a/1", "short", "a baseline that does not repeat: what leans on it is not judged",
    word="in a repeat", cells={"repeat_greedy": MOVED, **BESIDE},
    witness={"trial": "repeat_greedy/a/1", "step": 4, "rank": 4, "ulp": 1})  # fmt: skip
add("one_ulp", "baseline/greedy/a", "short", "the same, and no repeat is equal", word="in a baseline",
    cells={"repeat_greedy": MOVED, **BESIDE}, witness={"step": 4, "rank": 4, "ulp": 1})  # fmt: skip
add("one_ulp_each", 7, "short", "every repeat differs from its baseline; of the other requests none was asked before",
    cells={"repeat_greedy": MOVED, "repeat_seeded": MOVED, **BESIDE, "control_seed": "unstable",
           "control_temperature": "unstable"})  # fmt: skip

# Conditions under which one request runs at a time.
add("jitter_repeated", ON, "cache", NOISE, cells={
    "repeat_greedy": MOVED, "cache_cold": "unstable", "cache_warm1": "unstable", "cache_warm2": "unstable",
    "stream_vs_whole": "unstable", "control_prompt": "unstable"})  # fmt: skip
add("jitter_resampled", ON, "short", NOISE, cells={
    "repeat_seeded": MOVED, "control_seed": "unstable", "control_temperature": "unstable"})  # fmt: skip
add("jitter_first", ON, "first", NOISE, cells={"first_request": MOVED})
add("jitter_first", ON, "solo", "a restart makes a first request as well", word="and a restart",
    cells={"first_request": MOVED, "restart": MOVED})  # fmt: skip
add("jitter_restarted", ON, "solo", NOISE, cells={"restart": MOVED})
add("jitter_slot", 2, "slots", "a wave is judged without the member whose slot differs alone",
    cells={"other_slot": MOVED, "concurrent_greedy_c3": "insufficient"})  # fmt: skip
add("jitter_cached", ON, "solo", "also the beginning-of-sequence token of a cold prompt came from the cache",
    cells=dict.fromkeys(["cache_cold", "cache_warm1", "cache_warm2", "cache_prefix"], MOVED))  # fmt: skip
for condition in ("cache_cold", "cache_warm1", "cache_warm2", "cache_prefix"):
    add(f"jitter_{condition}", ON, "solo", NOISE, cells={condition: MOVED})
add("jitter_idle_neighbour", ON, "solo", NOISE, cells={"idle_neighbour": MOVED})
add("jitter_forced", ON, "solo", NOISE, cells={"prefill_vs_decode": MOVED})
add("jitter_prefill", ON, "solo", "only one-token replies are all prefill", cells={"prefill_vs_decode": MOVED},
    witness={"trial": "prefill_vs_decode/a/0/prefixes", "step": 1})  # fmt: skip
add("jitter_streamed", ON, "solo", "the canaries are both streamed, and equal", cells={"stream_vs_whole": MOVED})
add("flip_without_logprobs", ON, "solo", "token digests, which is all there is",
    cells={"without_logprobs": "divergent"},
    witness={"step": 4, "level": "token"})  # fmt: skip

# Conditions under which several run at a time.
add("jitter_from_level", 3, "waves", "the levels below it do not move, and the threshold says so", cells={
    "concurrent_greedy_c4": MOVED, "concurrent_seeded_c3": MOVED, "oversubscribed_c6": MOVED})  # fmt: skip
add("jitter_concurrent_greedy", ON, "waves", NOISE,
    cells={"concurrent_greedy_c2": MOVED, "concurrent_greedy_c4": MOVED})  # fmt: skip
add("jitter_concurrent_seeded", ON, "waves", NOISE, cells={"concurrent_seeded_c3": MOVED})
add("jitter_queued", ON, "waves", NOISE, cells={"oversubscribed_c6": MOVED})
add("jitter_wave_again", ON, "waves", "the second wave differs from the first, which equals the baseline",
    cells={"wave_repeat": MOVED})  # fmt: skip
add("jitter_mixed_batch", ON, "waves", NOISE,
    cells={"cross_batch_together": MOVED, "cross_batch_staggered": MOVED})  # fmt: skip
add("jitter_together", ON, "waves", NOISE, cells={"cross_batch_together": MOVED})
add("jitter_staggered", ON, "waves", NOISE, cells={"cross_batch_staggered": MOVED})

# Lengths, and now and then.
add("jitter_past_step", 200, "lengths", "only the prompt of 204 steps moves, and first at step 200",
    cells={"repeat_greedy": MOVED, "other_slot": "unstable"}, witness={"step": 200})  # fmt: skip
add("jitter_prompt_tokens", 256, "lengths", "only the prompt of 256 tokens moves",
    cells={"repeat_greedy": MOVED, "idle_neighbour": "unstable"},
    witness={"trial": "repeat_greedy/wide/0"})  # fmt: skip
add("jitter_once_in", HIT, "short", "the one trial that was hit", after=1, cells={"other_slot": MOVED},
    witness={"trial": HIT})  # fmt: skip
add("flip_near_tie", HIT, "short", "the margin of the baseline there is one float32", cells={"other_slot": "divergent"},
    witness={"trial": HIT, "step": 4, "level": "token"})  # fmt: skip
add("tie_reordered", HIT, "short", "equal values under other ids", cells={"other_slot": MOVED},
    witness={"trial": HIT, "step": 4, "rank": 3, "ulp": None})  # fmt: skip

# Precision.
add("logprobs_rounded", ON, "short", "not every logprob is a float32",
    instrument={"float32": "failed", "one_ulp": "failed"}, code=3)  # fmt: skip
add("logprobs_float64", ON, "short", "not every logprob is a float32",
    instrument={"float32": "failed", "one_ulp": "failed"}, code=3)  # fmt: skip
add("n_probs_capped", 3, "short", "the top-k is shorter than asked, and what is short equals nothing",
    cells={"repeat_greedy": MOVED, "repeat_seeded": MOVED, **BESIDE, "control_seed": "unstable",
           "control_temperature": "unstable"},
    qualifiers={"repeat_greedy": ["partial"]},
    instrument={"canary": "incomplete", "top_k": "failed", "one_ulp": "incomplete"}, code=3)  # fmt: skip
