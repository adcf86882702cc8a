"""The exact bytes of a trial's request.

In go a plan, a trial and token ids, out comes canonical JSON that is hashed, stored and sent as it is. Nothing here
sends.
"""

from collections.abc import Sequence
from typing import Any

from audit.errors import PlanError
from audit.plan import Plan, seed
from audit.stream import canonical
from audit.trial import Trial

__all__ = ["NEUTRAL", "request_body", "token_grammar"]

# Every sampler field is sent, so that no default of the server or of the model file can take part.
NEUTRAL: dict[str, Any] = {
    "dry_allowed_length": 2,
    "dry_base": 1.75,
    "dry_multiplier": 0.0,
    "dry_penalty_last_n": 0,
    "dynatemp_exponent": 1.0,
    "dynatemp_range": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
    "logit_bias": [],
    "min_keep": 0,
    "mirostat": 0,
    "mirostat_eta": 0.1,
    "mirostat_tau": 5.0,
    "n_keep": 0,
    "post_sampling_probs": False,
    "presence_penalty": 0.0,
    "repeat_last_n": 0,
    "repeat_penalty": 1.0,
    "return_tokens": True,
    "samplers": ["top_k", "top_p", "min_p", "temperature"],
    "stop": [],
    "timings_per_token": False,
    "top_n_sigma": -1.0,
    "typical_p": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
}


def token_grammar(forced: Sequence[int]) -> str:
    """Return a grammar that admits exactly these ids, in this order."""
    return "root ::= " + " ".join(f"<[{token}]>" for token in forced)


def request_body(
    plan: Plan,
    trial: Trial,
    *,
    registered: str,
    prompt: Sequence[int],
    vocabulary: int | None,
    forced: Sequence[int] = (),
) -> bytes:
    """Return the exact bytes of a trial's request.

    Args:
        plan: the resolved plan.
        trial: the trial; for `prefixes` the caller appends the prefix to `prompt`.
        registered: the registered digest.
        prompt: token ids.
        vocabulary: number of tokens, needed for a canary.
        forced: the ids that a grammar forces, for the form `forced`.

    Raises: PlanError where a canary's vocabulary is not known.
    """
    sampled = trial.sampling != "greedy"
    if trial.n_probs == "vocabulary" and vocabulary is None:
        raise PlanError("the server does not say how many tokens its vocabulary has, so that no canary can be formed")
    n_probs = {"plan": plan.n_probs, "none": 0, "vocabulary": vocabulary}[trial.n_probs]
    temperature = {"greedy": 0.0, "sampled": plan.sampling.temperature, "control": plan.control_temperature}[
        trial.sampling
    ]
    return canonical({
        **NEUTRAL,
        "cache_prompt": trial.cache,
        "grammar": token_grammar(forced) if trial.form == "forced" else "",
        "id_slot": trial.slot,
        "min_p": plan.sampling.min_p if sampled else 0.0,
        "n_predict": 1 if trial.form == "prefixes" else trial.steps,
        "n_probs": n_probs,
        "prompt": list(prompt),
        "seed": seed(registered, trial.seed_group),
        "stream": trial.streamed,
        "temperature": temperature,
        "top_k": plan.sampling.top_k if sampled else 0,
        "top_p": plan.sampling.top_p if sampled else 1.0,
    })  # fmt: skip
