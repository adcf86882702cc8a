"""Faults: every point at which a switch of `Faults` acts on a running server.

In: what a clean server is about to do. Out: what this one does instead. One method is one point, and the rest of the
package knows nothing about single faults: a new fault is a field of `Faults` and a line in the point it acts at, or
one more point. What has to be remembered between points lives here, and dies with the process that it stands for.
"""

from dataclasses import replace

import numpy as np

from audit.fake.model import Row
from audit.fake.sampler import Sampling
from audit.fake.settings import Faults
from audit.fake.slot import Generation, Step

__all__ = ["FaultPoints"]

# Salts of the noise; a count of slots is added, since another batch shape is another rounding.
_SALT_CONCURRENT, _SALT_MIXED, _SALT_CACHED = 1 << 16, 1 << 17, 1 << 18


class FaultPoints:
    """The faults of one process.

    Args:
        faults: which switches are on.
        started: monotonic seconds at which the process started.
    """

    def __init__(self, faults: Faults, *, started: float) -> None:
        self._faults = faults
        self._started = started
        self._completed = 0
        self._ulp_moved = False

    def loading(self, now: float) -> bool:
        """Say whether the model still loads; `now` in monotonic seconds."""
        return now - self._started < self._faults.loading_s

    def slots_at_once(self, slots: int) -> int:
        """Return how many slots may be processed together."""
        return 1 if self._faults.serialized else slots

    def sampling(self, asked: Sampling) -> Sampling:
        """Return how a request is sampled, whatever its echo says."""
        if self._faults.seed_ignored:
            asked = replace(asked, seed=0)
        if self._faults.temperature_ignored:
            asked = replace(asked, temperature=0.0, samplers=("temperature",))
        return asked

    def model_seed(self, seed: int) -> int:
        """Return which model computes the next row."""
        after = self._faults.swap_after
        return seed + 1 if after is not None and self._completed >= after else seed

    def salt(self, generation: Generation, batch: list[Generation]) -> int:
        """Return which rounding noise moves the next row of a generation, 0 for none.

        Args:
            generation: the one whose row is computed.
            batch: all that take part in the same decode, itself included.
        """
        salt = 0
        if self._faults.jitter_concurrent and len(batch) > 1:
            salt += _SALT_CONCURRENT + len(batch)
        if self._faults.jitter_mixed_batch and any(other.prompt != generation.prompt for other in batch):
            salt += _SALT_MIXED + len(batch)
        if self._faults.jitter_cached and generation.cache_n:
            salt += _SALT_CACHED
        return salt

    def sent(self, generation: Generation, step: Step) -> Step:
        """Return a step as the event of a stream shows it."""
        if len(generation.steps) - 1 == generation.step_count_max // 2:
            return self._moved(generation, step)
        return step

    def completed(self, generation: Generation) -> list[Step]:
        """Count one more completion, and return its steps as the whole reply shows them."""
        steps = list(generation.steps)
        if steps and not generation.request.stream:
            middle = len(steps) // 2
            steps[middle] = self._moved(generation, steps[middle])
        self._completed += 1
        return steps

    def _moved(self, generation: Generation, step: Step) -> Step:
        """Return the step with its last reported logprob one ULP lower, if this is the completion to be hit."""
        n_probs = min(generation.request.n_probs, len(step.row.order))
        if self._faults.one_ulp != self._completed or self._ulp_moved or n_probs < 1:
            return step
        self._ulp_moved = True
        logprobs = step.row.logprobs.copy()
        last = step.row.order[n_probs - 1]
        logprobs[last] = np.nextafter(logprobs[last], np.float32(-np.inf))
        return replace(step, row=Row(logits=step.row.logits, logprobs=logprobs, order=step.row.order))
