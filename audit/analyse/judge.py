"""Each measured trial of a server: usable with its outcome, or excluded with the first reason that applies.

In goes one server's evidence, out come rows, one a measured trial, in the order of the plan. The rules stand in
docs/reference/verdicts.md. Streams are not read: outcomes come from digests alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from audit.analyse.evidence import Evidence, Outcome, Planned
from audit.proofs import Case, Judged, accounting, first_item, idle, judge_all, prove, same_server
from audit.record import Reply
from audit.stream import text_digest

__all__ = ["STEPS_MIN", "WAVES", "Row", "family_of", "judge", "level_of"]

STEPS_MIN = 8
WAVES = ("concurrent_greedy", "concurrent_seeded", "oversubscribed", "wave_repeat")
_LEVELLED = WAVES[:3]
_KEPT = 512
_PHASES = {"first_request": ("start", "restart"), "restart": ("restart",)}


class Row(NamedTuple):
    """One measured trial of one server.

    `exclusion` is None for a usable trial, `reason` the short reason of a tainted or vacuous one, `outcome` None for
    what was not compared. `prompt` is the prompt's key; `complete` and `skipped_for_slots` are about the trial alone;
    `baseline_logprob` is the stream of the baseline that the references lead to, None where it has holes. The window is
    in nanoseconds since the process's anchor, that of several requests from the first to the last.
    """

    server: str
    condition: str
    family: str
    level: int
    trial: str
    reference: str
    repeats_baseline: bool
    prompt: str
    block: str
    unit: str
    exclusion: str | None
    reason: str | None
    outcome: str | None
    weak: bool
    partial: bool
    complete: bool
    skipped_for_slots: bool
    logprob: str | None
    reference_logprob: str | None
    token: str | None
    reference_token: str | None
    baseline_logprob: str | None
    steps: int
    holes: int
    slot: int
    reference_slot: int
    window_begin_ns: float | None
    window_end_ns: float | None


@cache
def family_of(condition: str) -> str:
    """Return a condition without its level."""
    family, separator, level = condition.rpartition("_c")
    return family if separator and family in _LEVELLED and level.isdigit() else condition


@cache
def level_of(condition: str) -> int:
    """Return a condition's level, 0 where it has none."""
    family = family_of(condition)
    return 0 if family == condition else int(condition.removeprefix(f"{family}_c"))


def judge(evidence: Evidence, *, fact: Callable[[str], Any]) -> Iterator[Row]:
    """Judge every measured trial of a server, one at a time, so that memory need not hold all rows.

    Args:
        evidence: what the history says about it.
        fact: returns a fact by its digest, or None where this copy leaves it out.
    """
    judge_of = _Judge(evidence, fact)
    measured = [one for one in evidence.planned.values() if one.trial.role == "measured"]
    slots = [judge_of.row(one) for one in measured if one.trial.condition == "other_slot"]
    differing = {(row.prompt, row.slot) for row in slots if row.outcome not in {None, "identical"}}
    return _set_aside((judge_of.row(one) for one in measured), differing)


def _set_aside(rows: Iterable[Row], differing: set[tuple[str, int]]) -> Iterator[Row]:
    """Put aside the wave members whose slot differs from slot 0 already when it works alone."""
    if not differing:
        yield from rows
        return
    for row in rows:
        slots = {row.slot, row.reference_slot} if row.family == "wave_repeat" else {row.slot}
        aside = row.family in WAVES and row.exclusion is None and any((row.prompt, slot) in differing for slot in slots)
        yield row._replace(exclusion="set aside", outcome=None) if aside else row


class _Judge:
    """Judges the trials of one server; what several of them share is looked at once."""

    def __init__(self, evidence: Evidence, fact: Callable[[str], Any]) -> None:
        self.evidence = evidence
        self.fact = cache(fact)
        self.units = {one.unit.unit: one.unit for one in evidence.planned.values()}
        # What is looked at again is looked at soon, or is a baseline's; not everything is kept.
        self.unit = lru_cache(_KEPT)(self._unit)
        self.facts = lru_cache(_KEPT)(lambda unit: evidence.facts(self.units[unit], flights_of=self.flights))
        self.unsupported = lru_cache(_KEPT)(self._unsupported)
        self.text = cache(self._text)
        self.outcome = lru_cache(_KEPT)(evidence.outcome)
        self.said = lru_cache(_KEPT)(evidence.said)
        self.flights = lru_cache(_KEPT)(evidence.flights)
        self.canary_moved = len(evidence.canaries) > 1
        # The prompts whose baseline gave a stream, by the stream's digest; equal prompts have one digest.
        self.owners: dict[str, set[str | None]] = defaultdict(set)
        self.support: dict[str, list[str]] = defaultdict(list)
        for one in evidence.planned.values():
            if one.trial.role == "support":
                self.support[one.block.block].append(one.trial.trial)
            said = self.outcome(one.trial.trial) if one.trial.role == "baseline" else None
            if said is not None and said.logprob is not None:
                self.owners[said.logprob].add(evidence.prompts.get(one.prompt))

    def row(self, one: Planned) -> Row:
        """Judge one measured trial."""
        trial, evidence = one.trial, self.evidence
        reference = evidence.planned[trial.reference or ""]
        said, expected = self.outcome(trial.trial), self.outcome(reference.trial.trial)
        exclusion, reason, weak = self._exclusion(one, reference, said, expected)
        usable = exclusion is None and said is not None and expected is not None
        windows = [flight.window for flight in self.flights(trial.trial) if flight]
        known = [window for window in windows if window is not None]
        return Row(
            server=evidence.label,
            condition=trial.condition,
            family=family_of(trial.condition),
            level=level_of(trial.condition),
            trial=trial.trial,
            reference=reference.trial.trial,
            repeats_baseline=reference.trial.role == "baseline",
            prompt=one.prompt,
            block=one.block.block,
            unit=one.unit.unit,
            exclusion=exclusion,
            reason=reason,
            outcome=_compare(said, expected) if usable and said and expected else None,
            weak=weak,
            partial=bool(usable and said and expected and (said.holes or expected.holes)),
            complete=said is not None,
            skipped_for_slots=self._skipped(one) == "slots",
            logprob=said.logprob if said else None,
            reference_logprob=expected.logprob if expected else None,
            token=said.token if said else None,
            reference_token=expected.token if expected else None,
            baseline_logprob=self._baseline_logprob(reference),
            steps=said.steps if said else 0,
            holes=said.holes if said else 0,
            slot=_slot(self.said(trial.trial)),
            reference_slot=_slot(self.said(reference.trial.trial)),
            window_begin_ns=min(window.begin_ns for window in known) if known else None,
            window_end_ns=max(window.end_ns for window in known) if known else None,
        )

    def _exclusion(
        self, one: Planned, reference: Planned, said: Outcome | None, expected: Outcome | None
    ) -> tuple[str | None, str | None, bool]:
        """Return the first exclusion that applies, its short reason, and whether the evidence is weak."""
        if self.unsupported(one.trial.trial) or self.unsupported(reference.trial.trial):
            return "unsupported", None, False
        if self._skipped(one) == "slots":
            return "vacuous", "slots", False
        if said is None or expected is None:
            return "failed", None, False
        checks = self.unit(one.unit.unit)
        for judged in (checks, self.unit(reference.unit.unit)):
            if judged.status == "failed":
                return "tainted", judged.reason, False
        if self.canary_moved:
            return "tainted", "canary", False
        if self._misdirected(one) or self._misdirected(reference) or self._owned_by_another(one, said):
            return "cross-talk", None, False
        proof = prove(family_of(one.trial.condition), self._case(one, said, expected))
        for judged in (proof, first_item([f for f in self.flights(reference.trial.trial) if f])):
            if judged.status == "failed":
                return "vacuous", judged.reason, False
        short = min(said.steps, expected.steps) < STEPS_MIN
        return ("short" if short else None), None, "weak" in {checks.status, proof.status}

    def _baseline_logprob(self, reference: Planned) -> str | None:
        """Follow the references to the baseline, and return its stream's digest."""
        while reference.trial.reference is not None:
            reference = self.evidence.planned[reference.trial.reference]
        said = self.outcome(reference.trial.trial)
        return said.logprob if said is not None and not said.holes else None

    def _skipped(self, one: Planned) -> str | None:
        skip = self.evidence.skips.get(one.unit.unit)
        return skip.reason if skip else None

    def _unit(self, unit: str) -> Judged:
        """Judge the three checks of a unit."""
        attempt = self.evidence.attempts.get(unit)
        facts = self.evidence.facts(self.units[unit], invoked_only=True, flights_of=self.flights)
        before, after = (
            self.evidence.identities_before(snapshot)
            for snapshot in ((attempt.before, attempt.after) if attempt else (None, None))
        )
        return judge_all((idle(facts), accounting(facts), same_server(facts, before=before, after=after)))

    def _case(self, one: Planned, said: Outcome, expected: Outcome) -> Case:
        """Gather what the proof of a trial may look at."""
        trial, evidence = one.trial, self.evidence
        family = family_of(trial.condition)
        reference = evidence.planned[trial.reference or ""]
        support = self.support.get(one.block.block, ())
        return Case(
            flights=tuple(flight for flight in self.flights(trial.trial) if flight),
            tokens=said.token,
            reference_tokens=expected.token,
            unit=self.facts(one.unit.unit),
            unit_first=self.facts(reference.unit.unit) if family == "wave_repeat" else None,
            neighbours=tuple(flight for other in support for flight in self.flights(other) or (None,)),
            origin=evidence.origin(trial.trial, _PHASES[family]) if family in _PHASES else None,
        )

    def _unsupported(self, trial: str) -> bool:
        """Tell whether a reply came from speculative decoding, or holds probabilities after sampling."""
        for reply in self.said(trial):
            settings = self.fact(reply.settings) if reply.settings else None
            echoed = settings if isinstance(settings, dict) else {}
            if (
                (reply.draft_n or 0) > 0
                or echoed.get("speculative.types", "none") != "none"
                or echoed.get("post_sampling_probs") is True
            ):
                return True
        return False

    def _misdirected(self, one: Planned) -> bool:
        """Tell whether a reply echoes another prompt than the one that was sent."""
        own = self.evidence.prompts.get(one.prompt)
        echoes = {reply.prompt_echo for reply in self.said(one.trial.trial)} - {None}
        text = self.text(own) if own is not None and one.trial.form != "prefixes" else None
        return bool(echoes) and text is not None and echoes != {text}

    def _owned_by_another(self, one: Planned, said: Outcome) -> bool:
        """Tell whether a reply is another prompt's baseline."""
        others = self.owners.get(said.logprob or "", set()) - {self.evidence.prompts.get(one.prompt)}
        return bool(others) and one.trial.condition != "control_prompt"

    def _text(self, prompt: str) -> str | None:
        """Return the digest of a prompt's text, None where this copy leaves the prompt out."""
        found = self.fact(prompt)
        return None if found is None else text_digest(found["text"])


def _compare(said: Outcome, expected: Outcome) -> str:
    """Compare two complete trials by their digests; a hole is equal to nothing."""
    if said.logprob is not None and said.logprob == expected.logprob and not (said.holes or expected.holes):
        return "identical"
    return "token-identical" if said.token == expected.token else "divergent"


def _slot(replies: tuple[Reply, ...]) -> int:
    """Return the slot that the last reply names, -1 where it names none."""
    slot = replies[-1].id_slot if replies else None
    return -1 if slot is None else slot
