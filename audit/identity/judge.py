"""From captures to verdicts: cells of one pair of builds, then families, then what the whole run says.

In go the rounds of two builds on one cell, out comes the first verdict that applies, with its reason. The rules, and
the holes that each one closes, stand in docs/reference/identity.md. An absent row is equal to nothing here: equality is
only ever concluded from digests that are there on both sides.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from audit.identity.compare import Difference, Part, Values, compare_rows, farthest_nats
from audit.identity.evidence import Capture, Round
from audit.identity.record import CellEntry

__all__ = ["CellFacts", "CellJudgement", "Verdict", "compared_captures", "device_of", "judge_cell", "repeats"]

Verdict = Literal["IDENTICAL", "WITHIN TOLERANCE", "DIFFERENT", "NOT RUN"]
Read = Callable[[Capture], Values | None]
# Twice the run-to-run difference: as far as either run may lie from a middle that nobody knows.
_TOLERANCE_FACTOR = 2.0
_DEVICES = {"vulkan": "vulkan", "cuda": "cuda", "metal": "metal", "mtl": "metal"}


class CellFacts(NamedTuple):
    """One cell of a pair: the two rounds of each side, the oldest build's first."""

    entry: CellEntry
    device: str
    old: tuple[Round | None, Round | None]
    new: tuple[Round | None, Round | None]
    owned: tuple[bool, bool]


class CellJudgement(NamedTuple):
    """A cell's verdict and everything it rests on; `difference` is None where rows are equal or not here to be read."""

    verdict: Verdict
    reason: str
    old_repeats: bool | None
    new_repeats: bool | None
    tokens: tuple[int, int]
    rows: tuple[int, int]
    tolerance_nats: float | None
    difference: Difference | None
    path_differs: bool


def device_of(path: Any) -> str | None:  # noqa: ANN401 - a fact
    """Tell from a code path on which kind of device the weights lie; None where nothing was said."""
    if not isinstance(path, dict):
        return None
    for name in path["weights"]:
        for prefix, device in _DEVICES.items():
            if name.lower().startswith(prefix):
                return device
    return "cpu"


def complete(found: Round | None, prompts: Sequence[str]) -> bool:
    """Tell whether a process answered every prompt freely."""
    return found is not None and all(_capture(found, "free", name).usable for name in prompts)


def repeats(rounds: tuple[Round | None, Round | None], prompts: Sequence[str]) -> bool | None:
    """Tell whether a build gave the same bytes twice, also when forced; None where that cannot be said."""
    first, second = rounds
    if first is None or second is None or not complete(first, prompts) or not complete(second, prompts):
        return None
    for name in prompts:
        one, two = _capture(first, "free", name), _capture(second, "free", name)
        if (one.tokens, one.digests) != (two.tokens, two.digests):
            return False
        forced = _capture(second, "forced", name)
        if forced.usable and _common(two, forced) != _common(forced, two):
            return False
    return True


def compared_captures(old: Round, new: Round, name: str) -> tuple[Capture, Capture, int]:
    """Return the two captures of a prompt that are compared, and how many of their rows.

    Both forced to the same tokens where that worked: every row. Else the free runs, up to the first token that differs.
    """
    left, right = _capture(old, "forced", name), _capture(new, "forced", name)
    if left.usable and right.usable:
        return left, right, len(left.digests)
    left, right = _capture(old, "free", name), _capture(new, "free", name)
    return left, right, _agreeing(left.tokens, right.tokens)


def judge_cell(facts: CellFacts, read: Read) -> CellJudgement:
    """Return the first verdict that applies to a cell.

    Args:
        facts: the rounds of both builds.
        read: returns the rows of a capture, None where this copy leaves them out.
    """
    prompts = list(facts.entry.prompts)
    own = [repeats(facts.old, prompts), repeats(facts.new, prompts)]
    early = _not_compared(facts, prompts)
    paths = [_path(facts.old), _path(facts.new)]
    path_differs = None not in paths and paths[0] != paths[1]
    if early is not None:
        verdict, reason = early
        return CellJudgement(verdict, reason, own[0], own[1], (0, 0), (0, 0), None, None, path_differs)
    old, new = _both(facts)
    pairs = [(name, *compared_captures(old, new, name)) for name in prompts]
    equal = sum(
        left.digests[index] == right.digests[index] for _, left, right, count in pairs for index in range(count)
    )
    rows = sum(count for *_, count in pairs)
    tokens = sum(_capture(old, "free", name).tokens == _capture(new, "free", name).tokens for name in prompts)
    missing = _unforced(old, new, prompts)
    difference = None
    if equal < rows:
        parts = [_part(name, left, right, count, read) for name, left, right, count in pairs]
        read_parts = [part for part in parts if part is not None]
        difference = compare_rows(read_parts) if len(read_parts) == len(parts) else None
    tolerance = None
    if missing is not None:
        verdict, reason = missing
    elif own == [True, True]:
        same = equal == rows and tokens == len(prompts)
        verdict, reason = ("IDENTICAL", "") if same else ("DIFFERENT", "")
    elif None in own:
        verdict, reason = _unchecked(equal == rows, own)
    else:
        tolerance = _tolerance(facts, prompts, read)
        verdict, reason = _tolerated(facts, prompts, tolerance, difference, equal == rows)
    return CellJudgement(
        verdict, reason, own[0], own[1], (tokens, len(prompts)), (equal, rows), tolerance, difference, path_differs
    )


def _not_compared(facts: CellFacts, prompts: Sequence[str]) -> tuple[Verdict, str] | None:
    """Return the verdict of a cell whose rows are not to be compared."""
    for side, rounds, owned in (("old", facts.old, facts.owned[0]), ("new", facts.new, facts.owned[1])):
        for found in rounds:
            short = [capture for capture in found.captures.values() if capture.failure == "rows"] if found else []
            if short:
                return "NOT RUN", f"{side}: {short[0].message}"
            if found is None or not complete(found, prompts):
                continue
            device = device_of(found.path)
            if device != facts.device and (owned or device is not None):
                return "NOT RUN", f"{side}: asked for {facts.device}, ran on {device or 'nobody says what'}"
    failed = [not complete(rounds[0], prompts) for rounds in (facts.old, facts.new)]
    reasons = [_why(side, rounds[0]) for side, rounds in (("old", facts.old), ("new", facts.new))]
    if all(failed):
        return "NOT RUN", "; ".join(reasons)
    if any(failed):
        return "DIFFERENT", f"only one side runs: {reasons[failed.index(True)]}"
    return None


def _unforced(old: Round, new: Round, prompts: Sequence[str]) -> tuple[Verdict, str] | None:
    """Return the verdict where one side could be forced and the other could not."""
    for name in prompts:
        sides = [_capture(found, "forced", name) for found in (old, new)]
        if sides[0].usable != sides[1].usable and all(complete(found, prompts) for found in (old, new)):
            side = "new" if sides[0].usable else "old"
            failed = sides[0] if side == "old" else sides[1]
            return "DIFFERENT", f"only one side can be forced on {name}: {side}: {failed.message or failed.failure}"
    return None


def _unchecked(equal: bool, own: Sequence[bool | None]) -> tuple[Verdict, str]:  # noqa: FBT001 - a fact of the cell
    side = "old" if own[0] is None else "new"
    if not equal:
        return "DIFFERENT", f"and {side} did not finish a second run"
    return "NOT RUN", f"{side} did not finish a second run, so nobody knows whether it repeats itself"


def _tolerated(
    facts: CellFacts,
    prompts: Sequence[str],
    tolerance: float | None,
    difference: Difference | None,
    equal: bool,  # noqa: FBT001 - a fact of the cell
) -> tuple[Verdict, str]:
    """Judge a cell that does not repeat itself: never IDENTICAL."""
    runs = [_capture(found, "free", name).tokens for name in prompts for found in (*facts.old, *facts.new) if found]
    sides = len(facts.old) + len(facts.new)
    tokens_exact = all(len(set(runs[at : at + sides])) == 1 for at in range(0, len(runs), sides))
    if not tokens_exact:
        return "DIFFERENT", "does not repeat itself, and tokens differ"
    if tolerance is None or (difference is None and not equal):
        return "NOT RUN", "does not repeat itself, and this copy holds no rows to measure by how much"
    if difference is not None and difference.argmax[0] < difference.argmax[1]:
        return "DIFFERENT", "does not repeat itself, and the most likely token differs"
    if difference is not None and difference.nats_max > tolerance:
        return "DIFFERENT", f"does not repeat itself, and differs by more than twice its own {tolerance / 2!r} nats"
    return "WITHIN TOLERANCE", "does not repeat itself"


def _tolerance(facts: CellFacts, prompts: Sequence[str], read: Read) -> float | None:
    """Return twice the largest run-to-run difference of either side, None where rows are not here."""
    largest = 0.0
    for first, second in (facts.old, facts.new):
        if first is None or second is None:
            return None
        for name in prompts:
            one, two, forced = (
                _capture(first, "free", name), _capture(second, "free", name), _capture(second, "forced", name)
            )  # fmt: skip
            for left, right in [(one, two), (two, forced)] if forced.usable else [(one, two)]:
                a, b = read(left), read(right)
                if a is None or b is None:
                    return None
                count = _agreeing(left.tokens, right.tokens)
                largest = max(largest, farthest_nats(a[:count], b[:count]))
    return _TOLERANCE_FACTOR * largest


def _both(facts: CellFacts) -> tuple[Round, Round]:
    """Return the rounds that are compared: the second ones, or where one of them failed the first ones."""
    prompts = list(facts.entry.prompts)
    second = [facts.old[1], facts.new[1]]
    old, new = second if all(complete(found, prompts) for found in second) else [facts.old[0], facts.new[0]]
    if old is None or new is None:
        raise AssertionError("a cell without rounds was judged before")
    return old, new


def _part(name: str, left: Capture, right: Capture, count: int, read: Read) -> Part | None:
    old, new = read(left), read(right)
    return None if old is None or new is None else Part(name, old[:count], new[:count])


def _capture(found: Round, form: str, name: str) -> Capture:
    return found.captures.get((form, name), Capture(failure="missing", message="no such capture"))


def _why(side: str, found: Round | None) -> str:
    if found is None:
        return f"{side}: not asked"
    failures = [capture.message or str(capture.failure) for capture in found.captures.values() if capture.failure]
    return f"{side}: {found.failure or (failures or ['it ended without an answer'])[0]}"


def _path(rounds: tuple[Round | None, Round | None]) -> Any:  # noqa: ANN401 - a fact
    """Return the code path that a side told, None where neither process did."""
    return next((found.path for found in rounds if found is not None and found.path is not None), None)


def _agreeing(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the rows that have equal tokens before them: up to and including the first whose token differs."""
    for index, (one, two) in enumerate(zip(left, right, strict=False)):
        if one != two:
            return index + 1
    return min(len(left), len(right))


def _common(one: Capture, other: Capture) -> tuple[str, ...]:
    return one.digests[: _agreeing(one.tokens, other.tokens)]
