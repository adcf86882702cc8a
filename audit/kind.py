"""Which kind of record a folder holds, for those who have to choose a reader by it.

In goes a folder, out comes the word of its manifest. Everything else about it is the chosen reader's business, also
what is wrong with it.
"""

import json
from pathlib import Path

__all__ = ["kind_of"]

_OTHERWISE = "audit"


def kind_of(folder: Path) -> str:
    """Return the kind of a run; `audit` where no manifest says it, whose reader then says what is missing."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return _OTHERWISE
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    return kind if isinstance(kind, str) else _OTHERWISE
