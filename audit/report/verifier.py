"""Where the verifier is, and which file it is, for whoever reads a report and does not trust it.

In goes a run folder, out comes the command that checks it. The verifier is one file: `scripts/verify.py` of a checkout,
or the same file among the data of an installed package.
"""

import hashlib
from pathlib import Path

__all__ = ["verifier_words"]

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE.parent / "scripts" / "verify.py", _PACKAGE / "data" / "verify.py")


def verifier_words(run: Path) -> str:
    """Return the command to run next, and the digest of the file that it runs."""
    path = next((place for place in _PLACES if place.is_file()), None)
    if path is None:
        return f"next: python3 -I -S scripts/verify.py {run}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"next: python3 -I -S {shown} {run}\n      (that file is sha256:{digest})"
