"""What a server says of a request, against the request itself: echoed settings, and the counts of a reply.

In go the facts of one exchange, out comes whether they agree, None where this copy leaves a fact out.
"""

import numpy as np

from audit.record import Reply

__all__ = ["biased_tokens", "counts_agree", "echo_agrees", "is_greedy"]

_NOT_ECHOED_AS_SENT = frozenset({"logit_bias", "grammar"})


def echo_agrees(sent: object, echo: object) -> bool:
    """Compare the settings of a request with those that the server says it used, as far as it says any."""
    if not isinstance(sent, dict) or not isinstance(echo, dict):
        return False
    pairs = [(sent[key], echo[key]) for key in sent if key in echo and key not in _NOT_ECHOED_AS_SENT]
    if "max_tokens" in echo:
        pairs.append((sent.get("n_predict"), echo["max_tokens"]))
    same_text = "grammar" not in echo or sent.get("grammar") == echo["grammar"]
    return same_text and all(_equal(one, other) for one, other in pairs)


def counts_agree(sent: object, reply: Reply) -> bool:
    """Compare the token counts of a reply with the prompt that was sent, with each other, and with its steps."""
    if not isinstance(sent, dict) or not isinstance(sent.get("prompt"), list):
        return False
    told = [
        (reply.tokens_evaluated, len(sent["prompt"])),
        (reply.predicted_n, reply.steps),
        (reply.tokens_predicted, reply.steps),
    ]
    if reply.cache_n is not None and reply.prompt_n is not None:
        told.append((reply.tokens_evaluated, reply.cache_n + reply.prompt_n))
    return reply.steps <= sent.get("n_predict", 0) and all(said in {None, due} for said, due in told)


def is_greedy(sent: object) -> bool:
    """Tell whether a request asks for the most probable token of each step, and for logprobs that show it."""
    return (
        isinstance(sent, dict)
        and sent.get("temperature") == 0
        and not sent.get("grammar")
        and sent.get("n_probs", 0) > 0
    )


def biased_tokens(echo: object) -> frozenset[int]:
    """Return the ids whose logits the server changed before sampling, such as end-of-text under `ignore_eos`."""
    biases = echo.get("logit_bias") if isinstance(echo, dict) else None
    named = [bias.get("token") for bias in biases if isinstance(bias, dict)] if isinstance(biases, list) else []
    return frozenset(token for token in named if isinstance(token, int))


def _equal(sent: object, echoed: object) -> bool:
    """Compare two values: whole numbers exactly, other numbers as float32, lists element by element."""
    if isinstance(sent, bool) or isinstance(echoed, bool):
        return sent is echoed
    if isinstance(sent, int) and isinstance(echoed, int):
        return sent == echoed
    if isinstance(sent, int | float) and isinstance(echoed, int | float):
        with np.errstate(over="ignore"):
            return bool(np.float32(sent) == np.float32(echoed))
    if isinstance(sent, list) and isinstance(echoed, list):
        return len(sent) == len(echoed) and all(_equal(one, other) for one, other in zip(sent, echoed, strict=True))
    return sent == echoed
