"""The table of epochs is what the stored findings say."""

from __future__ import annotations

from scripts import epochs_table
from scripts.tables import renewed


def test_the_page_is_up_to_date() -> None:
    """scripts/epochs_table.py would change nothing."""
    assert epochs_table.main(["--check"]) == 0


def test_a_changed_class_changes_the_page() -> None:
    """The page follows the findings and is no text of its own."""
    page = epochs_table.PAGE.read_text(encoding="ascii")
    assert renewed(page.replace("| A |", "| B |"), epochs_table.NAME, epochs_table.tables()) == page
