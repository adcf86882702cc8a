"""Lies: the faults that make what the server says differ from what it did.

In: a request as it was parsed, or a reply as it is about to be encoded. Out: the request as this server understands
it, or the reply as this server words it. Bodies are changed as copies: what a request was echoed as is never shared.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from audit.fake.echo import default_settings, sampling_of
from audit.fake.numbers import middle_of
from audit.fake.request import Request
from audit.fake.sampler import Sampling
from audit.fake.slot import Generation
from audit.fake.switches import Faults

__all__ = ["Answers", "sampled_as", "told", "understood"]

_SAMPLER_SETTINGS = ("temperature", "top_k", "top_p", "min_p")
_ANSWER = ("content", "tokens", "completion_probabilities")
_ECHO = ("prompt", "tokens_evaluated")
_STEPS_MIN = 4  # fewer steps have no middle that ends inside a character: a canary has two


def understood(request: Request, faults: Faults) -> Request:
    """Return a request as this server takes it; the echo is as asked, but for what the server says of itself."""
    if faults.prompt_truncated is not None:
        request = replace(request, prompt=request.prompt[-faults.prompt_truncated :])
    if faults.slot_wrapped is not None and request.slot >= 0:
        request = replace(request, slot=request.slot % faults.slot_wrapped)
    if faults.n_probs_capped is not None:
        request = replace(request, n_probs=min(request.n_probs, faults.n_probs_capped))
    if faults.post_sampling:
        request = replace(request, post_sampling_probs=True)
    if faults.cache_always:
        request = replace(request, cache_prompt=True)
    if faults.defaults_applied:
        defaults = default_settings()
        settings = request.settings | {name: defaults[name] for name in _SAMPLER_SETTINGS}
        request = replace(request, settings=settings, sampling=sampling_of(settings))
    return request


def sampled_as(asked: Sampling, faults: Faults) -> Sampling:
    """Return how a request is sampled, whatever its echo says."""
    if faults.seed_ignored:
        asked = replace(asked, seed=0)
    if faults.temperature_ignored:
        asked = replace(asked, temperature=0.0, samplers=("temperature",))
    return asked


class Answers:
    """The first whole reply to each prompt, from which another conversation is answered."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[tuple[int, ...], int, int], dict[str, Any]] = {}

    def exchanged(self, body: dict[str, Any], generation: Generation, *, echo: bool) -> dict[str, Any]:
        """Return the body with the answer to another prompt, and that prompt's echo where asked.

        Only an answer of as many steps and logprobs fits; without one the body stays as it is.
        """
        _, *shape = self._key(generation)
        for (prompt, *other), body_of_other in self._bodies.items():
            if prompt != generation.prompt and other == shape:
                keys = (*_ANSWER, *_ECHO) if echo else _ANSWER
                return body | {key: body_of_other[key] for key in keys if key in body_of_other}
        return body

    def keep(self, body: dict[str, Any], generation: Generation) -> None:
        """Remember a greedy whole reply, the first to its prompt."""
        if not generation.request.stream and generation.request.sampling.temperature <= 0:
            self._bodies.setdefault(self._key(generation), body)

    @staticmethod
    def _key(generation: Generation) -> tuple[tuple[int, ...], int, int]:
        return generation.prompt, generation.request.n_predict, generation.request.n_probs


def told(body: dict[str, Any], generation: Generation, step: int | None, faults: Faults) -> dict[str, Any]:
    """Return a reply, or the event of one step, as this server words it.

    Args:
        body: a whole reply, the last event of a stream, or the event of a step.
        generation: what it is about.
        step: the index of the event's step, None for the other two.
        faults: the switches.
    """
    for name, change in _WORDINGS.items():
        if getattr(faults, name):
            body = change(body, generation, step)
    return body


def _without_timings(body: dict[str, Any], _generation: Generation, _step: int | None) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "timings"}


def _nothing_cached(body: dict[str, Any], generation: Generation, _step: int | None) -> dict[str, Any]:
    if "timings" not in body:
        return body
    return body | {"timings": body["timings"] | {"cache_n": 0, "prompt_n": len(generation.prompt)}}


def _without_middle(body: dict[str, Any], generation: Generation, step: int | None) -> dict[str, Any]:
    """Drop the middle token's entry; in a stream its id is lost as well."""
    if generation.step_count_max < _STEPS_MIN:
        return body
    middle = middle_of(generation)
    if step is not None:
        return body | {"tokens": [], "completion_probabilities": []} if step == middle else body
    entries = body.get("completion_probabilities")
    return body | {"completion_probabilities": entries[:middle] + entries[middle + 1 :]} if entries else body


def _drafted(body: dict[str, Any], generation: Generation, step: int | None) -> dict[str, Any]:
    """Give every second token the entry of a drafted one, and say so in timings and settings."""
    first = 0 if step is None else step
    if "completion_probabilities" in body:
        entries = body["completion_probabilities"]
        drafted = [
            entry | {"logprob": 0.0, "top_logprobs": []} if (first + index) % 2 else entry
            for index, entry in enumerate(entries)
        ]
        body = body | {"completion_probabilities": drafted}
    if "generation_settings" in body:
        body = body | {"generation_settings": body["generation_settings"] | {"speculative.types": "draft"}}
    if "timings" in body:
        count = len(generation.steps) // 2
        body = body | {"timings": body["timings"] | {"draft_n": count, "draft_n_accepted": count}}
    return body


_WORDINGS: dict[str, Callable[[dict[str, Any], Generation, int | None], dict[str, Any]]] = {
    "cache_hidden": _nothing_cached,
    "speculative": _drafted,
    "split_characters": _without_middle,
    "timings_missing": _without_timings,
}
