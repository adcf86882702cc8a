"""Request: what the body of a `/completion` asks for, checked and echoed as llama-server does.

In: decoded JSON and a vocabulary. Out: one `Request` a prompt, or a `RefusalError` with the server's words. Grammars
are read as far as `root ::= <[7]> <[12]>`: a sequence of token ids; every other one is refused as unreadable.
`n_cmpl`, images, speculative decoding and progress events are not imitated.
"""

import re
from dataclasses import dataclass
from typing import Any

from audit.fake.echo import sampling_of, scalar, settings_of
from audit.fake.refusal import RefusalError
from audit.fake.sampler import Sampling
from audit.fake.vocabulary import Vocabulary

__all__ = ["Request", "parse"]

_GRAMMAR = re.compile(r"\s*root\s*::=\s*((?:<\[[0-9]+\]>\s*)+)")
_PROMPT_FORMS = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt string, '
    "or a list of mixed strings & tokens."
)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be continued.

    Attributes:
        index: which prompt of the body.
        prompt: token ids.
        slot: the slot asked for, -1 for any.
        n_predict: the most steps; below 0 until the end of the sequence or of the context.
        n_probs: count of top-k logprobs to report a step; 0 or less for no entries at all.
        cache_prompt: whether the slot's content may be reused.
        return_tokens: whether a whole reply lists its ids.
        stream: whether each step is sent as it comes.
        timings_per_token: whether each event of a stream carries timings.
        post_sampling_probs: whether probabilities at the end of the sampler chain are reported instead.
        stop: texts that end the generation.
        forced: the ids that a grammar admits, step by step, or None.
        sampling: how tokens are chosen.
        settings: the echo, complete.
    """

    index: int
    prompt: tuple[int, ...]
    slot: int
    n_predict: int
    n_probs: int
    cache_prompt: bool
    return_tokens: bool
    stream: bool
    timings_per_token: bool
    post_sampling_probs: bool
    stop: tuple[str, ...]
    forced: tuple[int, ...] | None
    sampling: Sampling
    settings: dict[str, Any]


def parse(body: object, vocabulary: Vocabulary, ctx: int) -> list[Request]:
    """Read a request body.

    Args:
        body: decoded JSON.
        vocabulary: what text prompts are split by.
        ctx: tokens that one slot holds.

    Returns: the requests, one a prompt, and at least one.
    Raises: RefusalError.
    """
    if not isinstance(body, dict):
        raise RefusalError(400, "[json.exception.type_error.304] cannot use at() with array")
    if "prompt" not in body:
        raise RefusalError(400, "[json.exception.out_of_range.403] key 'prompt' not found")
    prompts = _prompts(body["prompt"], vocabulary)
    settings = settings_of(body, vocabulary)
    forced = _grammar(settings["grammar"])
    sampling = sampling_of(settings)
    for prompt in prompts:
        _check_prompt(prompt, vocabulary, ctx)
    slot = body.get("id_slot")
    return [
        Request(
            index=index,
            prompt=tuple(prompt),
            slot=slot if isinstance(slot, int) else -1,
            n_predict=settings["n_predict"],
            n_probs=settings["n_probs"],
            cache_prompt=scalar("cache_prompt", body.get("cache_prompt"), default=True),
            return_tokens=scalar("return_tokens", body.get("return_tokens"), default=False),
            stream=settings["stream"],
            timings_per_token=settings["timings_per_token"],
            post_sampling_probs=settings["post_sampling_probs"],
            stop=tuple(settings["stop"]),
            forced=forced,
            sampling=sampling,
            settings=settings,
        )
        for index, prompt in enumerate(prompts)
    ]


def _grammar(text: str) -> tuple[int, ...] | None:
    """Return the ids that a grammar forces, or None where there is none."""
    if not text:
        return None
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise RefusalError(400, "Failed to initialize samplers: failed to parse grammar")
    return tuple(int(token) for token in re.findall(r"[0-9]+", match[1]))


def _prompts(value: object, vocabulary: Vocabulary) -> list[list[int]]:
    """Return the token ids of each prompt that a body holds."""
    if not isinstance(value, list) or (value and all(_is_number(item) for item in value)):
        return [_prompt(value, vocabulary)]
    if not value:
        raise RefusalError(400, '"prompt" must not be empty')
    if any(_is_number(item) for item in value):
        return [_prompt(value, vocabulary)]
    return [_prompt(item, vocabulary) for item in value]


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _prompt(value: object, vocabulary: Vocabulary) -> list[int]:
    """Return the token ids of one prompt: a text, a list of ids, or a list of both."""
    if isinstance(value, str):
        # A vocabulary without an automatic first token answers the empty text by generating nothing; so does this one.
        return vocabulary.tokenize(value, add_special=True) if value else []
    if not isinstance(value, list) or not all(_is_number(item) or isinstance(item, str) for item in value):
        raise RefusalError(400, _PROMPT_FORMS)
    tokens: list[int] = []
    for position, item in enumerate(value):
        if isinstance(item, str):
            tokens.extend(vocabulary.tokenize(item, add_special=position == 0))
        else:
            tokens.append(item)
    return tokens


def _check_prompt(prompt: list[int], vocabulary: Vocabulary, ctx: int) -> None:
    """Refuse ids that the vocabulary lacks and prompts that a slot cannot hold."""
    if prompt and not (min(prompt) >= 0 and max(prompt) < vocabulary.size):
        raise RefusalError(400, "Prompt contains invalid tokens")
    if len(prompt) >= ctx:
        raise RefusalError(
            400,
            f"request ({len(prompt)} tokens) exceeds the available context size ({ctx} tokens), try increasing it",
            type="exceed_context_size_error",
            n_prompt_tokens=len(prompt),
            n_ctx=ctx,
        )
