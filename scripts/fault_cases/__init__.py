"""The fault runs: `CASES`, one table of faults and what both programs must find.

`table.py` says what a case is, `plans.py` holds the plans, `numbers.py`, `lies.py` and `failures.py` the cases,
`running.py` runs and judges one, `direct.py` leaves the socket out.
"""

from scripts.fault_cases.failures import CASES as FAILURES
from scripts.fault_cases.lies import CASES as LIES
from scripts.fault_cases.numbers import CASES as NUMBERS
from scripts.fault_cases.table import Case

__all__ = ["CASES", "Case"]

CASES = (*NUMBERS, *LIES, *FAILURES)
