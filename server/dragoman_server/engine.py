"""The loop that decodes: one thread a model, with plain data going in and out.

Callers live on the event loop; the model lives in the engine's thread. A lock guards the scheduler between them and is
never held while the model runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from dragoman_model.plan import BatchOutput, Plan
from dragoman_server.errors import CallError, EngineGoneError, InternalError, QueueFullError
from dragoman_server.heartbeat import Heartbeat
from dragoman_server.logs import describe_exception, log_event
from dragoman_server.request import Call
from dragoman_server.room import QueueState, Room
from dragoman_server.scheduler import Scheduler
from dragoman_server.sentences import Outcome, Result, SentenceProgress

logger = logging.getLogger(__name__)

# So many failed steps in a row are no bad luck: a device that is gone fails every one, and only a new process helps.
MAX_FAILED_STEPS = 5
# How long to wait for one that was told to stop. A step takes far less, and a device that hangs must keep nobody from ending.
JOIN_SECONDS = 5.0
# How often it gives a sign of life without work.
_IDLE_TURN_SECONDS = 0.5


class Batch(Protocol):
    """What the engine asks of ``dragoman_model.batch.RunningBatch``."""

    def run(self, plan: Plan) -> BatchOutput:
        """Carries out a plan and decodes one step."""
        ...

    def clear(self) -> None:
        """Forgets every row."""
        ...


class Engine:
    """Runs one model's calls, sentences of all of them together.

    Args:
        name: Of the model, for the log and the thread.
        batch: The running batch; only the engine's thread touches it.
        scheduler: Decides what each step runs.
        num_threads: Threads that torch may use for one operation.
        clock: Seconds that only grow; the scheduler's own clock.
        on_failure: Called on the event loop when the loop itself breaks and no call will be worked on any more.
        on_queue_change: Called with how the queue stands whenever that may have changed, on whichever thread changed it.
        heartbeat: Beats at each step and, without work, twice a second.

    Attributes:
        heartbeat: The same.
        room: Of the queue, for calls that are yet to be prepared.
    """

    def __init__(
        self,
        name: str,
        batch: Batch,
        scheduler: Scheduler,
        *,
        num_threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[], None] | None = None,
        on_queue_change: Callable[[QueueState], None] | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.heartbeat = heartbeat or Heartbeat(clock)
        # Without the lock: until it is asked again the engine can only make more room.
        self.room = Room(scheduler.limits, scheduler.queue_state)
        self._batch = batch
        self._scheduler = scheduler
        self._num_threads = num_threads
        self._on_failure = on_failure
        self._on_queue_change = on_queue_change
        self._changed = threading.Condition()
        self._futures: dict[int, asyncio.Future[tuple[Result, ...]]] = {}
        self._listeners: dict[int, Callable[[SentenceProgress], None]] = {}
        self._bulk_line = asyncio.Lock()  # so that bulk calls that wait for room keep their order
        self._room_came = asyncio.Event()
        self._wants_room = False
        self._stopped_by: CallError | None = None
        self._failed = False
        self._num_failed_steps = 0  # since the last that succeeded
        self._thread = threading.Thread(target=self._run, name=f"engine {name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether it takes calls, though it may hang over one; once False it stays so."""
        return self._thread.is_alive() and not self._failed and self._stopped_by is None

    @property
    def has_failed(self) -> bool:
        """Whether it broke, so that no call will be worked on any more; costs nothing."""
        return self._failed

    def start(self) -> None:
        """Starts the thread; called on the event loop that will submit calls."""
        self._event_loop = asyncio.get_running_loop()
        self.heartbeat.beat()
        self._thread.start()

    def stop(self, error: CallError) -> None:
        """Ends every call with ``error``, and the thread after its present step, for which `join` waits."""
        with self._changed:
            self._stopped_by = error
            self._scheduler.fail_all(error)
            outcomes = self._scheduler.take_outcomes()
            self._changed.notify()
        self._resolve(outcomes)
        self._room_came.set()  # who waits for it learns how things stand

    def join(self, seconds: float) -> None:
        """Waits for the thread to end after `stop`, but for one that hangs no longer than so many seconds."""
        self._thread.join(timeout=seconds)

    def check_running(self) -> None:
        """Passes while calls are worked on.

        Raises:
            EngineGoneError: None will be any more.
            CallError: It was stopped; the error is the one that it was stopped with.
        """
        if self._stopped_by is not None:
            raise self._stopped_by
        if self._failed:
            raise EngineGoneError(self.name)

    async def submit(
        self, call: Call, on_progress: Callable[[SentenceProgress], None] | None = None
    ) -> tuple[Result, ...]:
        """Returns a result for each sentence of the call; cancelling this cancels the call.

        Args:
            call: Its work.
            on_progress: Called on the event loop with what is sure of a sentence, where the call reports it; of every
                sentence last that it is complete, before this returns.

        Raises:
            QueueFullError: Its sentences don't all fit into the queue.
            DeadlineUnreachableError: They would wait for longer than its deadline lets them.
            DeadlineError: Its deadline passed first.
            InternalError: The model failed.
            EngineGoneError: It did so before, for good.
            CallError: The engine was stopped; the error is the one that it was stopped with.
        """
        future = self._queue(call)
        if on_progress is not None:
            self._listeners[call.id] = on_progress
        return await future

    async def submit_bulk(self, call: Call) -> asyncio.Future[tuple[Result, ...]]:
        """Queues a call as soon as there is room and returns what its results come in; cancelling that cancels the call.

        Of several that wait for room the first comes first.

        Raises:
            CallError: As for ``submit``, but for a full queue.
        """
        async with self._bulk_line:
            while True:
                try:
                    return self._queue(call)
                except QueueFullError:
                    await self._room_came.wait()

    def _queue(self, call: Call) -> asyncio.Future[tuple[Result, ...]]:
        with self._changed:
            self.check_running()
            self._room_came.clear()
            self._wants_room |= call.stream is not None
            self._scheduler.add(call)
            self._publish()
            self._changed.notify()
        future: asyncio.Future[tuple[Result, ...]] = self._event_loop.create_future()
        future.add_done_callback(lambda _: self._forget(call, future))
        self._futures[call.id] = future
        return future

    def _forget(self, call: Call, future: asyncio.Future[tuple[Result, ...]]) -> None:
        del self._futures[call.id]
        self._listeners.pop(call.id, None)
        if future.cancelled():
            self._cancel(call)

    def _cancel(self, call: Call) -> None:
        with self._changed:
            self._scheduler.cancel(call.id)
            self._publish()
            self._changed.notify()
        self._room_came.set()

    def _publish(self) -> None:
        if self._on_queue_change is not None:
            self._on_queue_change(self._scheduler.queue_state())

    def _run(self) -> None:
        torch.set_num_threads(self._num_threads)
        try:
            while self._step():
                pass
        except Exception as error:
            # A fault in the loop itself, or a model that no longer runs: nothing can be trusted any more. /healthz turns
            # red, so that whoever runs this starts it anew.
            log_event(
                logger, logging.CRITICAL, "engine stopped", model=self.name, **describe_exception(error)
            )
            with self._changed:
                self._failed = True
                self._scheduler.fail_all(InternalError())
                outcomes = self._scheduler.take_outcomes()
            self._deliver(outcomes, room=True)
            if self._on_failure is not None and not self._event_loop.is_closed():
                self._event_loop.call_soon_threadsafe(self._on_failure)

    def _step(self) -> bool:
        self.heartbeat.beat()
        with self._changed:
            while self._stopped_by is None and not self._scheduler.has_work:
                self._changed.wait(_IDLE_TURN_SECONDS)
                self.heartbeat.beat()
            if self._stopped_by is not None:
                return False
            plan = self._scheduler.schedule()
            self._publish()
            outcomes = self._scheduler.take_outcomes()
            room, self._wants_room = self._wants_room, False
        self._deliver(outcomes, room=room)
        try:
            output = self._batch.run(plan)
        except Exception as error:
            self._fail_batch(error)
            self._num_failed_steps += 1
            if self._num_failed_steps == MAX_FAILED_STEPS:
                raise
            return True
        self._num_failed_steps = 0
        with self._changed:
            self._scheduler.update(output)
            self._publish()
            outcomes = self._scheduler.take_outcomes()
            progress = self._scheduler.take_progress()
        self._deliver(outcomes, progress)
        return True

    def _fail_batch(self, error: Exception) -> None:
        with self._changed:
            self._batch.clear()
            self._scheduler.fail_running(InternalError())
            self._publish()
            outcomes = self._scheduler.take_outcomes()
        log_event(
            logger,
            logging.ERROR,
            "model step failed",
            model=self.name,
            request_ids=",".join(outcome.call.request_id for outcome in outcomes),
            **describe_exception(error),
        )
        self._deliver(outcomes)

    def _deliver(
        self, outcomes: Sequence[Outcome], progress: Sequence[SentenceProgress] = (), *, room: bool = False
    ) -> None:
        """Hands what a step brought to the event loop, and says there where the queue has room, all in one wake-up."""
        if (outcomes or progress or room) and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._resolve, outcomes, progress, room)

    def _resolve(
        self, outcomes: Sequence[Outcome], progress: Sequence[SentenceProgress] = (), room: bool = False
    ) -> None:
        if room:
            self._room_came.set()
        for step in progress:
            listener = self._listeners.get(step.call.id)
            if listener is not None:
                listener(step)
        for outcome in outcomes:
            future = self._futures.get(outcome.call.id)
            if future is None or future.done():
                continue  # its caller left meanwhile
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.results)
