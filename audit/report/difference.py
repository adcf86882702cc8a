"""One difference explained: the words of a witness, and the two steps side by side with the digits that differ.

In go two streams, out come sentences and rows, the same for page, Markdown and terminal, which only set them in their
own way. Which trials are compared, and under which circumstances, is said elsewhere (diff.py, audit_view.py).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from audit.compare import OWN_RANK, Difference, first_difference, is_float32, margin_of, ulp_distance
from audit.stream import Step, Stream

__all__ = ["Digits", "Entry", "Pair", "cut", "difference_words", "number_text", "side_by_side", "step_rows"]

_AROUND = 3


class Digits(NamedTuple):
    """A number as text, cut where it leaves the other one."""

    same: str
    differs: str


class Entry(NamedTuple):
    """One token of one side: its id, its logprob in decimal and in hexadecimal."""

    token: Digits
    decimal: Digits
    hexadecimal: Digits


class Pair(NamedTuple):
    """One rank of two steps; `own` is the step's own token. A side is None where it has no such entry."""

    rank: str
    trial: Entry | None
    reference: Entry | None

    @property
    def differs(self) -> bool:
        """Whether anything of the two sides differs."""
        return self.trial != self.reference


def number_text(value: float | None) -> str:
    """Return a logprob in its shortest exact decimal form."""
    return "none" if value is None else repr(value)


def cut(text: str, other: str) -> Digits:
    """Return a text, cut where it leaves the other one."""
    if text == other:
        return Digits(text, "")
    at = next(
        (at for at, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), min(len(text), len(other))
    )
    return Digits(text[:at], text[at:])


def _entry(mine: tuple[int, float | None], other: tuple[int, float | None] | None) -> Entry:
    values = [
        (str(token), number_text(value), "none" if value is None else value.hex())
        for token, value in (mine, other or mine)
    ]
    token, *numbers = (cut(one, two) for one, two in zip(*values, strict=True))
    whole = Digits("", values[0][0]) if token.differs or (other is not None and mine[0] != other[0]) else token
    return Entry(whole, *numbers)


def side_by_side(trial: Step | None, reference: Step | None) -> list[Pair]:
    """Return the own tokens and the top-k of two steps, rank by rank."""
    sides = [[] if step is None else [(step.token, step.logprob), *step.top] for step in (trial, reference)]
    rows = []
    for index in range(max(len(side) for side in sides)):
        one, two = (side[index] if index < len(side) else None for side in sides)
        rank = "own" if index == 0 else str(index - 1)
        rows.append(Pair(rank, _entry(one, two) if one else None, _entry(two, one) if two else None))
    return rows


def _apart(difference: Difference) -> str:
    if difference.nats is None:
        return ""
    steps = "" if difference.ulp is None else f"{difference.ulp:,} float32 values, or "
    return f"{steps}{abs(difference.nats):.3g} nats, apart"


def difference_words(stream: Stream, reference: Stream, difference: Difference | None) -> list[str]:
    """Tell a first difference in sentences: what agrees, what differs where, and what that meant for the token."""
    if difference is None:
        return [f"They are the same stream: {len(stream.steps)} steps, every token and every logprob."]
    step = difference.step
    agreed = {
        0: "They differ already at step 0, the first generated token.",
        1: "They agree at step 0, token and logprobs.",
    }.get(step, f"They agree through step {step - 1}, every token and every logprob.")
    return [agreed, *_what_differs(stream, reference, difference)]


def _what_differs(stream: Stream, reference: Stream, difference: Difference) -> Iterator[str]:
    step, apart = difference.step, _apart(difference)
    if difference.level == "length":
        yield f"Then one of them ends: the trial has {len(stream.steps)} steps, its reference {len(reference.steps)}."
        return
    own, other = stream.steps[step], reference.steps[step]
    margin = difference.margin
    best = "" if margin is None else f"the reference's two best tokens are {margin:.3g} nats apart there"
    if difference.level == "token":
        yield (
            f"At step {step} the trial has token {own.token} with logprob {number_text(own.logprob)}, its reference "
            f"token {other.token} with {number_text(other.logprob)}."
        )
        if best:
            yield f"{best[0].upper()}{best[1:]}, so that a change of that size is enough to choose another token."
        return
    where = "the same token" if difference.rank == OWN_RANK else f"the token of rank {difference.rank}"
    if difference.rank == OWN_RANK or apart:
        token = other.token if difference.rank == OWN_RANK else other.top[difference.rank][0]
        yield (
            f"At step {step} {where}, {token}, has logprob {number_text(difference.value)} in the trial and "
            f"{number_text(difference.reference_value)} in its reference: {apart or 'one of them is missing'}."
        )
    else:
        yield f"At step {step} the chosen tokens are equal, and rank {difference.rank} of the top-k is another token."
    if best:
        later = _first_flip(stream, reference)
        kept = "and no later token differs" if later is None else f"and the first other token comes at step {later}"
        yield f"{best[0].upper()}{best[1:]}; the token stayed the same, {kept}."


def _first_flip(stream: Stream, reference: Stream) -> int | None:
    pairs = enumerate(zip(stream.tokens, reference.tokens, strict=False))
    return next((index for index, (one, other) in pairs if one != other), None)


def step_rows(stream: Stream, reference: Stream, *, tokens_only: bool = False) -> list[dict[str, Any]]:
    """Return the steps around the first difference, up to the first other token; `difference` marks the step itself.

    Without a difference these are the last steps.
    """
    found = first_difference(stream, reference, tokens_only=tokens_only)
    flip = _first_flip(stream, reference)
    at = found.step if found is not None else len(stream.steps)
    last = min(
        len(stream.steps), len(reference.steps), at + _AROUND + 1, flip + 1 if flip is not None else at + _AROUND + 1
    )
    return [_row(index, stream.steps[index], reference.steps[index], at) for index in range(max(0, at - _AROUND), last)]


def _row(index: int, step: Step, other: Step, at: int) -> dict[str, Any]:
    value = step.logprob if step.token == other.token else dict(step.top).get(other.token)
    return {
        "step": index,
        "difference": index == at,
        "token": step.token,
        "reference_token": other.token,
        "logprob": value,
        "reference_logprob": other.logprob,
        "ulp": _ulp(value, other.logprob),
        "nats": value - other.logprob if value is not None and other.logprob is not None else None,
        "margin": margin_of(other),
        "top_k_equal": step.top == other.top,
    }


def _ulp(value: float | None, other: float | None) -> int | None:
    if value is None or other is None:
        return None
    return int(ulp_distance(value, other)) if is_float32(value) and is_float32(other) else None
