"""Made-up runs to be reported: one in which something of everything happened, and one whose every text is hostile.

In: nothing. Out: sealed run folders, written by tests/unit/analyse/simulated.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import msgspec

from audit.record import Attested, PromptFact
from audit.store import Run
from audit.stream import Stream
from tests.unit.analyse import simulated
from tests.unit.analyse.simulated import CONTROLS, Subject, moved, plan_of
from tests.unit.prereg.registered_run import _Writer

PLAN = plan_of(
    {"name": "repeat_greedy", "prompts": ["p", "q"], "count": 3},
    {"name": "other_slot", "levels": [2]},
    {"name": "concurrent_greedy", "prompts": ["p", "q"], "levels": [2, 4, 6], "count": 2, "again": 1},
    {"name": "concurrent_seeded", "levels": [2]},
    {"name": "cache", "prompts": ["cached"], "opener": "o"},
    {"name": "prefill_vs_decode"},
    {"name": "stream_vs_whole", "count": 2},
    {"name": "without_logprobs"},
    {"name": "restart"},
    *CONTROLS,
)
WAVE = "concurrent_greedy_c2/p/0/w0"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)><a href='javascript:alert(3)'>a</a>"
HOSTILE = f"{MARKUP}\x1b[31m\x07\r\n\u202e\u2028\x00&amp;|`$x_1$**[a](b)** \U0001f600 {{{{ 7 * 7 }}}}{{% raw %}}"


def other_token(stream: Stream, step: int = 5) -> Stream:
    """Give a step a token that it did not have."""
    return moved(stream, step, token=(stream.steps[step].token + 7) % simulated.VOCABULARY)


def prediction(name: str, statement: str, holds: float, condition: str = "repeat_greedy") -> dict[str, object]:
    """Return a prediction of the share of identical trials."""
    rule = {"holds": {"op": "==", "value": holds}, "refuted": {"op": "<" if holds else ">", "value": holds}}
    more = {"servers": "*", "unit": "cell", "measure": "logprob_identical", "minimum": 1, "requires": []}
    return {"id": name, "statement": statement, "conditions": [condition], **rule, **more}


def write(folder: Path, *subjects: Subject, statements: tuple[str, ...] = ("It repeats.", "It never does.")) -> Run:
    """Write a registered run with one prediction that holds and one that is refuted."""
    said = [prediction(f"P{number}", statement, float(not number)) for number, statement in enumerate(statements)]
    files = {"predictions.json": json.dumps({"format": 1, "predictions": said}).encode()}
    with patch.object(simulated, "RunWriter", _Writer):
        return simulated.write(folder, *subjects, registration=files)


def eventful(folder: Path) -> Run:
    """Two servers: on `a` waves move by one float32 and by a token, on `b` six at once do not fit and a trial fails."""
    one, other = Subject(plan=PLAN, label="a", slots=6), Subject(plan=PLAN, label="b", owned=False)
    one.streams[f"{WAVE}/0"] = lambda stream: moved(stream, 3)
    one.streams["concurrent_greedy_c4/p/0/w0/1"] = other_token
    one.streams["concurrent_greedy_c4/q/1/w0/2"] = other_token
    one.streams["cache/cached/0/warm1"] = lambda stream: moved(stream, 0)
    other.failing = {"stream_vs_whole/p/0"}
    return write(folder, one, other)


@dataclass(kw_only=True)
class Hostile(Subject):
    """A server that says terrible things about itself, whose operator does too."""

    def attested(self) -> Attested:
        """Return what the server says about itself."""
        said = {"build_info": HOSTILE, "model": HOSTILE, "server_header": HOSTILE, "vocabulary": 2**62, "n_ctx": 2**62}
        return msgspec.structs.replace(super().attested(), **said)

    def prompt(self, key: str) -> PromptFact:
        """Return a prompt whose text is hostile."""
        return msgspec.structs.replace(super().prompt(key), text=f"{HOSTILE} {key} {'long ' * 1000}")


def hostile(folder: Path) -> Run:
    """Write a run in which every text that a record can hold is hostile."""
    subject = Hostile(plan=PLAN, label=HOSTILE, slots=6)
    subject.streams[f"{WAVE}/0"] = lambda stream: moved(stream, 3)
    subject.streams["concurrent_greedy_c4/p/0/w0/1"] = other_token
    return write(folder, subject, statements=(HOSTILE, HOSTILE))
