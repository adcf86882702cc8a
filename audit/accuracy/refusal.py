"""Why a sequence has no usable rows: pure functions of recorded facts.

In go the evidence of one unit, out comes for each trial that asked for rows the first reason to refuse it, or none. No
value of a row is looked at, but in `row_refusal`, which gets the rows.
"""

from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from audit.analyse.evidence import Attempt, Evidence
from audit.proofs import (
    Flight,
    Judged,
    UnitFacts,
    accounting,
    busy_slots,
    distinct_slots,
    first_item,
    idle,
    judge_all,
    same_server,
    windows_overlap,
)
from audit.record import Complete
from audit.stream import token_digest
from audit.trial import Trial, Unit
from audit.wire import SENTINEL

__all__ = ["row_refusal", "unit_refusals"]


def unit_refusals(evidence: Evidence, unit: Unit, *, teachers: dict[str, list[int]], vocabulary: int) -> dict[str, str]:
    """Return the reason of each refused trial of a unit's last attempt; an empty dict where none is refused.

    Args:
        evidence: what the history says of the server.
        unit: a solo trial or a wave.
        teachers: the teacher ids by sequence.
        vocabulary: how many values a row must have.
    """
    attempt = evidence.attempts.get(unit.unit)
    asking = [trial for trial in unit.trials if trial.n_probs == "vocabulary"]
    if attempt is None:
        return {trial.trial: "not sent" for trial in asking}
    found = {
        trial.trial: reason
        for trial in asking
        if (reason := _reply_refusal(attempt, trial, teachers[trial.prompt], vocabulary)) is not None
    }
    together = _unit_refusal(evidence, attempt, unit)
    if together is not None:
        found = {trial.trial: found.get(trial.trial, together) for trial in asking}
    return found


def _answer(attempt: Attempt, trial: Trial) -> Complete | None:
    asked = attempt.requests.get(trial.trial)
    return asked[0].lines[1] if asked else None


def _reply_refusal(attempt: Attempt, trial: Trial, teacher: SequenceOf[int], vocabulary: int) -> str | None:
    """Judge the reply of one trial that asked for rows."""
    answer = _answer(attempt, trial)
    if answer is None:
        return "no answer"
    if answer.failure is not None:
        return f"{answer.failure.kind}: {answer.failure.message}"
    reply = answer.reply
    if reply is None or reply.rows is None:
        return "no rows"
    if reply.token != token_digest(teacher):
        return "mismatched id: the server's tokens are not the teacher's"
    if (reply.steps, reply.rows.shape[0]) != (len(teacher), len(teacher)):
        return f"hole: {reply.rows.shape[0]} rows for {len(teacher)} teacher ids"
    if reply.rows.shape[1] != vocabulary or len(reply.rows.digests) != len(teacher):
        return f"short row: {reply.rows.shape[1]} of {vocabulary} values"
    if reply.draft_n:
        return "speculative decoding"
    return None


def _unit_refusal(evidence: Evidence, attempt: Attempt, unit: Unit) -> str | None:
    """Judge the unit as a whole: alone on an idle server, and a wave really at once."""
    facts = evidence.facts(unit)
    flights = [flight for flight in facts.flights if flight is not None]
    if len(flights) < len(unit.trials):
        return "a member of its wave failed" if unit.wave else None
    before, after = (evidence.identities_before(shot) for shot in (attempt.before, attempt.after))
    judged = [idle(facts), accounting(facts), same_server(facts, before=before, after=after), first_item(flights)]
    if unit.wave:
        judged += _at_once(facts, unit, flights)
    found = judge_all(judged)
    return found.reason if found.status == "failed" else None


def _at_once(facts: UnitFacts, unit: Unit, flights: list[Flight]) -> list[Judged]:
    """Judge whether all members were decoded together.

    Every member takes as many decodes as it has steps, so that a mean of 0.8 busy slots a member leaves any two of
    them three quarters of their steps in common; the server has to count. Windows are judged where they can be known:
    the last byte of a member that asks for rows comes when its text is written, long after its last decode.
    """
    busy = busy_slots(facts, len(flights))
    quiet = [flight for flight, trial in zip(flights, unit.trials, strict=True) if trial.n_probs == "none"]
    windows = [windows_overlap(quiet)] if quiet else []
    return [*windows, distinct_slots(flights), busy if busy.status == "held" else Judged("failed", "busy")]


def row_refusal(rows: NDArray[np.float32]) -> str | None:
    """Judge the values of the rows of one sequence."""
    if not np.isfinite(rows).all():
        return "not finite: a value is no finite number"
    if (rows == np.float32(SENTINEL)).any():
        return "sentinel: a value stands for a probability of zero"
    return None
