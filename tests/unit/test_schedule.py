"""A wave is released at once, each member after its own delay; solo trials are paced."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from audit.schedule import Hold, Pace, wave


def test_all_members_start_before_any_ends() -> None:
    """A member that waits for all others ends: nobody is held back until another is done."""

    async def run() -> list[int]:
        started: list[int] = []
        everybody = asyncio.Event()

        async def member(number: int, hold: Hold) -> int:
            await hold(lambda: None)
            started.append(number)
            if len(started) == 64:
                everybody.set()
            await everybody.wait()
            return number

        jobs: list[Callable[[Hold], Any]] = [lambda hold, number=number: member(number, hold) for number in range(64)]  # type: ignore[misc]
        async with asyncio.timeout(10):
            found = await wave(jobs, delays_ns=[0] * 64)
        assert started == list(range(64))
        return found

    assert asyncio.run(run()) == list(range(64))


def test_no_member_goes_on_before_all_are_ready() -> None:
    """One that takes longer to get ready holds back the others; one that ends before it is ready does not."""

    async def run() -> list[str]:
        told: list[str] = []

        async def member(name: str, turns: int, hold: Hold) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            told.append(f"{name} ready")
            await hold(lambda: told.append(f"{name} leaves"))
            told.append(f"{name} gone")

        async def ended(_hold: Hold) -> None:
            told.append("ended")

        jobs: list[Callable[[Hold], Any]] = [lambda h: member("a", 0, h), ended, lambda h: member("b", 9, h)]
        async with asyncio.timeout(10):
            await wave(jobs, delays_ns=[0, 0, 0])
        return told

    assert asyncio.run(run()) == ["a ready", "ended", "b ready", "a leaves", "b leaves", "a gone", "b gone"]


def test_a_wave_of_which_nobody_gets_ready_ends() -> None:
    """Nobody waits for a release that nobody needs."""

    async def failed(_hold: Hold) -> str:
        return "failed"

    async def run() -> list[str]:
        async with asyncio.timeout(10):
            return await wave([failed, failed], delays_ns=[0, 1_000_000])

    assert asyncio.run(run()) == ["failed", "failed"]


def test_delays_order_the_starts_and_results_keep_the_order_of_the_jobs() -> None:
    """Each member starts no earlier than its delay after the release."""
    delays_ns = [30_000_000, 0, 10_000_000, 20_000_000]

    async def run() -> tuple[list[int], list[tuple[int, int]]]:
        starts: list[tuple[int, int]] = []

        async def member(number: int, hold: Hold) -> int:
            await hold(lambda: starts.append((number, time.monotonic_ns())))
            return number

        jobs: list[Callable[[Hold], Any]] = [lambda hold, number=number: member(number, hold) for number in range(4)]  # type: ignore[misc]
        return await wave(jobs, delays_ns=delays_ns), starts

    results, starts = asyncio.run(run())
    assert results == [0, 1, 2, 3]
    assert [number for number, _ in starts] == [1, 2, 3, 0]
    released_ns = starts[0][1]
    # The undelayed member starts some microseconds after the release that the others count from.
    assert all(at_ns - released_ns >= delays_ns[number] - 2_000_000 for number, at_ns in starts)


def test_a_delay_for_every_job() -> None:
    """Jobs and delays that do not match are a bug of the caller."""

    async def nothing(_hold: Hold) -> None:
        """Do nothing."""

    async def run() -> None:
        await wave([nothing, nothing], delays_ns=[0])

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert caught.group_contains(ValueError, match="shorter")


def test_a_member_that_breaks_breaks_the_wave() -> None:
    """No result is made up for it, and no member runs on."""

    async def run() -> None:
        async def broken(_hold: Hold) -> None:
            raise RuntimeError("broken")

        async def endless(hold: Hold) -> None:
            await hold(lambda: None)
            await asyncio.Event().wait()

        await wave([endless, broken], delays_ns=[0, 0])

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert caught.group_contains(RuntimeError, match="broken")


def test_a_last_step_that_breaks_breaks_its_member_and_the_others_leave() -> None:
    """The release goes on to the next, and nobody waits for what will not come."""

    async def run() -> tuple[list[str], str]:
        left: list[str] = []

        async def broken(hold: Hold) -> str:
            try:
                await hold(lambda: left.remove("whole"))
            except ValueError as error:
                return str(error)
            return "not broken"

        async def whole(hold: Hold) -> str:
            await hold(lambda: left.append("whole"))
            return "whole"

        async with asyncio.timeout(10):
            told, *_ = await wave([broken, whole], delays_ns=[0, 0])
        return left, told

    assert asyncio.run(run()) == (["whole"], "list.remove(x): x not in list")


def test_a_member_that_gave_up_leaves_no_more() -> None:
    """Its last step is not made, at the release or after its delay."""

    async def run() -> list[str]:
        left: list[str] = []

        async def impatient(name: str, hold: Hold) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hold(lambda: left.append(name)), 0.01)

        async def late(hold: Hold) -> None:
            await asyncio.sleep(0.05)
            await hold(lambda: left.append("late"))
            await asyncio.sleep(0.02)

        async with asyncio.timeout(10):
            await wave([lambda h: impatient("a", h), lambda h: impatient("b", h), late], delays_ns=[0, 1_000_000, 0])
        return left

    assert asyncio.run(run()) == ["late"]


@pytest.mark.parametrize(("per_second", "starts", "least_s"), [(20.0, 21, 1.0), (10.5, 11, 0.95), (2.0, 2, 0.0)])
def test_no_more_starts_a_second_than_asked_for(per_second: float, starts: int, least_s: float) -> None:
    """Waiting takes at least as long as the pace says; far longer would be another pace."""

    async def run() -> float:
        pace, begun = Pace(per_second), time.monotonic()
        for _ in range(starts):
            await pace.wait()
        return time.monotonic() - begun

    took_s = asyncio.run(run())
    assert least_s <= took_s + 0.01 < 10.0
