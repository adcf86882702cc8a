"""What conditions, checks and verdicts are called in a sentence.

In go the words of a record, out come the words of a report, in English. A word that this module does not know is shown
as it is, so that a record of a later version can still be read.
"""

from collections.abc import Sequence

from audit.conditions import catalogue_position

__all__ = [
    "CHECKS",
    "CONTROL",
    "GROUPS",
    "NO_RESULT",
    "VERDICTS",
    "condition_words",
    "counted",
    "group_of",
    "in_order",
    "listed",
    "predictions_words",
    "rule_words",
]

CONTROL = "control_"
_OPERATORS = {"<": "below", "<=": "at most", "==": "exactly", ">=": "at least", ">": "above"}
NO_RESULT = ("unsupported", "not run", "tainted", "cross-talk", "vacuous", "insufficient")
_CONDITIONS = {
    "repeat_greedy": "alone, again",
    "repeat_seeded": "alone, again, sampled with a fixed seed",
    "first_request": "the first request of a process",
    "other_slot": "alone, in another slot",
    "wave_repeat": "the same wave again",
    "cross_batch_together": "in a batch with other prompts",
    "cross_batch_staggered": "while a neighbour is prefilled",
    "cache_cold": "prompt cache on, nothing in it",
    "cache_warm1": "prompt cache reused",
    "cache_warm2": "prompt cache reused again",
    "cache_prefix": "a cached prefix reused",
    "idle_neighbour": "beside a resting conversation",
    "prefill_vs_decode": "forced, or prefilled step by step",
    "stream_vs_whole": "streamed",
    "without_logprobs": "without asking for logprobs",
    "restart": "after a restart",
    "control_prompt": "control: another prompt",
    "control_seed": "control: another seed",
    "control_temperature": "control: another temperature",
}
_LEVELLED = {
    "concurrent_greedy": "{} at once",
    "concurrent_seeded": "{} at once, sampled with a fixed seed",
    "oversubscribed": "{} at once, more than there are slots",
}
# Headings of the matrix, each with the families below it; a family that is in none comes under the last.
GROUPS = {
    "Alone": ("repeat_greedy", "repeat_seeded", "first_request", "other_slot", "idle_neighbour", "restart"),
    "At once": ("concurrent_greedy", "concurrent_seeded", "oversubscribed", "wave_repeat"),
    "Beside other prompts": ("cross_batch_together", "cross_batch_staggered"),
    "From the prompt cache": ("cache_cold", "cache_warm1", "cache_warm2", "cache_prefix"),
    "Asked in another way": ("prefill_vs_decode", "stream_vs_whole", "without_logprobs"),
    "Controls, which must differ": ("control_prompt", "control_seed", "control_temperature"),
}
CHECKS = {
    "control_prompt": "another prompt gives another stream",
    "control_seed": "another seed gives other tokens",
    "control_temperature": "another temperature gives other tokens",
    "canary": "the same full-vocabulary request, first and last in the run, gave the same bits",
    "float32": "stored logprobs are float32 values, so that nothing was rounded on the way",
    "top_k": "steps hold as many logprobs as were asked for",
    "greedy": "each token of a greedy request is the most probable one of its step",
    "settings": "the server's echo of each request's settings is what was sent",
    "counts": "the server's counts of tokens are those of the request and of its reply",
    "one_ulp": "a stored logprob moved by one ULP is seen by digest and comparison",
    "parse_twice": "the same stream read twice is the same stream",
}
VERDICTS = {
    "identical": "every usable trial has its reference's logprobs, bit for bit",
    "token-identical": "the tokens are the same, at least one trial has other logprobs",
    "divergent": "at least one trial has other tokens",
    "unstable": "the baseline does not repeat when it is sent alone, so nothing can be compared with it",
    "insufficient": "no result: too few trials are usable",
    "vacuous": "no result: the condition did not take place often enough",
    "cross-talk": "no result: a reply belongs to another prompt",
    "tainted": "no result: something else happened to the server",
    "not run": "no result: no trial was completed",
    "unsupported": "no result: speculative decoding, or probabilities after sampling",
}


def _family_level(condition: str) -> tuple[str, str]:
    family, separator, level = condition.rpartition("_c")
    return (family, level) if separator and family in _LEVELLED and level.isdigit() else (condition, "")


def condition_words(condition: str) -> str:
    """Return what was done, in a few words."""
    family, level = _family_level(condition)
    return _LEVELLED[family].format(level) if level else _CONDITIONS.get(condition, condition)


def group_of(condition: str) -> str:
    """Return the heading that a condition stands under."""
    family, _ = _family_level(condition)
    return next((heading for heading, families in GROUPS.items() if family in families), "Others")


def in_order(conditions: Sequence[str]) -> list[str]:
    """Return conditions once each, in the order of the catalogue."""
    return sorted(set(conditions), key=catalogue_position)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: `1 cell`, `2 cells`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def rule_words(op: str, value: float) -> str:
    """Return what a rule asks of a number: `exactly 1`, `below 0.9`."""
    return f"{_OPERATORS.get(op, op)} {value:g}"


def predictions_words(statuses: Sequence[str]) -> str:
    """Return how many registered predictions hold and how many do not, as a sentence; empty where there are none."""
    if not statuses:
        return ""
    said = {status: statuses.count(status) for status in ("holds", "refuted", "inconclusive", "not applicable")}
    verb = {status: "is" if number == 1 else "are" for status, number in said.items()}
    words = [f"{said['holds']} {'holds' if said['holds'] == 1 else 'hold'}"]
    words += [
        f"{said[status]} {verb[status]} {status}" for status in list(said)[1:] if said[status] or status == "refuted"
    ]
    return f"Of {counted(len(statuses), 'registered prediction')} {listed(words)}."
