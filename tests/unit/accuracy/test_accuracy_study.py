"""The driver does everything in the order that freezes bounds first, and does nothing twice."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from scripts import accuracy_study


def study(tmp_path: Path) -> accuracy_study.StudyRun:
    """A study in a working folder."""
    options = argparse.Namespace(model="m", work=tmp_path / "work", registration=tmp_path / "prereg", threads=2)
    return accuracy_study.StudyRun(options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record each command instead of running it, and make what it would make."""
    commands: list[list[str]] = []

    def determinism(*words: object, accepted: tuple[int, ...] = (0,)) -> int:
        texts = [str(word) for word in words]
        commands.append(texts)
        if "--out" in texts and "--check" not in texts:
            out = Path(texts[texts.index("--out") + 1])
            if texts[1] == "capture":
                (out / "SHA256SUMS").write_text("sealed")
            elif texts[1] in {"decode", "calibrate"}:
                out.write_text("made")
        return max(accepted) if texts[1] == "check" else 0

    monkeypatch.setattr(accuracy_study, "determinism", determinism)
    return commands


def test_a_refused_capture_is_kept_aside_and_made_again(
    tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wave that was not proven is no reason to lose what was recorded, nor to begin the study anew."""
    clean, refused = accuracy_study.determinism, [2, 2, 0]

    def determinism(*words: object, accepted: tuple[int, ...] = (0,)) -> int:
        clean(*words, accepted=accepted)
        late = [str(word) for word in words][-1].endswith("bounds.json") and "long" in words
        return refused.pop(0) if late else 0

    monkeypatch.setattr(accuracy_study, "determinism", determinism)
    assert study(tmp_path).run() == 0
    kept = sorted(path.name for path in (tmp_path / "work").glob("refused-*"))
    assert kept == ["refused-0-server-long", "refused-1-server-long"]
    assert names(asked).count("server-long") == 3


def names(commands: list[list[str]]) -> list[str]:
    """Name each command by its verb, and a capture by side and group."""
    return [
        Path(words[words.index("--out") + 1]).name if words[1] == "capture" else words[words[0] == "accuracy"]
        for words in commands
    ]


def test_bounds_are_frozen_before_the_server_is_asked_for_other_groups(tmp_path: Path, asked: list[list[str]]) -> None:
    """Decode, the references, the calibration group, bounds, the other groups, check, export; 1 is a verdict."""
    assert study(tmp_path).run() == 1
    references = [f"reference-{group}" for group in ("original", "short", "long", "fresh")]
    servers = [f"server-{group}" for group in ("short", "long", "fresh")]
    expected = ["decode", "decode", *references, "server-original", "calibrate", *servers, "check", "export"]
    assert names(asked) == expected
    for words in asked:
        if words[1] == "capture":
            late = Path(words[words.index("--out") + 1]).name in servers
            assert ("--bounds" in words) == late
            assert words[words.index("--threads") + 1] == "2"


def test_what_is_sealed_is_not_captured_again(tmp_path: Path, asked: list[list[str]]) -> None:
    """A second call compares and exports again, and makes only the capture that was not sealed."""
    study(tmp_path).run()
    (tmp_path / "work" / "server-long" / "SHA256SUMS").unlink()
    (tmp_path / "work" / "server-long" / "half").write_text("of a capture")
    asked.clear()
    study(tmp_path).run()
    assert names(asked) == ["decode", "server-long", "check", "export"]
    assert not (tmp_path / "work" / "server-long" / "half").exists()
