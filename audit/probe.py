"""Is this server auditable: three small requests, and what the answers say.

In goes an address, out comes a JSON-able account: what the server offers, whether its logprobs have full precision,
and what it cannot attest. One prompt of a few tokens is sent twice; nothing is stored.
"""

import struct
from dataclasses import dataclass
from typing import Any

from audit.client import Address, Client
from audit.errors import ReplyError
from audit.plan import Canary, Plan, Prompt
from audit.request import request_body
from audit.server import attest, freeze, observe
from audit.stream import digest
from audit.trial import Entry, Trial
from audit.wire import Parsed, error_message, read_whole

__all__ = ["probe", "probe_text"]

_PROMPT = "The quick brown fox jumps over"
_STEPS = 8
_N_PROBS = 10
# What /props lacks; an operator declares it (`run --declare`), or we do for servers that we start.
NOT_ATTESTED = (
    "argv",
    "batch sizes",
    "device and GPU layers",
    "environment",
    "flash attention",
    "KV cache types",
    "model file digest",
    "threads",
)


def _plan() -> Plan:
    return Plan(
        name="probe",
        steps=_STEPS,
        n_probs=_N_PROBS,
        canary=Canary(prompt="probe"),
        prompts={"probe": Prompt(text=_PROMPT)},
        conditions=[Entry(name="repeat_greedy", prompts=["probe"])],
    )


def _is_float32(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


@dataclass(frozen=True)
class _Asked:
    """The same short request, sent twice: cache off, then cache on."""

    plain: Parsed
    cached: Parsed


async def _ask(client: Client, address: Address) -> _Asked | str:
    """Send the request twice, or say what came instead."""
    plan = _plan()
    prompt = (await freeze(client, plan.prompts["probe"], name="probe")).ids
    found = []
    for cache in (False, True):
        trial = Trial(trial="probe", condition="probe", prompt="probe", steps=_STEPS, cache=cache)
        body = request_body(plan, trial, registered=digest(plan.to_bytes()), prompt=prompt, vocabulary=None)
        exchange = await client.post("/completion", body)
        if exchange.failure is not None or exchange.status != 200:  # noqa: PLR2004 - HTTP's OK
            what = exchange.failure or (f"HTTP {exchange.status}", error_message(exchange.body))
            return f"{address.label}: a completion fails: {what[0]}: {what[1]}"
        try:
            found.append(read_whole(exchange.body))
        except ReplyError as error:
            return f"{address.label}: {error.message}"
    return _Asked(*found)


def _findings(asked: _Asked) -> tuple[dict[str, Any], list[str]]:
    """Return what the replies show, and each reason why they cannot be audited."""
    plain, cached = asked.plain, asked.cached
    logprobs = [logprob for step in plain.steps for _, logprob in step.top]
    settings = plain.last.generation_settings or {}
    facts = {
        "steps": len(plain.steps),
        "logprobs_float32": sum(_is_float32(value) for value in logprobs if value is not None),
        "logprobs": len(logprobs),
        "top_k": sorted({len(step.top) for step in plain.steps}),
        "cache_off_reused": plain.timings.cache_n,
        "cache_on_reused": cached.timings.cache_n,
        "speculative": settings.get("speculative.types"),
        "drafted": plain.timings.draft_n,
    }
    reasons = []
    if not logprobs or None in logprobs:
        reasons.append("replies hold no logprobs")
    elif facts["logprobs_float32"] != len(logprobs):
        reasons.append("logprobs are no float32 values: they were rounded or reformatted on the way")
    if facts["top_k"] != [_N_PROBS]:
        reasons.append(f"asked for {_N_PROBS} logprobs a step, got {facts['top_k']}")
    if plain.timings.draft_n or facts["speculative"] not in {None, "none"}:
        reasons.append("speculative decoding is on, which ruins logprobs")
    if plain.timings.cache_n:
        reasons.append("the prompt cache is used although it was switched off in the request")
    return facts, reasons


async def probe(address: Address) -> dict[str, Any]:
    """Probe one server.

    Returns: `server`, `auditable`, `reasons` (why not), `warnings`, `attested`, `offers`, `replies`, `not_attested`.
    Raises: ServerError where there is no llama-server to ask.
    """
    async with Client(address, timeout_s=30.0) as client:
        attested = await attest(client, digest)
        state = await observe(client, digest, health=True)
        asked = await _ask(client, address)
    facts, reasons = ({}, [asked]) if isinstance(asked, str) else _findings(asked)
    warnings = []
    if state.metrics is None:
        warnings.append("/metrics is off (start with --metrics): evidence of concurrency and accounting is weak")
    if state.slots is None:
        warnings.append("/slots is off (start with --slots): evidence of idleness is weak")
    if attested.slots < 8:  # noqa: PLR2004 - the default plan's largest wave
        warnings.append(f"{attested.slots} slots: waves of more requests are vacuous and not sent")
    if attested.vocabulary is None:
        reasons.append("/v1/models does not name the vocabulary's size, which the canary needs")
    return {
        "server": address.label,
        "auditable": not reasons,
        "reasons": reasons,
        "warnings": warnings,
        "attested": {
            "build_info": attested.build_info,
            "model": attested.model,
            "n_ctx": attested.n_ctx,
            "slots": attested.slots,
            "vocabulary": attested.vocabulary,
        },
        "offers": {"health": state.health, "metrics": state.metrics is not None, "slots": state.slots is not None},
        "replies": facts,
        "not_attested": list(NOT_ATTESTED),
    }


def probe_text(found: dict[str, Any]) -> str:
    """Return the account as lines of text."""
    lines = [f"{'auditable' if found['auditable'] else 'NOT AUDITABLE'}  {found['server']}"]
    lines += [f"  because {reason}" for reason in found["reasons"]]
    lines += [f"  warning: {warning}" for warning in found["warnings"]]
    for group in ("attested", "offers", "replies"):
        lines += [f"  {group + ':':10}{name} = {value}" for name, value in found[group].items()]
    lines.append(f"  it cannot attest: {', '.join(found['not_attested'])}")
    return "\n".join(lines)
