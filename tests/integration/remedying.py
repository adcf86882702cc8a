"""A remedy in a test: a launcher that starts look-alikes, whose faults respond to settings, and a small plan.

In: which faults a look-alike has under which settings. Out: a sealed remedy with its findings, on which both programs
agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from audit.client import Address
from audit.errors import ServerError
from audit.fake import FakeSettings, FakeThread, Faults
from audit.remedy.catalogue import Setting, named
from audit.remedy.launcher import Known, Started
from audit.remedy.measure import measure
from audit.remedy.page import derive_remedy
from audit.remedy.plan import RemedyPlan
from audit.sitting import Target
from tests.integration.auditing import STEP_MS, Owner, compared, plan_of, verify

JSON = Any
FaultsOf = Callable[[frozenset[str]], dict[str, JSON]]
AIMS = ("concurrent_greedy_c4", "cross_batch_together", "cache_warm1", "cache_warm2")
DIGEST = "sha256:" + "5" * 64


@dataclasses.dataclass(frozen=True)
class Declared(Owner):
    """A look-alike with a line of its own."""

    argv: tuple[str, ...] = ()

    def declaration(self) -> dict[str, JSON]:
        """Return what the operator knows."""
        library = {"name": "libggml.so", "sha256": "ab" * 32}
        return {"argv": list(self.argv), "build": "fake", "libraries": [library], "model_sha256": "55" * 32}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeStarted:
    """A look-alike that runs."""

    target: Target
    memory: int

    def memory_bytes(self) -> int | None:
        """Return what it is said to take."""
        return self.memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeLauncher:
    """Starts look-alikes.

    Args:
        faults: which faults one has under these settings, by name; also `slots` and `step_ms`.
        unknown: settings that the build does not know.
        same: settings that change nothing.
        broken: settings under which it does not start, and what is said then.
    """

    faults: FaultsOf
    unknown: frozenset[str] = frozenset()
    same: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    message: str = "the server ended with code 1 while it started"
    model: str = "fake-512"
    model_sha256: str = DIGEST
    slots: int = 8
    threads: int = 1

    def line(self) -> list[str]:
        """Return what a look-alike without settings declares, with another port."""
        return ["llama-server", "-m", "fake", "--port", "0"]

    def known(self) -> Known:
        """Say what the look-alike understands."""
        return Known(build="fake", help={"help": "--no-repack"}, variables=frozenset({"GGML_CPU_TILED_MM"}))

    def understands(self, _known: Known, setting: Setting) -> bool:
        """Tell whether it understands a setting."""
        return setting.name not in self.unknown

    def differs(self, setting: Setting) -> bool:
        """Tell whether a setting changes anything."""
        return setting.name not in self.same

    @contextlib.contextmanager
    def start(self, settings: Sequence[Setting]) -> Iterator[Started]:
        """Start a look-alike."""
        names = frozenset(setting.name for setting in settings)
        if names & self.broken:
            raise ServerError(self.message)
        values = {"step_ms": STEP_MS, **self.faults(names)}
        own = {name: values.pop(name) for name in list(values) if name in FakeSettings.__dataclass_fields__}
        words = [word for setting in settings for word in setting.words]
        with FakeThread(FakeSettings(faults=Faults(**values), **own)) as fake:
            owner = Declared(fake, ("llama-server", "-m", "fake", "--port", "1", *words))
            target = Target(address=Address(label="fake-512", url=fake.url), owned=owner)
            yield FakeStarted(target=target, memory=(100 + len(names)) << 20)


def remedy_plan(*, rounds: int = 1, confirmed_max: int = 3, waves: int = 2, **more: JSON) -> RemedyPlan:
    """Return a small plan with one condition of each sort."""
    plan = plan_of(
        {"name": "concurrent_greedy", "prompts": ["a"], "levels": [4], "count": waves},
        {"name": "cross_batch_together", "prompts": ["a"], "neighbours": ["a", "b"]},
        {"name": "cache", "prompts": ["story"], "opener": "b"},
        **more,
    )
    return RemedyPlan.of(plan, rounds=rounds, confirmed_max=confirmed_max)


@dataclasses.dataclass(frozen=True)
class Remedied:
    """A sealed remedy, on which both programs agree."""

    folder: Path
    document: dict[str, JSON]
    said: list[str]

    def statuses(self, setting: str) -> dict[str, str]:
        """Return what a setting did, by condition."""
        row = next(row for row in self.document["settings"] if row["setting"] == setting)
        return {cell["condition"]: cell["status"] for cell in row["cells"]}

    def condition(self, name: str) -> dict[str, JSON]:
        """Return what is known of a condition."""
        found: dict[str, JSON] = next(one for one in self.document["conditions"] if one["condition"] == name)
        return found


def measured(
    folder: Path, faults: FaultsOf, *names: str, plan: RemedyPlan | None = None, budget_s: float | None = None,
    **more: JSON,
) -> Remedied:  # fmt: skip
    """Measure settings of look-alikes, and judge the record twice."""
    said: list[str] = []
    seal = measure(
        plan or remedy_plan(), FakeLauncher(faults=faults, **more), named(names), folder,
        perform=asyncio.run, say=said.append, budget_s=budget_s,
    )  # fmt: skip
    assert seal is not None
    document = derive_remedy(folder)
    agree(folder, document)
    return Remedied(folder, document, said)


def agree(folder: Path, document: dict[str, JSON]) -> None:
    """Let the verifier judge the record; it must say the same in every field, and exit alike."""
    code, report = verify(folder)
    assert report["contradictions"] == []
    assert report["findings"] == document
    assert code == (0 if document["sound"] else 3)


__all__ = ["AIMS", "FakeLauncher", "Remedied", "agree", "compared", "measured", "remedy_plan"]
