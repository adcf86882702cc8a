"""When requests start: paced solo trials and waves that are released together.

In go coroutines, out come their results in order. Pacing is asyncio-throttle's; inside a wave it is off, since its
polling would smear the barrier. Nothing here knows what is sent, or what is held back until the release.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from asyncio_throttle.throttler import Throttler

__all__ = ["Hold", "Pace", "wave"]

Hold = Callable[[], Awaitable[None]]
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


async def wave(jobs: Sequence[Callable[[Hold], Awaitable[Result]]], *, delays_ns: Sequence[int]) -> list[Result]:
    """Release all jobs at once from one barrier, each after its own delay, and wait for all.

    Args:
        jobs: what each member does; it awaits what it is given when all but its last step is done. The barrier opens
            when every member waits there or has ended.
        delays_ns: nanoseconds after the release, one a job; 0 for together.

    Returns: the results in the order of the jobs.
    """
    loop = asyncio.get_running_loop()
    barrier = [loop.create_future() for _ in jobs]
    unready, released_ns = len(jobs), 0

    def release() -> None:
        nonlocal released_ns
        released_ns = time.monotonic_ns()
        for place in barrier:  # members go on in their own order, whoever was ready first
            if not place.done():
                place.set_result(None)

    async def member(job: Callable[[Hold], Awaitable[Result]], place: asyncio.Future[None], delay_ns: int) -> Result:
        ready = False

        def get_ready() -> None:
            nonlocal ready, unready
            if not ready:
                ready, unready = True, unready - 1
                if unready == 0:
                    loop.call_soon(release)

        async def hold() -> None:
            get_ready()
            await place
            if delay_ns:
                await asyncio.sleep(max(0.0, (released_ns + delay_ns - time.monotonic_ns()) / 1e9))

        try:
            return await job(hold)
        finally:
            get_ready()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(member(*one)) for one in zip(jobs, barrier, delays_ns, strict=True)]
    return [task.result() for task in tasks]
