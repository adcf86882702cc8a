"""When requests start: paced solo trials and waves that are released together.

In go coroutines, out come their results in order. Pacing is asyncio-throttle's; inside a wave it is off, since its
polling would smear the barrier. Nothing here knows what is sent, or what is held back until the release.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from asyncio_throttle.throttler import Throttler

__all__ = ["Hold", "Pace", "wave"]

# Awaited with the last step of what a member does, which is made at the release.
Hold = Callable[[Callable[[], None]], Awaitable[None]]
Result = TypeVar("Result")


class Pace:
    """Lets at most `per_second` solo trials start in a second."""

    def __init__(self, per_second: float) -> None:
        """Prepare.

        Args:
            per_second: starts a second; below 1 it is one start in so many seconds.
        """
        count = max(1, int(per_second))
        self._throttler = Throttler(rate_limit=count, period=count / per_second, retry_interval=0.005)

    async def wait(self) -> None:
        """Return when the next solo trial may start."""
        async with self._throttler:
            return


class _Barrier:
    """Where the members of a wave wait; it opens once, when every one of them is ready or has ended."""

    def __init__(self, members: int) -> None:
        self._unready = set(range(members))
        self._last_steps: dict[int, Callable[[], None]] = {}
        self._delays_ns: dict[int, int] = {}

    def ready(self, member: int) -> None:
        if member in self._unready:
            self._unready.remove(member)
            if not self._unready:
                asyncio.get_running_loop().call_soon(self._release)

    async def wait(self, member: int, delay_ns: int, last_step: Callable[[], None]) -> None:
        """Return when the member's last step has been made, or raise what it raised."""
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def make() -> None:
            if made.done():  # the member has given up
                return
            try:
                last_step()
            except Exception as error:  # noqa: BLE001 - the member's, which awaits it
                made.set_exception(error)
            else:
                made.set_result(None)

        self._last_steps[member], self._delays_ns[member] = make, delay_ns
        self.ready(member)
        await made

    def _release(self) -> None:
        for member in sorted(self._last_steps):
            if self._delays_ns[member]:
                asyncio.get_running_loop().call_later(self._delays_ns[member] / 1e9, self._last_steps[member])
            else:
                self._last_steps[member]()


async def wave(jobs: Sequence[Callable[[Hold], Awaitable[Result]]], *, delays_ns: Sequence[int]) -> list[Result]:
    """Release all jobs at once from one barrier, each after its own delay, and wait for all.

    Args:
        jobs: what each member does; it awaits what it is given, with its last step, when all but that is done. The last
            steps of those that start together are made one right after the other, in the order of the jobs, before
            any member goes on.
        delays_ns: nanoseconds after the release, one a job; 0 for together.

    Returns: the results in the order of the jobs.
    """
    barrier = _Barrier(len(jobs))

    async def member(number: int, job: Callable[[Hold], Awaitable[Result]], delay_ns: int) -> Result:
        try:
            return await job(partial(barrier.wait, number, delay_ns))
        finally:
            barrier.ready(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(member(*one)) for one in zip(range(len(jobs)), jobs, delays_ns, strict=True)]
    return [task.result() for task in tasks]
