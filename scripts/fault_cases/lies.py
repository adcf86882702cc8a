"""Lies, and the check that does not believe them."""

from __future__ import annotations

from scripts.fault_cases.table import ON, Table, from_trial

CASES = Table()
add = CASES.add

HIT = "other_slot/a/1/0"
SHORT = [
    *("repeat_greedy", "repeat_seeded", "other_slot", "stream_vs_whole"),
    *("control_prompt", "control_seed", "control_temperature"),
]
NO_CONTROL = dict.fromkeys(["control_prompt", "control_seed", "control_temperature"], "incomplete")
LATE = from_trial("short", HIT)
LATE_CONTROLS = {name: "incomplete" for name in LATE if name.startswith("control_")}

# A control that is ignored: it fails, and the run is inconclusive.
add("prompt_ignored", ON, "short", "control_prompt gives its baseline; other prompts' baselines are equal",
    cells=dict.fromkeys(["repeat_greedy", "other_slot", "stream_vs_whole"], "cross-talk")
    | {"control_prompt": "identical"}, instrument={"control_prompt": "failed"}, code=3)  # fmt: skip
add("seed_ignored", ON, "short", "control_seed gives its baseline", cells={"control_seed": "identical"},
    instrument={"control_seed": "failed"}, code=3)  # fmt: skip
add("temperature_ignored", ON, "short", "both sampled controls give their baseline",
    cells={"control_seed": "identical", "control_temperature": "identical"},
    instrument={"control_seed": "failed", "control_temperature": "failed"}, code=3)  # fmt: skip
add("defaults_applied", ON, "short", "the echo is not what was sent; canaries are sampled, and greedy replies too",
    cells=dict.fromkeys(SHORT, "tainted"), reasons={"repeat_greedy": {"canary": 2}},
    instrument=NO_CONTROL | dict.fromkeys(["canary", "settings", "greedy"], "failed"), code=3)  # fmt: skip

# The cache.
add("cache_hidden", ON, "cache", "the server counted fewer prompt tokens than its replies claim",
    cells=dict.fromkeys(["cache_cold", "cache_warm1", "cache_warm2"], "tainted"),
    reasons={name: {"accounting": 1} for name in ("cache_cold", "cache_warm1", "cache_warm2")})  # fmt: skip
add("cache_always", ON, "short", "cache_n is above 0 in replies that asked for none",
    cells=dict.fromkeys(SHORT, "vacuous"),
    reasons={"repeat_greedy": {"cache": 2}, "other_slot": {"cache": 2}}, instrument=NO_CONTROL, code=3)  # fmt: skip

# Waves and slots.
add("serialized", ON, "waves", "processing windows do not overlap", cells=dict.fromkeys(
    ["concurrent_greedy_c2", "concurrent_greedy_c4", "concurrent_seeded_c3", "oversubscribed_c6", "wave_repeat",
     "cross_batch_together", "cross_batch_staggered"], "vacuous"),
    reasons={"concurrent_greedy_c4": {"windows": 4}, "oversubscribed_c6": {"windows": 6}})  # fmt: skip
add("slot_wrapped", 1, "short", "the reply names another slot than was asked", cells={"other_slot": "vacuous"},
    reasons={"other_slot": {"slot": 2}})  # fmt: skip

# Whose answer is it.
add("cross_talk", HIT, "short", "the echo is another prompt's", cells={"other_slot": "cross-talk"})
add(
    "cross_talk_hidden",
    HIT,
    "short",
    "the stream is the baseline of another prompt",
    cells={"other_slot": "cross-talk"},
)
add("prompt_truncated", 5, "short", "the echo is not what was sent", cells=dict.fromkeys(SHORT, "cross-talk"),
    instrument=NO_CONTROL | {"counts": "incomplete"}, code=3)  # fmt: skip
add("replies_repeated", ON, "short", "the server counted nothing for requests that were asked before",
    cells={"repeat_greedy": "tainted", "repeat_seeded": "tainted"},
    reasons={"repeat_greedy": {"accounting": 2}, "repeat_seeded": {"accounting": 1}})  # fmt: skip

# Dialects.
add("speculative", ON, "short", "draft_n and the echoed speculative types",
    cells=dict.fromkeys(SHORT, "unsupported"),
    instrument=NO_CONTROL | {"canary": "incomplete"}, code=3)  # fmt: skip
add("post_sampling", ON, "short", "every reply is refused, and its body kept", cells=dict.fromkeys(SHORT, "not run"),
    instrument=NO_CONTROL | dict.fromkeys(["canary", "float32", "top_k", "greedy", "settings", "counts", "one_ulp",
                                           "parse_twice"], "incomplete"), code=3)  # fmt: skip
add("split_characters", ON, "short", "a stream with holes equals nothing; streamed ids are missed",
    cells={"repeat_greedy": "token-identical", "repeat_seeded": "token-identical", "other_slot": "unstable",
           "stream_vs_whole": "not run", "control_prompt": "unstable", "control_seed": "unstable",
           "control_temperature": "unstable"},
    qualifiers={"repeat_greedy": ["partial"], "repeat_seeded": ["partial"]})  # fmt: skip
add("timings_missing", ON, "short", "nothing shows that the cache was not used", cells=dict.fromkeys(SHORT, "vacuous"),
    reasons={"repeat_greedy": {"cache": 2}}, instrument=NO_CONTROL, code=3)  # fmt: skip

# Another server.
add("swap_after", "other_slot/a/2/0", "short", "the canary moved", cells=dict.fromkeys(SHORT, "tainted"),
    reasons={"repeat_greedy": {"canary": 2}}, instrument=NO_CONTROL | {"canary": "failed"}, code=3)  # fmt: skip
add("build_after", HIT, "short", "/props is not that of the start", after=1, cells=dict.fromkeys(LATE, "tainted"),
    reasons={"other_slot": {"same server": 1}}, instrument=LATE_CONTROLS, code=3)  # fmt: skip
add("restart_after", HIT, "short", "counters began anew, then the process is another", after=1,
    cells=dict.fromkeys(LATE, "tainted"), reasons={"other_slot": {"accounting": 1}},
    instrument=LATE_CONTROLS, code=3)  # fmt: skip
