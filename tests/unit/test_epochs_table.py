"""The table of epochs is what the stored findings say."""

from __future__ import annotations

from scripts import epochs_table


def test_the_page_is_up_to_date() -> None:
    """scripts/epochs_table.py would change nothing."""
    assert epochs_table.main(["--check"]) == 0


def test_a_changed_class_changes_the_page() -> None:
    """The page follows the findings and is no text of its own."""
    page = epochs_table.PAGE.read_text(encoding="ascii")
    assert epochs_table.renewed(page.replace("| A |", "| B |")) == page
