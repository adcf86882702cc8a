"""What is made of a run for people and for pandas: pure functions of the run folder, derived and never evidence."""

from audit.report.derive import derive, trials_csv

__all__ = ["derive", "trials_csv"]
