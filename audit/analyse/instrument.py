"""The instrument: did the measuring chain keep full precision, and does it diverge where it must.

In go a server's evidence, its trials and the run's streams, out come the entries of findings.json in their fixed order.
Nothing here looks at what the conditions showed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from audit.analyse.evidence import Evidence
from audit.compare import first_difference
from audit.prereg import CHECKS
from audit.record import Complete, Invoke
from audit.store import Run
from audit.stream import Stream

__all__ = ["CONTROLS", "instrument_entries"]

# A control must change the logprobs; those that sample must change the tokens, since logprobs are reported before it.
CONTROLS: Mapping[str, tuple[str, ...]] = {
    "control_prompt": ("divergent", "token-identical"),
    "control_seed": ("divergent",),
    "control_temperature": ("divergent",),
}
_NOT_ECHOED_AS_SENT = frozenset({"logit_bias", "grammar"})


class _Found(NamedTuple):
    """What a check counted: k of n, and whether facts were missing."""

    k: int
    n: int
    missing: bool = False

    @property
    def status(self) -> Literal["held", "failed", "incomplete"]:
        """The status of a check in which every one of `n` must hold."""
        if self.k < self.n and not self.missing:
            return "failed"
        return "incomplete" if self.missing or not self.n else "held"


def instrument_entries(run: Run, evidence: Evidence, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the entries of one server.

    Args:
        run: gives the streams and facts.
        evidence: what the history says about the server.
        table: the trials of all servers.
    """
    trials = table[table["server"] == evidence.label]
    planned = dict(iter(trials.groupby("condition")))
    controls = [_control(evidence, name, planned[name]) for name in CONTROLS if name in planned]
    checked = {
        "canary": _canary(evidence),
        **_streams(run, evidence),
        "settings": _settings(run, evidence),
        **_sensitivity(run, evidence),
    }
    others = [_entry(evidence, name, checked[name], checked[name].status) for name in CHECKS if name in checked]
    return controls + others


def _entry(evidence: Evidence, check: str, found: _Found, status: str) -> dict[str, Any]:
    return {"server": evidence.label, "check": check, "status": status, "k": found.k, "n": found.n}


def _control(evidence: Evidence, name: str, planned: pd.DataFrame) -> dict[str, Any]:
    usable = planned[planned["usable"]]
    diverging = int(usable["outcome"].isin(CONTROLS[name]).sum())
    complete = "held" if len(usable) == len(planned) else "incomplete"
    status = "failed" if diverging < len(usable) else complete
    return _entry(evidence, name, _Found(diverging, len(planned)), status)


def _canary(evidence: Evidence) -> _Found:
    names = [name for name, one in evidence.planned.items() if one.trial.role == "canary"]
    missing = any(evidence.outcome(name) is None for name in names)
    return _Found(int(not missing and len(evidence.canaries) == 1), 1, missing)


def _stream_names(evidence: Evidence) -> list[str]:
    """Return the digests of all streams that the server's replies gave, each once."""
    replies = [complete.reply for _, complete in evidence.answered if complete.reply is not None]
    names = {name for reply in replies for name in (reply.logprob, reply.joined and reply.joined.logprob) if name}
    return sorted(names)


def _streams(run: Run, evidence: Evidence) -> dict[str, _Found]:
    """Check that every stored logprob is a float32, and every top-k as long as it was asked for."""
    names = _stream_names(evidence)
    present = [name for name in names if run.has("streams", name)]
    missing = len(present) < len(names)
    values = exact = steps = full = 0
    for name in present:
        stream = run.stream(name)
        numbers = np.fromiter(_logprobs(stream), dtype=np.float64)
        with np.errstate(over="ignore"):
            exact += int((numbers.astype(np.float32).astype(np.float64) == numbers).sum())
        values += len(numbers)
        entries = [len(step.top) for step in stream.steps if step.top] if stream.n_probs else []
        steps, full = steps + len(entries), full + entries.count(stream.n_probs)
    return {"float32": _Found(exact, values, missing), "top_k": _Found(full, steps, missing)}


def _logprobs(stream: Stream) -> Iterator[float]:
    for step in stream.steps:
        if step.logprob is not None:
            yield step.logprob
        yield from (logprob for _, logprob in step.top if logprob is not None)


def _settings(run: Run, evidence: Evidence) -> _Found:
    """Check that each server's echo of the settings is what was sent."""
    agreeing = total = unknown = 0
    known: dict[tuple[str, str], bool | None] = {}
    for invoke, complete in evidence.answered:
        if complete.reply is None:
            continue
        total += 1
        pair = (invoke.request, complete.reply.settings or "")
        if pair not in known:
            known[pair] = _echo_agrees(run, invoke, complete)
        agreeing += known[pair] is True
        unknown += known[pair] is None
    return _Found(agreeing, total, unknown > 0 and agreeing + unknown == total)


def _echo_agrees(run: Run, invoke: Invoke, complete: Complete) -> bool | None:
    """Compare one request with its echo; None where this copy leaves one of them out."""
    name = complete.reply.settings if complete.reply is not None else None
    if name is None:
        return False
    if not (run.has("facts", invoke.request) and run.has("facts", name)):
        return None
    sent, echo = run.fact(invoke.request), run.fact(name)
    if not isinstance(sent, dict) or not isinstance(echo, dict):
        return False
    pairs = [(sent[key], echo[key]) for key in sent if key in echo and key not in _NOT_ECHOED_AS_SENT]
    if "max_tokens" in echo:
        pairs.append((sent.get("n_predict"), echo["max_tokens"]))
    same_text = "grammar" not in echo or sent.get("grammar") == echo["grammar"]
    return same_text and all(_equal(one, other) for one, other in pairs)


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


def _sensitivity(run: Run, evidence: Evidence) -> dict[str, _Found]:
    """Send a stored stream through digest and comparison again: changed by one ULP, and unchanged."""
    stream, name = _first_baseline(run, evidence)
    if stream is None:
        return {"one_ulp": _Found(0, 1, missing=True), "parse_twice": _Found(0, 1, missing=True)}
    again = Stream.from_bytes(stream.to_bytes())
    twice = _Found(int(again.logprob_digest == stream.logprob_digest == name), 1)
    at = next((index for index, step in enumerate(stream.steps) if len(step.top) == stream.n_probs), None)
    moved = None if at is None else _moved_by_one_ulp(stream, at)
    if moved is None:
        return {"one_ulp": _Found(0, 1, missing=True), "parse_twice": twice}
    found = first_difference(moved, stream)
    seen = found is not None and (found.step, found.ulp) == (at, 1) and moved.logprob_digest != name
    return {"one_ulp": _Found(int(seen), 1), "parse_twice": twice}


def _first_baseline(run: Run, evidence: Evidence) -> tuple[Stream | None, str]:
    """Return the stream of the first baseline, and the digest that the history has for it."""
    names = (name for name, one in evidence.planned.items() if one.trial.role == "baseline")
    said = next((found for name in names if (found := evidence.outcome(name)) is not None), None)
    if said is None or said.logprob is None or not run.has("streams", said.logprob):
        return None, ""
    return run.stream(said.logprob), said.logprob


def _moved_by_one_ulp(stream: Stream, at: int) -> Stream | None:
    """Move the last logprob of a step by one float32."""
    step = stream.steps[at]
    token, logprob = step.top[-1]
    if logprob is None:
        return None
    moved = float(np.nextafter(np.float32(logprob), np.float32(0), dtype=np.float32))
    changed = step._replace(top=(*step.top[:-1], (token, moved)))
    return stream._replace(steps=(*stream.steps[:at], changed, *stream.steps[at + 1 :]))
