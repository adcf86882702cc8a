"""Identity records of fake builds: a build that is a fake server with its own numbers for each family.

In: how each build's numbers depend on the family and the run. Out: a sealed record, its findings, and what the verifier
says of it. It starts nothing but fakes and the verifier.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from audit.fake import FakeSettings, FakeThread
from audit.identity.assets import Asset
from audit.identity.capture import capture_identity
from audit.identity.evidence import IdentityRun
from audit.identity.gate import derive_identity
from audit.identity.order import IdentityOrder
from audit.identity.plan import IdentityPlan
from audit.identity.record import BuildEntry, CaptureFailure, Library
from audit.identity.running import Build, Job, Outcome
from audit.identity.serving import RunningServer
from audit.local.models import ModelFile
from audit.stream import digest

JSON = Any
REPOSITORY = Path(__file__).resolve().parents[2]
VERIFIER = REPOSITORY / "scripts" / "verify.py"
VOCABULARY = 512
CPU = {"weights": ["CPU"], "cache": ["CPU"], "compute": ["CPU"], "features": ["AVX2"]}
PLAN = IdentityPlan.parse(
    {
        "name": "small",
        "steps": 4,
        "threads": 1,
        "ctx": 256,
        "batch": 64,
        "ubatch": 32,
        "timeout_s": 60.0,
        "prompts": {
            "short": {"text": "Once {registered}", "tokens": 20},
            "long": {"text": "So it goes.", "tokens": 40},
        },
    },
    name="plan",
)
ORDER = IdentityOrder(plan=PLAN, registered=digest(PLAN.to_bytes()))

# What a fake build is for a family, and for the n-th process of it.
Numbers = Callable[[str, int], FakeSettings]
Change = Callable[[str, int, Outcome], Outcome]


def plain(seed: int = 1) -> Numbers:
    """Return the numbers of a build that computes the same for every family and run."""
    return lambda _family, _run: FakeSettings(vocabulary=VOCABULARY, seed=seed, step_ms=0.0, prefill_ms_per_token=0.0)


def same(_family: str, _run: int, outcome: Outcome) -> Outcome:
    """Change nothing."""
    return outcome


@dataclasses.dataclass
class FakeRunner:
    """Runs a fake server for each process; `change` has the last word over what came of it."""

    numbers: Numbers
    change: Change = same
    runs: dict[str, int] = dataclasses.field(default_factory=dict)

    def run(self, asset: Asset, plan: IdentityPlan, jobs: Sequence[Job]) -> Outcome:
        """Start a fake, ask it, and stop it."""
        number = self.runs.get(asset.cell, 0)
        self.runs[asset.cell] = number + 1
        # A second quantization of a family goes by a name of its own, so that a family can differ in one of its cells.
        name = asset.family if asset.quantization == "f32" else f"{asset.family} {asset.quantization}"
        with FakeThread(self.numbers(name, number)) as fake:
            asked = RunningServer(url=fake.url).run(asset, plan, jobs)
        outcome = Outcome(
            answers=asked.answers,
            executable=digest(b"fake"),
            libraries=[Library(name="libfake.so", sha256=digest(b"library"))],
            path=dict(CPU),
        )
        return self.change(name, number, outcome)


def build(label: str, numbers: Numbers | None = None, change: Change = same, **more: JSON) -> Build:
    """Return a fake build."""
    entry: dict[str, JSON] = {
        "source": "binary",
        "name": f"binary:{label}",
        "commit": None,
        "archive": digest(b"fake"),
        "options": [],
    }
    return Build(
        entry=BuildEntry(**{"label": label, "restarts": True, **entry, **more}),
        rows="logprobs",
        runner=FakeRunner(numbers or plain(), change),
    )


def asset(family: str, quantization: str = "f32") -> Asset:
    """Return a model that only its name stands for."""
    prompts = {}
    for name, prompt in PLAN.prompts.items():
        ids = [3 + (7 * place + len(family)) % 500 for place in range(prompt.tokens)]
        prompts[name] = (ids, prompt.filled(ORDER.registered))
    model = ModelFile(name=f"tiny-{family}-{quantization}", path=Path("nowhere"), sha256="0" * 64)
    return Asset(model, family, quantization, VOCABULARY, prompts)


def record(folder: Path, *builds: Build, families: Sequence[str] = ("llama", "gemma2"), **more: JSON) -> JSON:
    """Compare builds on one model of each family, `FAMILY QUANTIZATION` or F32, and return the findings."""
    assets = [asset(*family.split()) for family in families]
    sealed = capture_identity(ORDER, builds, assets, folder, **{"not_run": {}, "report": lambda _: None, **more})
    assert sealed is not None
    return derive_identity(folder)


def failed(kind: str, message: str = "it ended") -> Outcome:
    """Return what comes of a process that fails."""
    return Outcome(failure=CaptureFailure(kind=kind, message=message))  # type: ignore[arg-type]


def verdicts(findings: JSON, pair: int = 0) -> dict[str, str]:
    """Return each family's verdict."""
    return {family["family"]: family["verdict"] for family in findings["pairs"][pair]["families"]}


def run_of(folder: Path) -> IdentityRun:
    """Open a record."""
    return IdentityRun.open(folder)


def verify(folder: Path, *arguments: str) -> tuple[int, JSON]:
    """Let the verifier look at a record: its exit code and its report."""
    command = [sys.executable, "-I", "-S", str(VERIFIER), "--json", *arguments, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["runs"][0]
