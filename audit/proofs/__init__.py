"""The evidence rules: recorded facts in, held, failed or weak out.

Three checks belong to every unit (`idle`, `accounting`, `same_server`), one rule to every trial (`first_item`), and one
function to every family of conditions (`PROOFS`); `prove` applies the last two. docs/reference/verdicts.md is their
specification. All are pure functions of the structs in facts.py; none compares a stream.
"""

from audit.proofs.facts import HELD, Case, Flight, Identity, Judged, Moment, Origin, UnitFacts, Window, judge_all
from audit.proofs.trial import PROOFS, busy_slots, distinct_slots, first_item, prove, windows_overlap
from audit.proofs.unit import accounting, idle, same_server

__all__ = [
    "HELD",
    "PROOFS",
    "Case",
    "Flight",
    "Identity",
    "Judged",
    "Moment",
    "Origin",
    "UnitFacts",
    "Window",
    "accounting",
    "busy_slots",
    "distinct_slots",
    "first_item",
    "idle",
    "judge_all",
    "prove",
    "same_server",
    "windows_overlap",
]
