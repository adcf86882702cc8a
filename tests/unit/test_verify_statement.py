"""What verify.py gives others to sign, and what it says of a third party's time stamp."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

RUN = "2026-11-30-skulk-b10434-tiny"
REGISTERED = "2026-11-30-binary-b11434"


def verify(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the verifier as a reader would."""
    command = [sys.executable, "-I", "-S", str(repository / "scripts" / "verify.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def statement(repository: Path, run: Path) -> tuple[dict[str, Any], int]:
    """Return the statement about a run, and the exit code."""
    done = verify(repository, "--statement", str(run))
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded, done.returncode


def test_a_sound_run_has_a_passed_statement_about_its_seal(repository: Path) -> None:
    """The subject is the seal's digest, and the configuration the verifier's own."""
    run = repository / "results" / RUN
    found, code = statement(repository, run)
    assert code == 0
    assert found["subject"][0]["digest"]["sha256"] == sha256((run / "SHA256SUMS").read_bytes()).hexdigest()
    program = sha256((repository / "scripts" / "verify.py").read_bytes()).hexdigest()
    assert found["predicate"]["configuration"] == [{"name": "verify.py", "digest": {"sha256": program}}]
    assert found["predicate"]["result"] == "PASSED"
    assert found["predicate"]["failedTests"] == []
    assert {"bytes", "chain", "order", "requests"} <= set(found["predicate"]["passedTests"])


def test_a_run_that_contradicts_itself_has_a_failed_statement(repository: Path, tmp_path: Path) -> None:
    """The check that found it is among the failed ones."""
    run = tmp_path / "run"
    shutil.copytree(repository / "results" / RUN, run)
    (run / "cells.csv").write_bytes((run / "cells.csv").read_bytes() + b" ")
    found, code = statement(repository, run)
    assert code == 4
    assert found["predicate"]["result"] == "FAILED"
    assert found["predicate"]["failedTests"] == ["bytes"]


def test_without_a_run_there_is_no_statement(repository: Path, tmp_path: Path) -> None:
    """Nothing is printed that one could sign."""
    done = verify(repository, "--statement", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such folder" in done.stderr


def test_a_time_stamp_beside_the_registration_is_named_with_its_own_tools_command(
    repository: Path, tmp_path: Path
) -> None:
    """Both kinds are recognized by name; the verifier does not check them itself."""
    (tmp_path / "prereg").mkdir()
    run = str(repository / "results" / REGISTERED)
    digits = json.loads((repository / "results" / REGISTERED / "manifest.json").read_text())["registered"][7:]
    assert "order is self-attested" in verify(repository, run, "--repo", str(tmp_path)).stdout
    (tmp_path / "prereg" / "audit.ots").write_bytes(b"a proof")
    (tmp_path / "prereg" / "audit.tsr").write_bytes(b"a reply")
    told = verify(repository, run, "--repo", str(tmp_path)).stdout
    assert f"ots verify -d {digits} " in told
    assert f"openssl ts -verify -digest {digits} -in " in told
