"""Echo: the generation settings of a request, read and echoed as llama-server does.

In: the decoded body of a request. Out: `generation_settings`, complete and in the server's order, and the `Sampling`
that follows from it. Null is the default, floats become float32, a seed is taken modulo 2^32, unknown sampler names
are dropped silently. Settings that this server has no use for are only echoed.
"""

from ctypes import c_float
from math import inf
from typing import Any

from audit.fake.refusal import RefusalError, type_error
from audit.fake.sampler import Sampling
from audit.fake.vocabulary import EOS, Vocabulary

__all__ = ["default_settings", "sampling_of", "scalar", "settings_of", "slot_settings"]

_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
_SAMPLER_NAMES = {name: name for name in (*_SAMPLERS, "infill", "adaptive_p")}
_SAMPLER_NAMES |= {"temp": "temperature", "top-k": "top_k", "top-p": "top_p", "nucleus": "top_p", "min-p": "min_p"}
_SAMPLER_NAMES |= {"typical": "typ_p", "typical-p": "typ_p", "typ-p": "typ_p", "typ": "typ_p"}
_SAMPLER_LETTERS = dict(zip("edskypmxti", (*_SAMPLERS, "infill"), strict=True))

# Every setting in the order of the echo, with its default: the type of the default is the type asked for.
_DEFAULTS: dict[str, object] = {
    "seed": 0xFFFFFFFF,
    "temperature": 0.8,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n", ":", '"', "*"],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "stop": [],
    "max_tokens": -1,
    "n_predict": -1,
    "n_keep": 0,
    "n_discard": 0,
    "ignore_eos": False,
    "stream": False,
    "logit_bias": [],
    "n_probs": 0,
    "min_keep": 0,
    "grammar": "",
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
    "chat_format": "Content-only",
    "reasoning_format": "deepseek",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "samplers": list(_SAMPLERS),
    "speculative.types": "none",
    "timings_per_token": False,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "lora": [],
}
# `/slots` and `/props` leave these out.
_ECHO_ONLY = frozenset({"dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy"})
_ECHO_ONLY |= {"grammar_triggers", "preserved_tokens"}
# A request cannot set these, or sets them in a way of its own.
_NOT_SCALAR = frozenset({"stop", "logit_bias", "samplers", "max_tokens", "n_predict", "speculative.types"})
_INT32_MAX = 2**31 - 1


def default_settings() -> dict[str, Any]:
    """Return the settings of a request that asks for none, as `/props` lists them."""
    settings = {name: scalar(name, None, default) for name, default in _DEFAULTS.items()}
    return slot_settings(settings | {"reasoning_format": "none"})


def slot_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an echo that `/slots` shows."""
    return {name: value for name, value in settings.items() if name not in _ECHO_ONLY}


def settings_of(body: dict[str, Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the complete echo of a request body.

    Raises: RefusalError, for a value of the wrong type or out of range.
    """
    settings = {
        name: scalar(name, None if name in _NOT_SCALAR else body.get(name), default)
        for name, default in _DEFAULTS.items()
    }
    settings["seed"] %= 2**32
    settings["temperature"] = max(0.0, settings["temperature"])
    n_predict = scalar("n_predict", body.get("n_predict", body.get("max_tokens")), -1)
    if not -1 <= n_predict <= _INT32_MAX:
        bounds = f"Value must be between -1 <= value <= {_INT32_MAX}, but got {n_predict}"
        raise RefusalError(400, f"Field 'n_predict': {bounds}")
    settings["n_predict"] = settings["max_tokens"] = n_predict
    stop = body.get("stop")
    words = [stop] if isinstance(stop, str) else stop
    settings["stop"] = [word for word in words if isinstance(word, str) and word] if isinstance(words, list) else []
    settings["samplers"] = _samplers(body.get("samplers"))
    settings["logit_bias"] = _bias(body.get("logit_bias"), vocabulary)
    if settings["ignore_eos"]:
        settings["logit_bias"].append({"bias": None, "token": EOS})
    return settings


def sampling_of(settings: dict[str, Any]) -> Sampling:
    """Return how a request with this echo is to be sampled."""
    return Sampling(
        seed=settings["seed"],
        temperature=settings["temperature"],
        samplers=tuple(settings["samplers"]),
        top_k=settings["top_k"],
        top_p=settings["top_p"],
        min_p=settings["min_p"],
        bias=tuple(
            (entry["token"], -inf if entry["bias"] is None else entry["bias"]) for entry in settings["logit_bias"]
        ),
    )


def scalar(name: str, value: object, default: object) -> Any:  # noqa: ANN401 - what JSON holds
    """Return one setting as the server would keep it: null is the default, floats become float32.

    Raises: RefusalError, for a value of another type than the default's.
    """
    if value is None:
        value = default
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise type_error("boolean", value, field=name)
        return value
    if isinstance(default, int | float):
        if not isinstance(value, int | float):
            raise type_error("number", value, field=name)
        return int(value) if isinstance(default, int) else c_float(value).value
    if isinstance(default, str) and not isinstance(value, str):
        raise type_error("string", value, field=name)
    return value


def _samplers(value: object) -> list[str]:
    """Return the known sampler names in the order asked for; the others are dropped silently, as there."""
    if isinstance(value, str):
        return [_SAMPLER_LETTERS[letter] for letter in value if letter in _SAMPLER_LETTERS]
    if isinstance(value, list):
        return [_SAMPLER_NAMES[name] for name in value if isinstance(name, str) and name in _SAMPLER_NAMES]
    return list(_SAMPLERS)


def _bias(value: object, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """Return the echo of logit biases (`false` is minus infinity, echoed as null); unreadable ones are dropped."""
    pairs: list[Any] = list(value.items()) if isinstance(value, dict) else value if isinstance(value, list) else []
    echo: list[dict[str, Any]] = []
    for pair in pairs:
        match pair:
            case [str(name), bool() | int() | float() as nats]:
                tokens = [int(name)] if name.isdecimal() else vocabulary.tokenize(name)
            case [int(token), bool() | int() | float() as nats]:
                tokens = [token]
            case _:
                continue
        bias = None if nats is False else c_float(nats).value
        echo += [{"bias": bias, "token": token} for token in tokens if 0 <= token < vocabulary.size]
    return echo
