"""Settings become a sealed record: one start of the server after another, each of which leaves an audit of its own.

First a start without any setting, which has to diverge. Then each setting is screened: one repeat of each condition
that diverged, again in the next round as long as nothing diverges. Pairs follow for conditions that no single setting
kept still. Then the best are confirmed with the whole plan, and after each of them comes a start without any setting
again, which has to diverge once more. What is decided on the way (who is screened again, who is confirmed) follows from
judging the starts that are sealed already; what is recorded are the starts, and what was not tried, and why.
"""

import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from audit.capture import capture
from audit.errors import DeterminismError, EvidenceError
from audit.machine import dependencies, machine, program, python
from audit.order import Order
from audit.record import End, Interrupt
from audit.remedy.catalogue import Setting, pairs_of
from audit.remedy.judge import Start, has_moved, judge_start
from audit.remedy.launcher import Launcher
from audit.remedy.past import Past
from audit.remedy.plan import RemedyPlan
from audit.remedy.record import ARMS, ArmLine, BuildLine, FailedLine, RemedyManifest, Role, Untried, UntriedLine
from audit.remedy.resume import Left, take_up
from audit.sitting import declared_by
from audit.store import Run, RunWriter
from audit.stream import FORMAT, canonical, digest

__all__ = ["Measuring", "measure"]

_SHOWN = "-"


class _StoppedError(Exception):
    """The user asked to stop."""


class Screened(NamedTuple):
    """What screening left of some settings: cells that never diverged, cells without a trial, the latest speed."""

    settings: tuple[Setting, ...]
    clean: tuple[str, ...]
    void: tuple[str, ...]
    per_second: float

    @property
    def names(self) -> list[str]:
        """The names of the settings."""
        return [setting.name for setting in self.settings]


@dataclass(kw_only=True)
class Measuring:
    """One remedy while it is measured.

    Args:
        plan: what is asked.
        launcher: starts the servers.
        settings: what is tried, in order.
        writer: the record.
        perform: runs a coroutine to its end.
        say: is told where the work is.
        stopped: is asked whether to stop.
        budget_s: seconds after which nothing more is begun; None for no end.
        past: what an earlier process of this record did, which is walked through and not done again.
    """

    plan: RemedyPlan
    launcher: Launcher
    settings: Sequence[Setting]
    writer: RunWriter
    perform: Callable[[Coroutine[Any, Any, str | None]], str | None]
    say: Callable[[str], None]
    stopped: Callable[[], bool]
    budget_s: float | None
    past: Past = field(default_factory=Past)
    begun_s: float = field(default_factory=time.monotonic)
    count: int = 0
    took_s: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        """Do all of it, but for the line that ends it."""
        usable = self._usable()
        before = self._start("before", (), self.plan.aims)
        aims = [aim for aim in self.plan.aims if before is not None and has_moved(before.cells[aim])]
        if before is None or not before.sound or not aims:
            self.say("without any setting nothing diverged that counts: there is nothing to remedy")
            return
        self.say(f"diverges without any setting: {', '.join(aims)}")
        screened = [self._screen((setting,), aims) for setting in usable]
        left = [aim for aim in aims if not any(aim in one.clean for one in screened if one is not None)]
        # A setting that serializes the requests does so beside any other.
        alive = [one.settings[0] for one in screened if one is not None and not set(left) <= set(one.void)]
        screened += [self._screen(pair, left) for pair in pairs_of(alive)] if left else []
        self._confirm([one for one in screened if one is not None and one.clean])

    def _usable(self) -> list[Setting]:
        """Ask the build, write down what it is, and return the settings that can be tried."""
        known = self.launcher.known()
        fact = canonical(known.help)
        self._write(BuildLine(build=known.build, help=digest(fact), variables=sorted(known.variables)))
        self.writer.put_fact(fact)
        usable = []
        for setting in self.settings:
            words = " ".join(setting.words)
            if not self.launcher.understands(known, setting):
                variable = bool(setting.environment)
                where = "occurs in no file of the build" if variable else "is nothing that the build says it knows"
                self._untried((setting,), "unknown variable" if variable else "unknown flag", f"{words} {where}")
            elif not self.launcher.differs(setting):
                self._untried((setting,), "as without it", f"{words} is what a server without any setting has")
            else:
                usable.append(setting)
        return usable

    def _screen(self, settings: tuple[Setting, ...], aims: Sequence[str]) -> Screened | None:
        """Screen settings round by round; None where no server started, or there was no time left."""
        names = [setting.name for setting in settings]
        if not self._in_time(names, like="screen", reserve_s=self.reserve_s()):
            self._untried(settings, "time", "the time was over before it was screened")
            return None
        asked, seen, void, per_second = list(aims), set[str](), set(aims), 0.0
        for number in range(self.plan.rounds):
            if not asked or (number and not self._again(names)):
                break
            start = self._start("screen", settings, asked)
            if start is None:
                return None
            asked = [aim for aim in asked if not has_moved(start.cells[aim])]
            void -= {aim for aim, cell in start.cells.items() if cell["usable"]}
            seen |= {aim for aim in asked if start.cells[aim]["verdict"] == "identical"}
            per_second = (start.together.entry() or {"per_second": 0.0})["per_second"]
        return Screened(settings, tuple(aim for aim in asked if aim in seen), tuple(void), per_second)

    def _confirm(self, candidates: Sequence[Screened]) -> None:
        """Confirm what keeps most cells still, by fewest settings, fastest first, each followed by a start without."""
        best = sorted(candidates, key=lambda one: (-len(one.clean), len(one.settings), -one.per_second))
        for at, one in enumerate(best):
            if at >= self.plan.confirmed_max:
                self._untried(one.settings, "confirmed enough", f"{self.plan.confirmed_max} others were confirmed")
            elif not self._in_time(one.names, like="before", reserve_s=self.took_s["before"]):
                self._untried(one.settings, "time", "the time was over before it was confirmed")
            elif self._start("confirm", one.settings, self.plan.aims) is not None:
                self._start("after", (), self.plan.aims)

    def _in_time(self, names: list[str], *, like: Role, reserve_s: float) -> bool:
        """Tell whether settings are begun with in time: as the record says, and behind its end as the clock does."""
        if self.past:
            return not self.past.untried(names)
        return self.time_for(like, reserve_s=reserve_s)

    def _again(self, names: list[str]) -> bool:
        """Tell whether settings are screened in one more round, by the record and then by the clock."""
        return self.past.screens(names) if self.past else self.time_for("screen", reserve_s=self.reserve_s())

    def time_for(self, role: str, *, reserve_s: float) -> bool:
        """Tell whether a start like the latest of a role would end in time, and leave a reserve."""
        if self.budget_s is None:
            return True
        spent_s = time.monotonic() - self.begun_s
        return spent_s + self.took_s.get(role, 0.0) + reserve_s <= self.budget_s

    def reserve_s(self) -> float:
        """Return what screening leaves: time to confirm, each with a start after it, but at most half of all."""
        return min(2 * self.plan.confirmed_max * self.took_s["before"], (self.budget_s or 0.0) / 2)

    def _untried(self, settings: Sequence[Setting], reason: Untried, words: str) -> None:
        names = [setting.name for setting in settings]
        self._write(UntriedLine(settings=names, reason=reason, words=words))
        self.say(f"not tried: {' and '.join(names)}: {words}")

    def _write(self, line: BuildLine | UntriedLine) -> None:
        """Append a line, unless the record has it already."""
        if self.past:
            self.past.meet(line)
        else:
            self.writer.append(line)

    def _start(self, role: Role, settings: Sequence[Setting], asked: Sequence[str]) -> Start | None:
        """Start a server, audit it, write the start down and judge it; None where there was no audit."""
        names = [setting.name for setting in settings]
        line = ArmLine(
            arm="-".join([f"{self.count:04}", role, *names]),
            role=role,
            settings=names,
            words=[" ".join(setting.words) for setting in settings],
            asked=list(asked),
            argv=[],
            environment={name: value for one in settings for name, value in one.environment.items()},
            seal="",
            memory_bytes=None,
        )
        self.count += 1
        words = " ".join(line.words) or "without any setting"
        self.say(f"{line.arm}: {words}" + (", as recorded" if self.past else ""))
        found = self.past.start(line) if self.past else self._started(line, settings)
        if found is None:
            return None
        line, self.took_s[role] = found
        run = Run.open(self.writer.folder / ARMS / line.arm)
        if run.seal != line.seal:
            raise EvidenceError(f"{run.folder} is not the audit whose seal the history names")
        start = judge_start(run, asked)
        self.say(f"  {_words(start)}" + ("; not sound" if role != "screen" and not start.sound else ""))
        return start

    def _started(self, line: ArmLine, settings: Sequence[Setting]) -> tuple[ArmLine, float] | None:
        """Start a server, audit it and write the start down; return its line and the seconds that it took."""
        if self.stopped():
            raise _StoppedError
        begun_s = time.monotonic()
        folder = self.writer.folder / ARMS / line.arm
        plan = self.plan.asked(line.role, line.asked)
        order = Order(plan=plan, registered=digest(plan.to_bytes()))
        try:
            with self.launcher.start(settings) as started:
                declared = declared_by(started.target) or {}
                seal = self.perform(
                    capture(order, [started.target], folder, report=lambda _: None, stopped=self.stopped)
                )
                memory = started.memory_bytes()
        except DeterminismError as error:
            shutil.rmtree(folder, ignore_errors=True)
            self.writer.append(FailedLine(role=line.role, settings=line.settings, message=error.message))
            self.say(f"{line.arm}: failed: {error.message}")
            return None
        if seal is None:
            raise _StoppedError
        argv = list(declared.get("argv", []))
        line = msgspec.structs.replace(line, argv=argv, seal=seal, memory_bytes=memory)
        self.writer.append(line)
        self.writer.sync()
        return line, time.monotonic() - begun_s


def _words(start: Start) -> str:
    cells = [
        f"{name} {cell['verdict']} ({cell['by_wave']['divergent']}/{cell['by_wave']['n']})"
        for name, cell in start.cells.items()
    ]
    speeds = [one.entry() for one in (start.solo, start.together)]
    shown = " and ".join(_SHOWN if one is None else f"{one['per_second']:.1f}" for one in speeds)
    return f"{', '.join(cells)}; {shown} tokens/s alone and at once"


def measure(
    plan: RemedyPlan | None,
    launcher: Launcher,
    settings: Sequence[Setting],
    folder: Path,
    *,
    perform: Callable[[Coroutine[Any, Any, str | None]], str | None],
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
    budget_s: float | None = None,
) -> str | None:
    """Measure settings, and seal the record.

    Args:
        plan: what is asked of each start; None to take up the unsealed remedy in the folder, which has its plan in it.
        launcher: starts the servers.
        settings: what is tried, in order.
        folder: the run folder, which must not exist or be empty, or else be that of the remedy to take up.
        perform: runs a coroutine to its end.
        say: is told where the work is.
        stopped: is asked before each start, and within its audit, whether the user wants to stop.
        budget_s: seconds from now after which nothing more is begun; None for no end.

    Returns: the digest of the seal, or None where it was stopped (the record stays unsealed).
    Raises: UsageError, ServerError before anything was started; of a record that is taken up also EvidenceError.
    """
    writer, plan, past = take_up(folder, launcher, say) if plan is None else _begun(plan, launcher, folder)
    try:
        if past.ended:
            return writer.seal()
        measuring = Measuring(
            plan=plan,
            launcher=launcher,
            settings=settings,
            writer=writer,
            perform=perform,
            say=say,
            stopped=stopped,
            budget_s=budget_s,
            past=past,
        )
        try:
            measuring.run()
            past.end()
        except (_StoppedError, KeyboardInterrupt):
            writer.append(Interrupt(reason="stopped by the user"))
            return None
        writer.append(End(reason="finished"))
        return writer.seal()
    finally:
        writer.close()


def _begun(plan: RemedyPlan, launcher: Launcher, folder: Path) -> Left:
    """Make the folder of a new remedy and begin its record."""
    writer = RunWriter(folder)
    try:
        writer.begin(_manifest(plan, launcher), plan=plan.to_bytes(), registration={})
    except BaseException:
        writer.close()
        raise
    return Left(writer, plan, Past())


def _manifest(plan: RemedyPlan, launcher: Launcher) -> RemedyManifest:
    named = digest(plan.to_bytes())
    return RemedyManifest(
        format=FORMAT,
        kind="remedy",
        plan=named,
        registered=named,
        registration=None,
        program=program(),
        dependencies=dependencies(),
        python=python(),
        machine=machine(),
        model=launcher.model,
        model_sha256=launcher.model_sha256,
        slots=launcher.slots,
        threads=launcher.threads,
    )
