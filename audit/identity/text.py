"""The findings of an identity record as three sections of aligned ASCII: determinism, identity, verdict.

In go findings and what the manifest says of the builds, out comes text. Nothing is judged here.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

from audit.identity.findings import PRECEDENCE
from audit.identity.plan import IdentityPlan
from audit.identity.record import BuildEntry, IdentityManifest

__all__ = ["headline", "identity_text", "shown_name"]

_DIGITS = 12
_LINE_LENGTH = 110


def shown_name(build: BuildEntry) -> str:
    """Return what a reader calls a build."""
    return f"{build.name} ({build.commit[:_DIGITS]})" if build.commit else build.name


def headline(pair: dict[str, Any], manifest: IdentityManifest, plan: IdentityPlan) -> str:
    """Say the verdict of a pair in one line, with the kind and the number of the rows that it rests on."""
    present = [name for name in PRECEDENCE if pair["counts"][name]]
    sizes = sorted({cell.vocabulary for cell in manifest.cells})
    values = " or ".join(f"{size:,}" for size in sizes) or "no"
    verdict = present[0] if present else "NOT RUN"
    return f"{verdict}, {values} {manifest.rows} x {len(plan.prompts)} prompts x {plan.rows} rows"


def identity_text(findings: dict[str, Any], manifest: IdentityManifest, plan: IdentityPlan) -> str:
    """Return the report."""
    names = {build.label: shown_name(build) for build in manifest.builds}
    lines = [f"== determinism: every build run twice, separate processes, on {findings['device']} =="]
    if not all(build.restarts for build in manifest.builds):
        running = [names[build.label] for build in manifest.builds if not build.restarts]
        lines[0] = f"== determinism: every build asked twice, on {findings['device']} =="
        lines.append(f"  {', '.join(running)} ran already: not restarted, so both runs are of one process")
    for build in findings["determinism"]:
        counts = f"{build['identical']} cell(s) identical to themselves, {build['not_identical']} not"
        lines.append(f"  {names[build['build']]}: {counts}, {build['unchecked']} unchecked")
    for pair in findings["pairs"]:
        lines += ["", f"== identity: {names[pair['old']]} against {names[pair['new']]} =="]
        lines += _pair(pair, names[pair["old"]])
    if len(manifest.builds) > len(("old", "new")):
        lines += ["", *epochs_text(findings, names)]
    lines += ["", "== verdict =="]
    for pair in findings["pairs"]:
        counts = ", ".join(f"{pair['counts'][name]} {name}" for name in PRECEDENCE)
        families = len(pair["families"])
        prefix = f"{names[pair['old']]} -> {names[pair['new']]}: " if len(findings["pairs"]) > 1 else ""
        lines.append(f"  {prefix}{families} families: {counts}")
        lines.append(f"  {prefix}{headline(pair, manifest, plan)}")
    for prediction in findings["predictions"]:
        counted = f"{prediction['k']}/{prediction['n']}"
        lines.append(f"  prediction {prediction['id']}: {prediction['status']} ({counted}): {prediction['statement']}")
    checks = ", ".join(f"{one['check']} {one['status']} {one['k']}/{one['n']}" for one in findings["instrument"])
    lines.append(f"  instrument: {checks}")
    if findings["exploratory"]:
        lines.append(f"  exploratory: {findings['exploratory']}")
    return "\n".join(lines) + "\n"


def _pair(pair: dict[str, Any], old: str) -> list[str]:
    lines = []
    asked = [family for family in pair["families"] if family["cells"]]
    width = max([len(family["family"]) for family in asked], default=0)
    for family in asked:
        end = f"validation inheritable from {old}" if family["inherits"] else "goes to its reference gate"
        if family["verdict"] == "NOT RUN":
            end = family["reason"]
        elif family["verdict"] == "IDENTICAL" and not family["inherits"]:
            end = f"not inheritable, {family['cells'] - family['ran']} cell(s) did not run: {family['reason']}"
        count = f"{family['ran']}/{family['cells']} cell(s) ran"
        lines.append(f"  {family['verdict']:<16}  {family['family']:<{width}}  {count}  {end}")
        for cell in pair["cells"]:
            if cell["family"] == family["family"]:
                lines += _cell(cell)
    without: dict[str, list[str]] = {}
    for family in pair["families"]:
        if not family["cells"]:
            without.setdefault(family["reason"], []).append(family["family"])
    for reason, names in without.items():
        lines.append(f"  {'NOT RUN':<16}  {len(names)} without a cell, {reason}:")
        lines += [f"      {line}" for line in textwrap.wrap(", ".join(names), _LINE_LENGTH)]
    return lines


def _cell(cell: dict[str, Any]) -> list[str]:
    """Say of a cell what its family's line does not: why, how far, and whether its code path is another one."""
    lines = []
    if cell["verdict"] != "IDENTICAL":
        tokens = f"free tokens agree on {cell['tokens'][0]}/{cell['tokens'][1]} prompts"
        reason = f": {cell['reason']}" if cell["reason"] else ""
        lines.append(f"      {cell['cell']}  {cell['verdict']}{reason}" + (f", {tokens}" if cell["tokens"][1] else ""))
    if cell["path_differs"]:
        lines.append(f"      {cell['cell']}  the two sides report different code paths")
    one = cell["difference"]
    if one is None:
        return lines
    first = one["first"]
    where = f"prompt {first['prompt']} step {first['step']} (0 = prefill) token {first['token']}"
    lines.append(
        f"          first differing value: {where}: {first['old']!r} (0x{first['old_hex']}) against "
        f"{first['new']!r} (0x{first['new_hex']})"
    )
    moved = f"{one['rows'][0]}/{one['rows'][1]} rows, {one['values'][0]}/{one['values'][1]} values"
    lines.append(
        f"          max |difference| {one['nats_max']:.6g} nats, {one['ulp_max']} ULP; {moved}; argmax agrees in "
        f"{one['argmax'][0]}/{one['argmax'][1]}"
    )
    constant = f"{one['constant_rows']}/{one['rows'][0]} differing rows moved by one constant"
    share = "no range to compare with" if one["share_max"] is None else f"{one['share_max']:.2g} of a row's range"
    lines.append(f"          begins in {one['begins']}; {constant}; looks like {one['looks']} ({share})")
    return lines


def epochs_text(findings: dict[str, Any], names: dict[str, str]) -> list[str]:
    """Return the classes of builds with equal rows, a section for each cell."""
    lines = ["== epochs: builds with equal rows, oldest first =="]
    for entry in findings["classes"]:
        lines.append(f"  {entry['cell']}: {len(entry['classes'])} class(es)")
        for index, members in enumerate(entry["classes"]):
            lines.append(f"    {_letter(index)}  {', '.join(names[label] for label in members)}")
        if entry["not_run"]:
            lines.append(f"    -  did not finish: {', '.join(names[label] for label in entry['not_run'])}")
    return lines


def _letter(index: int) -> str:
    letters: Sequence[str] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[index] if index < len(letters) else f"class {index + 1}"
