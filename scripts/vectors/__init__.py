"""Hostile vectors: each an edit of the golden run, with the check that catches it and what the check rests on.

In: nothing. Out: VECTORS, which scripts/make_vectors.py applies, and UNDETECTABLE, which says of those that nothing in
the record can catch what was made up. It holds recipes only: what a forger does after an edit is in scripts/forgery.py.
"""

from scripts.vectors import folder, judged, plan, replies, statements, unseen
from scripts.vectors.table import SEAL_ONLY, UNDETECTABLE, VECTORS, Vector

PARTS = (folder, plan, statements, judged, replies, unseen)

__all__ = ["PARTS", "SEAL_ONLY", "UNDETECTABLE", "VECTORS", "Vector"]
