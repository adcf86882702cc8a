"""What is made of a run for people and for pandas: pure functions of the run folder, derived and never evidence."""

from audit.report.derive import derive, derived_files, trials_csv

__all__ = ["derive", "derived_files", "trials_csv"]
