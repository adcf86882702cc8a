"""Switches: what can be wrong with a fake server, one field a fault, each named after what must catch it.

In: nothing. Out: `Faults`, all off by default, and what each switch does in one sentence, for `--list-faults` and the
docs. Three groups: numbers that move (an audit finds where), lies (an audit must not believe them), failures (an audit
must survive them). Where a switch acts is the business of the three modules `numbers`, `lies` and `failures`.

A REQUEST is the index of a completion request: 0-based, in the order in which they arrive at one process.
"""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["GROUPS", "Faults", "Switch", "switches"]

GROUPS = ("numbers", "lies", "failures")


def _number(text: str, default: object = False) -> Any:  # noqa: ANN401, FBT002 - a field of a dataclass
    return field(default=default, metadata={"group": "numbers", "text": text})


def _lie(text: str, default: object = False) -> Any:  # noqa: ANN401, FBT002 - a field of a dataclass
    return field(default=default, metadata={"group": "lies", "text": text})


def _failure(text: str, default: object = False) -> Any:  # noqa: ANN401, FBT002 - a field of a dataclass
    return field(default=default, metadata={"group": "failures", "text": text})


@dataclass(frozen=True)
class Faults:
    """What is wrong with a fake server; `switches` tells what each field does."""

    # Numbers that move: the jitter_ ones move logits by rounding noise, which is too small to change a token.
    one_ulp: int | None = _number(
        "REQUEST: the last reported logprob of the reply's middle step is one ULP lower", None
    )
    one_ulp_each: int | None = _number(
        "SEED: in every reply to a request asked before, one top-k entry of one step is one ULP lower", None
    )
    jitter_repeated: bool = _number("a greedy request that is equal to an earlier one moves")
    jitter_resampled: bool = _number("a sampled request that is equal to an earlier one moves")
    jitter_first: bool = _number("the first request of each process moves")
    jitter_restarted: bool = _number("every request of any process but the first moves")
    jitter_slot: int | None = _number("N: what runs in slot N moves", None)
    jitter_concurrent: bool = _number("every row that shares its decode with another moves")
    jitter_from_level: int | None = _number("N: the middle row moves in a decode of N slots or more", None)
    jitter_concurrent_greedy: bool = _number("a greedy request's middle row moves beside equal prompts, each pinned")
    jitter_concurrent_seeded: bool = _number("the same of a sampled request")
    jitter_wave_again: bool = _number("the middle row moves in a batch that was seen before")
    jitter_queued: bool = _number("a request that waited for a slot moves")
    jitter_mixed_batch: bool = _number("every row that shares its decode with another prompt moves")
    jitter_together: bool = _number("the first row moves where another prompt is in its decode")
    jitter_staggered: bool = _number("a row moves while another prompt is prefilled in its decode")
    jitter_cached: bool = _number("a reply of which anything came from the cache moves")
    jitter_cache_cold: bool = _number("a request moves that asks for the cache and finds nothing but a first token")
    jitter_cache_warm1: bool = _number("a wholly cached prompt moves that a cold request left")
    jitter_cache_warm2: bool = _number("a wholly cached prompt moves that a cached request left")
    jitter_cache_prefix: bool = _number("a prompt moves of which some, and not all, came from the cache")
    jitter_idle_neighbour: bool = _number("a request moves right after another conversation came to rest elsewhere")
    jitter_forced: bool = _number("a request with a grammar moves")
    jitter_prefill: bool = _number("the row that prefill gives moves, and no row of decoding")
    jitter_streamed: bool = _number("a streamed reply moves")
    flip_without_logprobs: bool = _number("without n_probs the middle step takes the second-best token")
    jitter_past_step: int | None = _number("N: rows from step N on move, each request in its own way", None)
    jitter_prompt_tokens: int | None = _number("N: prompts of N tokens move, each request in its own way", None)
    jitter_once_in: int | None = _number("N: every N-th request moves", None)
    flip_near_tie: int | None = _number(
        "REQUEST: the two best tokens of each middle step are one ULP apart, and this reply takes the other", None
    )
    tie_reordered: int | None = _number(
        "REQUEST: the last two reported logprobs of each middle step tie, and this reply lists them in turn", None
    )
    logprobs_rounded: bool = _number("logprobs are rounded to 6 digits")
    logprobs_float64: bool = _number("logprobs are computed in float64")
    n_probs_capped: int | None = _number("N: at most N logprobs a step are reported, whatever is asked", None)

    # Lies: what the server says is not what it did.
    seed_ignored: bool = _lie("every request is sampled with seed 0, whatever is echoed")
    temperature_ignored: bool = _lie("every request is sampled at temperature 0, whatever is echoed")
    prompt_ignored: bool = _lie("what is generated does not depend on the prompt")
    defaults_applied: bool = _lie("the server's default sampler settings are used, and echoed, whatever is asked")
    cache_hidden: bool = _lie("cache_n is 0 and prompt_n the whole prompt, although the cache was used")
    cache_always: bool = _lie("cache_prompt false is not obeyed")
    serialized: bool = _lie("one request is processed at a time, although each reply is 200 and names its slot")
    slot_wrapped: int | None = _lie("N: the slot asked for is taken modulo N, although there are more", None)
    cross_talk: int | None = _lie("REQUEST: the reply is the answer to another prompt, whose echo it holds", None)
    cross_talk_hidden: int | None = _lie("REQUEST: the same under the echo of the right prompt", None)
    prompt_truncated: int | None = _lie("N: only the last N tokens of a prompt are used, and echoed", None)
    speculative: bool = _lie("every second token is drafted: logprob 0.0, no top-k")
    post_sampling: bool = _lie("probabilities after sampling are reported instead of logprobs")
    swap_after: int | None = _lie("N: from request N on another model answers under the same identity", None)
    build_after: int | None = _lie("N: from request N on `/props` names another build", None)
    restart_after: int | None = _lie("N: after N requests a new process answers on the same connections", None)
    split_characters: bool = _lie("the middle token of 4 or more ends inside a character: no entry, streamed no id")
    replies_repeated: bool = _lie("a proxy repeats its old reply to a completion that it has seen before")
    timings_missing: bool = _lie("replies hold no timings")

    # Failures: replies that are none.
    loading_s: float = _failure("SECONDS after each start in which every route answers 503", 0.0)
    loading_at: int | None = _failure("REQUEST: answered 503 `Loading model`", None)
    unauthorized_at: int | None = _failure("REQUEST: answered 401", None)
    context_exceeded_at: int | None = _failure("REQUEST: answered 400 `exceed_context_size_error`", None)
    server_error_at: int | None = _failure("REQUEST: answered 500", None)
    redirected_at: int | None = _failure("REQUEST: answered 307 with another address", None)
    metrics_missing: bool = _failure("`/metrics` is a 501")
    slots_missing: bool = _failure("`/slots` is a 501")
    metrics_lost_after: int | None = _failure("N: from request N on `/metrics` is a 501", None)
    wave_overflows: int | None = _failure("N: all that runs ends with 500 where it holds N tokens together", None)
    stream_error: int | None = _failure("REQUEST: streamed, breaks off in its middle with an event of an error", None)
    body_cut: int | None = _failure("REQUEST: half of the reply, then the end of the connection", None)
    reset_before: int | None = _failure("REQUEST: the connection is reset instead of an answer", None)
    reset_middle: int | None = _failure("REQUEST: half of the reply, then the connection is reset", None)
    stalled: int | None = _failure("REQUEST: no byte comes for as long as the client waits", None)
    dripped: int | None = _failure("REQUEST: the reply comes byte by byte and its last byte never", None)
    body_huge: int | None = _failure("REQUEST: 100 MB of white space or comments stand before the reply", None)
    html_at: int | None = _failure("REQUEST: answered by a web page with status 200", None)
    nan_at: int | None = _failure("REQUEST: a reported logprob is a bare NaN", None)
    null_logprob: int | None = _failure("REQUEST: the last reported logprob of the middle step is null", None)
    null_logprobs: bool = _failure("the same in every reply")
    key_missing: int | None = _failure("REQUEST: the reply lacks its tokens", None)
    keys_reordered: bool = _failure("the keys of every object come in another order")
    events_split: bool = _failure("streams come in pieces of a few bytes, cut also inside a character")
    refuses_after: int | None = _failure("N: after N requests every connection is reset", None)


@dataclass(frozen=True)
class Switch:
    """One fault: its name, its group, what it does, and its value when it is off."""

    name: str
    group: str
    text: str
    default: bool | float | None


def switches() -> tuple[Switch, ...]:
    """Return every switch in the order of the groups."""
    return tuple(
        Switch(one.name, one.metadata["group"], one.metadata["text"], one.default)  # type: ignore[arg-type]
        for one in fields(Faults)
    )
