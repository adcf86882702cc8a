"""When requests start: paced solo trials and waves that are released together.

In go coroutines, out come their results in order. Pacing is asyncio-throttle's; inside a wave it is off, since its
polling would smear the barrier. Nothing here knows what is sent.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from asyncio_throttle.throttler import Throttler

__all__ = ["Pace", "wave"]

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


async def wave(jobs: Sequence[Callable[[], Awaitable[Result]]], *, delays_ns: Sequence[int]) -> list[Result]:
    """Release all jobs at once from one barrier, each after its own delay, and wait for all.

    Args:
        jobs: what each member does.
        delays_ns: nanoseconds after the release, one a job; 0 for together.

    Returns: the results in the order of the jobs.
    """
    barrier = asyncio.Event()
    released_ns = 0

    async def member(job: Callable[[], Awaitable[Result]], delay_ns: int) -> Result:
        await barrier.wait()
        if delay_ns:
            await asyncio.sleep(max(0.0, (released_ns + delay_ns - time.monotonic_ns()) / 1e9))
        return await job()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(member(job, delay)) for job, delay in zip(jobs, delays_ns, strict=True)]
        await asyncio.sleep(0)
        released_ns = time.monotonic_ns()
        barrier.set()
    return [task.result() for task in tasks]
