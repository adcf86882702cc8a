"""The system under test as a report shows it: what a server said of itself, what was declared of it, its prompts.

In goes one server's evidence, out comes what a template sets. Attested and declared are never mixed.
"""

import json
from collections.abc import Mapping
from typing import Any

from audit.analyse.evidence import Evidence
from audit.record import Attested
from audit.store import Run

__all__ = ["system_view"]

JSON = dict[str, Any]
_PROMPT_SHOWN = 160


def system_view(run: Run, evidence: Evidence) -> JSON:
    """Return what a server said of itself, what was declared of it, and its prompts."""
    entry = evidence.entry
    declared = run.fact(entry.declaration) if entry.declaration and run.has("facts", entry.declaration) else {}
    prompts = []
    for name, digest in evidence.prompts.items():
        fact = run.fact(digest) if "@" not in name and run.has("facts", digest) else None
        if fact is not None:
            text = fact["text"]
            prompts.append(
                {
                    "name": name,
                    "tokens": len(fact["ids"]),
                    "text": text[:_PROMPT_SHOWN],
                    "cut": len(text) > _PROMPT_SHOWN,
                }
            )
    return {
        "server": entry.label,
        "owned": entry.owned,
        "attested": _attested(entry.attested),
        "declared": {name: _compact(value) for name, value in declared.items()}
        if isinstance(declared, Mapping)
        else {},
        "prompts": prompts,
        "block_prompts": sum("@" in name for name in evidence.prompts),
        "restarts": sum(line.phase == "restart" for line, _ in evidence.identities),
    }


def _attested(attested: Attested) -> JSON:
    return {
        "build": attested.build_info,
        "model": attested.model,
        "slots": attested.slots,
        "context of a slot, tokens": attested.n_ctx,
        "vocabulary, tokens": attested.vocabulary,
        "Server header": attested.server_header,
    }


def _compact(value: object) -> str:
    """Return a declared value as one readable line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_compact(item)}" for name, item in value.items())
    return json.dumps(value, ensure_ascii=True)
