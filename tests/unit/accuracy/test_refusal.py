"""When a wave was decoded together, and when a row is no row: each rule by facts that just meet and just miss it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from audit.accuracy.plan import AccuracyPlan, planned, units
from audit.accuracy.refusal import row_refusal, unit_refusals
from audit.analyse.evidence import Evidence, gather
from audit.record import (
    Attested,
    Complete,
    Failure,
    Invoke,
    Line,
    Manifest,
    Process,
    Reply,
    RowsFact,
    ServerEntry,
    ServerLine,
    Snapshot,
)
from audit.stream import digest, token_digest
from audit.trial import Trial, Unit
from tests.integration.accuracy_study import MEMBERS, MODEL, ROWS, VOCABULARY, small_corpus

PLAN = AccuracyPlan(name="x", corpus="sha256:" + "0" * 64, recorded=2)
CORPUS = small_corpus()
GROUP = CORPUS.members_of(MODEL, "original")
TEACHERS = {one.id: one.teacher for one in GROUP}
PROCESS = Process(start="1", media_marker=None)
EMPTY = digest(b"{}\n")
ATTESTED = Attested(
    build_info="b", model="m", models=EMPTY, n_ctx=64, process=PROCESS, props=EMPTY, server_header=None,
    slots=MEMBERS, vocabulary=VOCABULARY,
)  # fmt: skip
MANIFEST = Manifest(
    format=1, kind="accuracy", plan=EMPTY, registered=EMPTY, registration=None, program={}, dependencies={}, python="",
    machine={}, prompts={"toy": {}},
    servers=[ServerEntry(label="toy", owned=True, attested=ATTESTED, declaration=None)],
)  # fmt: skip
WAVE = units(PLAN, GROUP, "server")[MEMBERS]
NS = 1_000_000


def shot(unit: Unit, when: str, *, decodes: int, busy: float, tokens: tuple[int, int] = (0, 0)) -> Snapshot:
    """What the server counts at one moment."""
    metrics: dict[str, str | None] = {
        "n_decode_total": str(decodes), "n_busy_slots_per_decode": str(busy), "requests_deferred": "0",
        "requests_processing": "0", "prompt_tokens_total": str(tokens[0]), "tokens_predicted_total": str(tokens[1]),
        "prompt_tokens_cached_total": "0",
    }  # fmt: skip
    return Snapshot(
        server="toy", unit=unit.unit, attempt=0, when=when, health=None,  # type: ignore[arg-type]
        slots=[(slot, False, 0) for slot in range(MEMBERS)], metrics=metrics, props=EMPTY, process=PROCESS,
    )  # fmt: skip


def reply(trial: Trial, **change: Any) -> Reply:  # noqa: ANN401 - any field
    """A whole reply to a member."""
    asks = trial.n_probs == "vocabulary"
    rows = RowsFact(file=EMPTY, shape=(ROWS, VOCABULARY), digests=[EMPTY] * ROWS) if asks else None
    values: dict[str, Any] = {
        "logprob": None if asks else EMPTY, "token": token_digest(TEACHERS[trial.prompt]), "steps": ROWS, "holes": 0,
        "rows": rows, "joined": None, "settings": None, "prompt_echo": None, "model": None, "id_slot": trial.slot,
        "tokens_evaluated": 6, "tokens_predicted": ROWS, "cache_n": 0, "prompt_n": 6, "prompt_ms": 1.0,
        "predicted_n": ROWS, "predicted_ms": 9.0, "draft_n": None, "truncated": False, "stop_type": "limit",
        "above_zero": 0, "saturated": 0,
    }  # fmt: skip
    return Reply(**{**values, **change})


def evidence(
    *, replies: dict[int, Reply | Failure] | None = None, ends_ms: tuple[int, ...] = (20,) * MEMBERS,
    decodes: int = ROWS, busy: float = float(MEMBERS),
) -> Evidence:  # fmt: skip
    """The evidence of one wave of four, of which the first two ask for rows."""
    lines: list[Line] = [ServerLine(server="toy", phase="start", attested=ATTESTED, declaration=None)]
    lines.append(shot(WAVE, "before", decodes=100, busy=1.0))
    for trial in WAVE.trials:
        common: dict[str, Any] = {"server": "toy", "trial": trial.trial, "unit": WAVE.unit, "attempt": 0, "part": 0}
        lines.append(Invoke(**common, request=EMPTY, slot=trial.slot))
    for place, trial in enumerate(WAVE.trials):
        said = (replies or {}).get(place, reply(trial))
        common = {"server": "toy", "trial": trial.trial, "unit": WAVE.unit, "attempt": 0, "part": 0}
        failed = isinstance(said, Failure)
        lines.append(
            Complete(
                **common, sent_ns=0, first_byte_ns=1, last_byte_ns=ends_ms[place] * NS, status=200,
                failure=said if isinstance(said, Failure) else None, reply=None if failed else said,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    total = 100 + decodes
    mean = (100 * 1.0 + decodes * busy) / total
    lines.append(shot(WAVE, "after", decodes=total, busy=mean, tokens=(6 * MEMBERS, ROWS * MEMBERS)))
    numbered = [msgspec.structs.replace(line, n=number) for number, line in enumerate(lines)]
    return gather(numbered, MANIFEST, planned(PLAN, GROUP, "server"))["toy"]


def refusals(found: Evidence) -> dict[str, str]:
    """The reasons of the two members that ask."""
    return unit_refusals(found, WAVE, teachers=TEACHERS, vocabulary=VOCABULARY)


def both(reason: str) -> dict[str, str]:
    """One reason for both members that ask."""
    return {f"{WAVE.unit}/original-{slot:02}": reason for slot in (0, 1)}


def test_a_wave_that_was_decoded_together_is_not_refused() -> None:
    """Slots, counters and the windows of the members that ask for nothing agree."""
    assert refusals(evidence()) == {}


def test_late_text_of_members_that_ask_for_rows_says_nothing() -> None:
    """Their last byte comes when their rows are written."""
    assert refusals(evidence(ends_ms=(500, 700, 20, 20))) == {}


@pytest.mark.parametrize(("later_ms", "reasons"), [(5, {}), (6, both("windows"))])
def test_members_that_ask_for_nothing_share_half_of_their_windows(later_ms: int, reasons: dict[str, str]) -> None:
    """Windows of 10 ms: 5 in common hold, 4 do not."""
    assert refusals(evidence(ends_ms=(20, 20, 20, 20 + later_ms))) == reasons


@pytest.mark.parametrize(("busy", "reasons"), [(3.2, {}), (3.1, both("busy"))])
def test_the_slots_are_busy_to_four_fifths(busy: float, reasons: dict[str, str]) -> None:
    """Of four members 3.2 on average are enough."""
    assert refusals(evidence(busy=busy)) == reasons


def test_two_members_of_one_slot_are_no_wave() -> None:
    """A request ran elsewhere than it was sent to."""
    assert refusals(evidence(replies={3: reply(WAVE.trials[3], id_slot=2)})) == both("slot")


def test_a_touched_cache_refuses_the_wave() -> None:
    """A member that found tokens in the cache is another batch."""
    assert refusals(evidence(replies={2: reply(WAVE.trials[2], cache_n=3, prompt_n=3)}))[f"{WAVE.unit}/original-00"]


def test_a_failed_member_refuses_those_that_asked_and_names_its_own_failure() -> None:
    """A wave that lost a member is another batch; the one that failed says why."""
    failure = Failure(kind="transport", message="gone", body=None)
    assert refusals(evidence(replies={3: failure})) == both("a member of its wave failed")
    found = refusals(evidence(replies={1: failure}))
    assert found == {**both("a member of its wave failed"), f"{WAVE.unit}/original-01": "transport: gone"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"token": EMPTY}, "mismatched id: the server's tokens are not the teacher's"),
        ({"steps": ROWS - 1}, "hole: 12 rows for 12 teacher ids"),
        ({"rows": None}, "no rows"),
        ({"rows": RowsFact(file=EMPTY, shape=(ROWS, 511), digests=[EMPTY] * ROWS)}, "short row: 511 of 512 values"),
        ({"rows": RowsFact(file=EMPTY, shape=(11, 512), digests=[EMPTY] * 11)}, "hole: 11 rows for 12 teacher ids"),
        ({"draft_n": 2}, "speculative decoding"),
    ],
)
def test_a_reply_that_is_not_whole_is_refused(change: dict[str, Any], reason: str) -> None:
    """That member only; the wave was one."""
    assert refusals(evidence(replies={0: reply(WAVE.trials[0], **change)})) == {f"{WAVE.unit}/original-00": reason}


def test_what_was_not_sent_is_refused() -> None:
    """A unit of which the history knows nothing."""
    found = evidence()
    found.attempts.clear()
    assert refusals(found) == both("not sent")


@pytest.mark.parametrize(
    ("value", "reason"),
    [(-3.4028234663852886e38, "sentinel"), (np.nan, "not finite"), (-np.inf, "not finite"), (-100.0, None)],
)
def test_a_value_that_is_no_logprob_refuses_its_sequence(value: float, reason: str | None) -> None:
    """One of many is enough; a small probability is a logprob like any other."""
    rows = np.full((3, 5), -1.0, dtype=np.float32)
    rows[2, 4] = value
    found = row_refusal(rows)
    assert (found is None) == (reason is None)
    assert reason is None or (found or "").startswith(reason)
