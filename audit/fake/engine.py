"""Engine: slots, the queue in front of them, and the loop that decodes one batch after another.

In: tasks. Out: events on each task's queue, counters, and times by the monotonic clock. One turn of the loop is one
`llama_decode` call: one token for every slot that generates, then prompt tokens of the others up to the batch size.
Prompts are cached a slot: the longest common prefix is reused, but the last prompt token is always evaluated. What
llama-server caches in host memory, shifts or speculates is not imitated.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic

from audit.fake.counters import Counters
from audit.fake.faults import FaultPoints
from audit.fake.model import ToyModel
from audit.fake.refusal import RefusalError
from audit.fake.request import Request
from audit.fake.sampler import choose, generator
from audit.fake.settings import FakeSettings
from audit.fake.slot import Cancelled, Finished, Generation, Slot, Stepped, Task
from audit.fake.vocabulary import EOS, Vocabulary

__all__ = ["Engine"]

_UBATCHES_PER_BATCH = 4  # llama-server's defaults: 2048 tokens a decode, 512 a physical batch
_SIMILARITY_MIN = 0.1  # share of a prompt that a slot must hold to be preferred (--slot-prompt-similarity)
_SLEEP_S_MIN = 1e-3  # a shorter sleep would take this long anyway, so what is shorter is carried over


class Engine:
    """The one who computes.

    Args:
        settings: what this server is.
        vocabulary: its pieces.
        model: its numbers.
        faults: the points where something may go wrong.
    """

    def __init__(self, settings: FakeSettings, vocabulary: Vocabulary, model: ToyModel, faults: FaultPoints) -> None:
        self.counters = Counters()
        self.slots = [Slot(index) for index in range(settings.slots)]
        self._settings = settings
        self._vocabulary = vocabulary
        self._model = model
        self._faults = faults
        self._deferred: deque[Task] = deque()
        self._wake = asyncio.Event()
        self._task_count = 0
        self._due = 0.0

    @property
    def processing(self) -> int:
        """Count of slots in use."""
        return sum(slot.running is not None for slot in self.slots)

    @property
    def deferred(self) -> int:
        """Count of tasks that wait for a slot."""
        return len(self._deferred)

    def submit(self, request: Request, gone: Callable[[], bool], *, ordinal: int) -> Task:
        """Queue a request; `gone` is asked once a decode whether its client is still there."""
        task = Task(id=self._task_count, request=request, gone=gone, ordinal=ordinal)
        self._task_count += 1
        self._deferred.append(task)
        self._wake.set()
        return task

    async def run(self) -> None:
        """Decode for ever; cancel the coroutine to stop."""
        while True:
            self._drop_gone()
            self._admit()
            busy = [slot for slot in self.slots if slot.running is not None]
            if busy:
                await self._decode(busy)
            else:
                self._due = 0.0
                self._wake.clear()
                await self._wake.wait()

    def _drop_gone(self) -> None:
        """Free the slots and places in the queue of clients that went away."""
        for task in [task for task in self._deferred if task.gone()]:
            self._deferred.remove(task)
            task.events.put_nowait(Cancelled())
        for slot in self.slots:
            if slot.running is not None and slot.running.task.gone():
                task = slot.running.task
                self._release(slot)
                task.events.put_nowait(Cancelled())

    def _admit(self) -> None:
        """Give free slots to waiting tasks, first come first served; one whose slot is busy lets others pass."""
        free = self._faults.slots_at_once(len(self.slots)) - self.processing
        for task in list(self._deferred):
            if free <= 0:
                break
            slot = self._slot_for(task.request)
            if slot is not None:
                self._deferred.remove(task)
                free -= self._start(slot, task)
        for task in self._deferred:
            task.waited = True

    def _slot_for(self, request: Request) -> Slot | None:
        """Return the slot that a request asks for or fits best, None if it has to wait."""
        if request.slot != -1:
            slot = self.slots[request.slot % len(self.slots)]
            return slot if slot.running is None else None
        idle = [slot for slot in self.slots if slot.running is None]
        if not idle:
            return None
        best = max(idle, key=lambda slot: slot.prefix(request.prompt))
        if best.prefix(request.prompt) > _SIMILARITY_MIN * len(request.prompt):
            return best
        # Of slots that nobody has used yet the last one is taken, as there.
        return min(reversed(idle), key=lambda slot: slot.used_s)

    def _start(self, slot: Slot, task: Task) -> bool:
        """Begin a task in a slot, and say whether it occupies it: an empty prompt is over at once."""
        request = task.request
        sampling = self._faults.sampling(request.sampling)
        reusable = slot.prefix(request.prompt) if request.cache_prompt else 0
        generation = Generation(
            task,
            sampling=sampling,
            random=generator(sampling.seed),
            cache_n=max(0, min(reusable, len(request.prompt) - 1)),
            step_count_max=int(
                min(
                    max(1, request.n_predict) if request.n_predict >= 0 else inf,
                    self._settings.ctx_per_slot - len(request.prompt),
                )
            ),
        )
        if not request.prompt:
            finished = Finished(generation=generation, slot_id=slot.index, tokens_cached=slot.fill, steps=[])
            task.events.put_nowait(finished)
            return False
        self._faults.begin(generation, slot, alone=not self.processing)
        slot.running = generation
        return True

    async def _decode(self, busy: list[Slot]) -> None:
        """Do one decode: fill the batch, let its time pass, take one token for every slot whose prompt is done."""
        room = _UBATCHES_PER_BATCH * self._settings.ubatch
        batch: list[tuple[Slot, Generation]] = []
        prompt_tokens = 0
        now = monotonic()
        # Slots that generate come first, as there.
        for slot in sorted(busy, key=lambda slot: not (slot.running and slot.running.steps)):
            generation = slot.running
            if generation is None or not room:
                continue
            count = 1 if generation.steps else min(room, len(generation.prompt) - generation.prompt_done)
            if not generation.steps:
                generation.prompt_started_s = generation.prompt_started_s or now
                generation.prompt_done += count
                prompt_tokens += count
            room -= count
            batch.append((slot, generation))
        await self._spend(self._settings.step_ms + prompt_tokens * self._settings.prefill_ms_per_token)
        if overflow := self._faults.overflows(sum(self._held(generation) for _, generation in batch)):
            for slot, generation in batch:
                self._refuse(slot, generation, overflow)
            return
        self.counters.add_decode(busy=len(busy))
        self.counters.tokens_max = max(self.counters.tokens_max, *(self._held(generation) for _, generation in batch))
        generations = [generation for _, generation in batch]
        for slot, generation in batch:
            if generation.prompt_done == len(generation.prompt):
                self._step(slot, generation, generations)

    @staticmethod
    def _held(generation: Generation) -> int:
        """Count the tokens of a sequence that have been decoded."""
        return generation.prompt_done + len(generation.steps)

    async def _spend(self, ms: float) -> None:
        """Let the time of one decode pass; what is too short to sleep adds up until it is not."""
        now = monotonic()
        # A sleep that took too long is made up for, as long as there is work; time without work is not.
        self._due = (max(self._due, now - _SLEEP_S_MIN) if self._due else now) + ms / 1e3
        delay = self._due - now
        await asyncio.sleep(delay if delay >= _SLEEP_S_MIN else 0)

    def _step(self, slot: Slot, generation: Generation, batch: list[Generation]) -> None:
        """Take one token for one slot, and tell its task."""
        now = monotonic()
        if not generation.steps:
            generation.prompt_ms = _ms(now - generation.prompt_started_s)
            generation.predicted_started_s = now
            self.counters.add_prompt(generation.prompt_n, generation.cache_n, generation.prompt_ms)
        allowed = generation.forced
        if allowed is not None and not self._admissible(allowed, generation):
            self._refuse(slot, generation, self._empty_grammar())
            return
        if broken := self._faults.breaks(generation):
            self._refuse(slot, generation, broken)
            return
        row = self._model.row(
            self._faults.context(generation),
            seed=self._faults.model_seed(generation, self._settings.seed),
            salt=self._faults.salt(generation, batch),
        )
        row = self._faults.row(row, generation)
        choice = choose(row, generation.sampling, generation.random, allowed=allowed)
        step = generation.take(choice, row, self._vocabulary, ctx=self._settings.ctx_per_slot)
        # The first token costs no generation time of its own; the server never reports less than a microsecond.
        generation.predicted_ms = max(1e-3, _ms(now - generation.predicted_started_s))
        events = generation.task.events
        if generation.request.stream:
            sent = self._faults.sent(generation, step)
            events.put_nowait(Stepped(generation=generation, step=sent, count=len(generation.steps)))
        if generation.stop_type != "none":
            self._release(slot)
            steps = self._faults.completed(generation)
            finished = Finished(generation=generation, slot_id=slot.index, tokens_cached=slot.fill, steps=steps)
            events.put_nowait(finished)

    def _admissible(self, token: int, generation: Generation) -> bool:
        banned = (token, -inf) in generation.sampling.bias
        return token < self._vocabulary.size and not (banned and token == EOS)

    def _empty_grammar(self) -> RefusalError:
        """Return how a grammar that admits nothing ends: llama-server trips over the last token of its vocabulary."""
        last = self._vocabulary.size - 1
        piece = f"{self._vocabulary.pieces[last]} ({last})"
        return RefusalError(500, f"got exception: Unexpected empty grammar stack after accepting piece: {piece}")

    def _refuse(self, slot: Slot, generation: Generation, refusal: RefusalError) -> None:
        """End a generation with an error."""
        self._release(slot)
        generation.task.events.put_nowait(refusal)

    def _release(self, slot: Slot) -> None:
        """Free a slot; what it generated counts even if nobody waits for it any more."""
        if slot.running is not None:
            self.counters.add_prediction(len(slot.running.steps), slot.running.predicted_ms)
            self._faults.end(slot.running, slot)
        slot.release(monotonic())


def _ms(seconds: float) -> float:
    """Return milliseconds in whole microseconds, the resolution of the server's clock."""
    return round(seconds * 1e6) / 1e3
