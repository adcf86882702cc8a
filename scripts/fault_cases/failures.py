"""Failures: replies that are none, what the record says of them, and that the run goes on or ends with an error."""

from __future__ import annotations

from scripts.fault_cases.table import ON, Failed, Table, from_trial

CASES = Table()
add = CASES.add

HIT = "other_slot/a/1/0"
STREAM = "stream_vs_whole/a/0"
SHORT = ["repeat_greedy", "repeat_seeded", "other_slot", "stream_vs_whole"]
LATE = from_trial("short", HIT)
LATE_CONTROLS = {name: "incomplete" for name in LATE if name.startswith("control_")}
WEAK = {name: ["weak"] for name in SHORT}
MISSED = {"other_slot": "insufficient"}


def whole(fault: str, kind: str, message: str, evidence: str, *, kept: bool | None = True, plan: str = "short") -> None:
    """Add a run in which one whole reply fails."""
    add(fault, HIT, plan, evidence, cells=MISSED, failed=Failed(HIT, kind, message, kept))


def streamed(fault: str, kind: str, message: str, evidence: str, *, kept: bool | None = True) -> None:
    """Add a run in which the one streamed reply fails."""
    failed = Failed(STREAM, kind, message, kept)
    add(fault, STREAM, "short", evidence, word="streamed", cells={"stream_vs_whole": "not run"}, failed=failed)


whole("loading_at", "status", "Loading model", "status 503")
whole("unauthorized_at", "status", "Invalid API Key", "status 401")
whole("context_exceeded_at", "status", "exceeds the available context size", "status 400")
whole("server_error_at", "status", "proxy error", "status 500")
whole("redirected_at", "status", "b''", "status 307, which is not followed", kept=False)
whole("html_at", "refused", "<!DOCTYPE html>", "it is no JSON")
whole("nan_at", "refused", "cannot be read", "it is no JSON")
whole("key_missing", "refused", "has no tokens", "the ids that were asked for are not there")
whole("body_cut", "transport", "RemoteProtocolError", "fewer bytes than the head promised")
whole("reset_before", "transport", "Error", "the connection broke", kept=False)
whole("reset_middle", "transport", "Error", "the connection broke", kept=None)
whole("stalled", "timeout", "no whole answer within 1.5 s", "the deadline of an exchange", kept=False, plan="hasty")
whole("dripped", "timeout", "no whole answer within 1.5 s", "the deadline is for the whole", plan="hasty")
streamed("stream_error", "stream_error", "Context size has been exceeded", "an event of an error after good ones")
streamed("html_at", "stream_error", "ended without its last event", "no event at all")
streamed("nan_at", "stream_error", "cannot be read", "an event that is no JSON")
streamed("key_missing", "stream_error", "names 0 of 8 generated tokens", "ids and counts do not agree")
streamed("body_cut", "transport", "RemoteProtocolError", "the last chunk never came")
streamed("reset_middle", "transport", "Error", "the connection broke", kept=None)

add("null_logprob", HIT, "short", "null equals nothing", cells={"other_slot": "token-identical"},
    qualifiers={"other_slot": ["partial"]}, witness={"trial": HIT, "step": 4, "rank": 4, "value": None})  # fmt: skip
add("null_logprobs", ON, "short", "null equals nothing, not even null; a canary with one is refused",
    cells={"repeat_greedy": "token-identical", "repeat_seeded": "token-identical",
           "other_slot": "unstable", "stream_vs_whole": "unstable", "control_prompt": "unstable",
           "control_seed": "unstable", "control_temperature": "unstable"},
    qualifiers={"repeat_greedy": ["partial"]}, instrument={"canary": "incomplete"}, code=3)  # fmt: skip
add("body_huge", HIT, "short", "nothing has to: 100 MB of white space is JSON", failed=None)
add("body_huge", STREAM, "short", "nothing has to: comments are no events", word="streamed")
add("keys_reordered", ON, "short", "nothing has to: a stream is written in one order")
add("events_split", ON, "short", "nothing has to: events are cut anywhere")
add("wave_overflows", 70, "slots", "all members are refused at once", cells={"concurrent_greedy_c3": "not run"},
    failed=Failed("concurrent_greedy_c3/a/0/w0/1", "status", "Context size has been exceeded"))  # fmt: skip
add("metrics_missing", ON, "short", "slots and windows only: weak", qualifiers=WEAK)
add("slots_missing", ON, "short", "counters only: weak", qualifiers=WEAK)
add("metrics_lost_after", HIT, "short", "there before and not after, and the process cannot be named any more", after=1,
    cells=dict.fromkeys(LATE, "tainted"), reasons={"other_slot": {"idle": 1}},
    instrument=LATE_CONTROLS, code=3)  # fmt: skip
add("loading_s", 3600.0, "short", "nothing is sent, and nothing is left in the folder", code=2,
    error="still loading its model")  # fmt: skip
add("refuses_after", HIT, "short", "what was answered is in the unsealed record", code=2, error="cannot be reached")
