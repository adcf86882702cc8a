"""What the audit costs, as ratios against floors that run in the same minutes: one module a bench, one command each.

measure.py has the pairs, child.py the processes that are measured, page.py the table of docs/reference/performance.md;
`python -m scripts.bench` runs them all. Nothing here is asserted in a test: a number is a fact about one machine.
"""
