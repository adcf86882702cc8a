"""The instrument: did the measuring chain keep full precision, and does it diverge where it must.

In go a server's evidence, its trials and the run's streams, out come the entries of findings.json in their fixed order.
Nothing here looks at what the conditions showed.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from audit.analyse.echo import biased_tokens, counts_agree, echo_agrees, is_greedy
from audit.analyse.evidence import Evidence
from audit.compare import first_difference
from audit.prereg import CHECKS
from audit.store import Run
from audit.stream import Step, Stream, text_digest

__all__ = ["CONTROLS", "instrument_entries"]

# A control must change the logprobs; those that sample must change the tokens, since logprobs are reported before it.
CONTROLS: Mapping[str, tuple[str, ...]] = {
    "control_prompt": ("divergent", "token-identical"),
    "control_seed": ("divergent",),
    "control_temperature": ("divergent",),
}


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
    own = table[(table["server"] == evidence.label) & table["condition"].isin(CONTROLS)]
    planned = dict(iter(own.groupby("condition")))
    controls = [_control(evidence, name, planned[name]) for name in CONTROLS if name in planned]
    checked = {
        "canary": _canary(evidence),
        **_streams(run, evidence),
        **_replies(run, evidence),
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
    replies = (one.said for one in evidence.finished if one.said is not None)
    names = {name for reply in replies for name in (reply.logprob, reply.joined and reply.joined.logprob) if name}
    return sorted(names)


def _streams(run: Run, evidence: Evidence) -> dict[str, _Found]:
    """Check that every stored logprob is a float32, and every top-k what a top-k must be."""
    names = _stream_names(evidence)
    present = [name for name in names if run.has("streams", name)]
    missing = len(present) < len(names)
    vocabulary = evidence.entry.attested.vocabulary
    values = exact = steps = ordered = 0
    for name in present:
        stream = run.stream(name)
        numbers = np.fromiter(_logprobs(stream), dtype=np.float64)
        with np.errstate(over="ignore"):
            exact += int((numbers.astype(np.float32).astype(np.float64) == numbers).sum())
        values += len(numbers)
        whole = [step for step in stream.steps if _is_whole(step)] if stream.n_probs else []
        steps += len(whole)
        ordered += sum(_is_top_k(step, stream.n_probs, vocabulary) for step in whole)
    return {"float32": _Found(exact, values, missing), "top_k": _Found(ordered, steps, missing)}


def _logprobs(stream: Stream) -> Iterator[float]:
    for step in stream.steps:
        if step.logprob is not None:
            yield step.logprob
        yield from (logprob for _, logprob in step.top if logprob is not None)


def _is_whole(step: Step) -> bool:
    """Tell whether a step has entries, and every logprob."""
    return bool(step.top) and None not in (step.logprob, *(logprob for _, logprob in step.top))


def _is_top_k(step: Step, n_probs: int, vocabulary: int | None) -> bool:
    """Tell whether a whole step holds the `n_probs` most probable tokens, and fits its own token among them."""
    top = {token: logprob for token, logprob in step.top if logprob is not None}
    falling = list(top.values())
    known = all(0 <= token < (vocabulary or np.inf) for token in (step.token, *top))
    own = step.logprob or 0.0
    fits = top[step.token] == own if step.token in top else own <= falling[-1]
    return len(top) == len(step.top) == n_probs and known and fits and falling == sorted(falling, reverse=True)


def _more_probable(stream: Stream) -> frozenset[int]:
    """Return the ids that were more probable than the token taken, at any step."""
    return frozenset(
        token
        for step in stream.steps
        for token, logprob in step.top
        if None not in (logprob, step.logprob) and logprob > step.logprob  # type: ignore[operator]
    )


def _replies(run: Run, evidence: Evidence) -> dict[str, _Found]:
    """Check each reply against its request: that greedy was greedy, the echo of the settings, and the counts."""

    @cache
    def fact(name: str | None) -> Any:  # noqa: ANN401 - any JSON value
        return run.fact(name) if name is not None and run.has("facts", name) else None

    @cache
    def echoes(request: str, settings: str | None) -> bool | None:
        hidden = fact(request) is None or (settings is not None and fact(settings) is None)
        return None if hidden else echo_agrees(fact(request), fact(settings))

    @cache
    def leads(stream: str, settings: str | None) -> bool | None:
        hidden = not run.has("streams", stream) or (settings is not None and fact(settings) is None)
        return None if hidden else _more_probable(run.stream(stream)) <= biased_tokens(fact(settings))

    @cache
    def text(prompt: str) -> str | None:
        prompt_fact = fact(evidence.prompts.get(prompt))
        return None if prompt_fact is None else text_digest(prompt_fact["text"])

    found: dict[str, list[bool | None]] = {"greedy": [], "settings": [], "counts": []}
    for exchange in evidence.finished:
        reply, request = exchange.said, exchange.asked.request
        if reply is None:
            continue
        sent = fact(request)
        found["settings"].append(echoes(request, reply.settings))
        one = evidence.planned[exchange.trial]
        # What answers another prompt has that one's counts.
        if one.trial.form == "prefixes" or reply.prompt_echo in {None, text(one.prompt)} or sent is None:
            found["counts"].append(None if sent is None else counts_agree(sent, reply))
        if reply.logprob is not None and (sent is None or is_greedy(sent)):
            found["greedy"].append(None if sent is None else leads(reply.logprob, reply.settings))
    return {name: _counted(agree) for name, agree in found.items()}


def _counted(agree: list[bool | None]) -> _Found:
    return _Found(agree.count(True), len(agree), None in agree and False not in agree)


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
