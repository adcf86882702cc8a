"""The README's numbers are those of the stored runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_readme_shows_the_findings_of_the_stored_runs(repository: Path) -> None:
    """scripts/readme_table.py would change nothing."""
    command = [sys.executable, "-m", "scripts.readme_table", "--check"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "up to date"), done.stderr
