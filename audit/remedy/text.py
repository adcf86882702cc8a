"""A remedy as aligned ASCII: the table of settings, best first, the guilty factor, and what was not tried."""

from collections.abc import Sequence
from typing import Any

from audit.report.words import condition_words, counted, listed

__all__ = ["command_line", "conclusion", "price", "remedy_text", "untried_by_words"]

JSON = dict[str, Any]
_MEBI = 1024 * 1024
_HIDDEN = ("--port", "--host", "-a")  # chosen anew by whoever starts it


def command_line(row: JSON) -> str:
    """Return the exact command line of a row, without what only its owner chooses."""
    words, skipped = [f"{name}={value}" for name, value in row["environment"].items()], False
    for word in row["argv"]:
        if skipped or word in _HIDDEN:
            skipped = not skipped
            continue
        words.append(word)
    if words and "xllamacpp" in words:
        words[words.index("xllamacpp")] = "llama-server"
    return " ".join(words)


def price(row: JSON, without: JSON) -> dict[str, str]:
    """Return speed and memory of a row in words, with their change against no setting."""
    found = {}
    for name in ("solo", "together"):
        own, other = row[name], without[name]
        found[name] = "-" if own is None else f"{own['per_second']:.1f}"
        if own is not None and other is not None and row is not without:
            found[name] += f" ({_change(own['per_second'], other['per_second'])})"
    own, other = row["memory_bytes"], without["memory_bytes"]
    found["memory"] = "-" if own is None else f"{own // _MEBI}"
    if own and other and row is not without:
        found["memory"] += f" ({_change(own, other)})"
    return found


def _change(own: float, other: float) -> str:
    return f"{100 * (own - other) / other:+.0f} %"


def conclusion(findings: JSON) -> str:
    """Return one sentence: what diverges without any setting, and which settings remedy how much of it."""
    moved = [one for one in findings["conditions"] if one["moved"]]
    if not findings["sound"]:
        return "The record is inconclusive: a control, a canary or another check failed where something was proven."
    if not moved:
        return "Without any setting no condition diverged, so that there was nothing to remedy."
    cured = [one for one in moved if one["remedies"]]
    full = [row["setting"] for row in findings["settings"] if row["remedied"] == len(moved)]
    said = f"Without any setting {counted(len(moved), 'condition')} {'diverges' if len(moved) == 1 else 'diverge'}"
    if full:
        return f"{said}; {listed(full)} {'remedies' if len(full) == 1 else 'each remedy'} all of them."
    if cured:
        return f"{said}; no setting remedies all of them, and {len(cured)} of them can be remedied."
    return f"{said}, and no setting that was tried to the end remedies any of them."


def untried_by_words(findings: JSON) -> dict[str, list[str]]:
    """Return the settings that were not tried, by the reason in words."""
    found: dict[str, list[str]] = {}
    for one in findings["untried"]:
        found.setdefault(one["words"], []).append(one["setting"])
    return found


def remedy_text(findings: JSON) -> str:
    """Return the whole report."""
    lines = [conclusion(findings), f"build {findings['build']}, model {findings['model']}", ""]
    moved = [one["condition"] for one in findings["conditions"] if one["moved"]]
    table = [["best", "setting", *moved, "tokens/s alone", f"at {findings['level'] or '-'}", "memory MiB"]]
    without = findings["without"]
    bare = price(without, without)
    rates = {one["condition"]: one["by_wave"] for one in findings["conditions"]}
    shown = [f"{rates[name]['divergent']}/{rates[name]['n']} move" for name in moved]
    table.append(["", "(none)", *shown, bare["solo"], bare["together"], bare["memory"]])
    for row in findings["settings"]:
        cost = price(row, without)
        cells = [_cell(cell) for cell in row["cells"]]
        best = "*" if row["pareto"] else ""
        table.append([best, row["setting"], *cells, cost["solo"], cost["together"], cost["memory"]])
    lines += _aligned(table)
    for row in findings["settings"]:
        if row["pareto"]:
            lines += ["", f"{row['setting']}:", f"  {command_line(row)}"]
    lines += ["", *(_factor(one) for one in findings["conditions"])]
    lines += [f"failed: {one['setting'] or 'without any setting'}: {one['words']}" for one in findings["failed"]]
    lines += [f"not tried: {', '.join(names)}: {words}" for words, names in untried_by_words(findings).items()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cell(cell: JSON) -> str:
    """Return a status with the waves that say so: how many moved, and the bound where none did."""
    found = cell["by_wave"]
    if found is None or not found["n"]:
        return str(cell["status"])
    bound = f", at most {found['high']:.2f}" if not found["divergent"] else ""
    return f"{cell['status']} {found['divergent']}/{found['n']}{bound}"


def _factor(one: JSON) -> str:
    words = condition_words(one["condition"])
    if not one["moved"]:
        return f"{one['condition']} ({words}): {one['verdict'] or 'not run'} without any setting"
    if one["factor"]:
        return f"{one['condition']} ({words}): {one['factor']} alone switches it off, and its absence on again"
    if one["remedies"]:
        return f"{one['condition']} ({words}): each of {listed(one['remedies'])} switches it off, so no one is guilty"
    return f"{one['condition']} ({words}): no remedy was found"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table]
