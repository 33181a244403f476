"""An engine in a process of its own, so that what it computes and what the event loop does never wait for each other.

Python lets one thread of a process run at a time. A busy event loop, under overload say, takes that time from an engine's thread,
several times a step. This class stands where `engine.Engine` would; `engine_host` is the other side.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dragoman_server.engine_host import EngineFactory, host_engine
from dragoman_server.engine_messages import (
    Cancelled,
    Ended,
    Failed,
    MessageSocket,
    Progressed,
    QueueBoard,
    Queued,
    Submitted,
)
from dragoman_server.errors import CallError, EngineGoneError, InternalError
from dragoman_server.heartbeat import Heartbeat
from dragoman_server.limits import SchedulerLimits
from dragoman_server.logs import log_event
from dragoman_server.remote_metrics import RemoteMetrics
from dragoman_server.request import Call
from dragoman_server.room import QueueState, Room
from dragoman_server.sentences import Result, SentenceProgress

logger = logging.getLogger(__name__)

# A process that closed its connection is about to end; one that doesn't in so long is killed.
_END_SECONDS = 5.0

_Listener = Callable[[SentenceProgress], None]


@dataclass
class _Pending:
    """A call that has not ended.

    Attributes:
        call: It.
        results: What its caller waits for.
        queued: What the caller of a bulk call waits for first.
        listener: Is told of progress.
    """

    call: Call
    results: asyncio.Future[tuple[Result, ...]]
    queued: asyncio.Future[None] | None = None
    listener: _Listener | None = None


class EngineProcess:
    """Runs one model's calls in a process that is forked from this one, which must not have started threads that compute.

    Args:
        name: Of the model, for the log.
        make_engine: Makes the engine, in the process.
        limits: The engine's.
        heartbeat: The engine's, which it beats in its process.
        on_failure: Called on the event loop when no call will be worked on any more.

    Attributes:
        heartbeat: The engine's.
        metrics: What its process holds of them.
        room: Of the queue, for calls that are yet to be prepared.
    """

    def __init__(
        self,
        name: str,
        make_engine: EngineFactory,
        limits: SchedulerLimits,
        heartbeat: Heartbeat,
        *,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.clock = time.monotonic  # counts the same in every process
        self.heartbeat = heartbeat
        self.room = Room(limits, self._queue_state)
        self._on_failure = on_failure
        self._pending: dict[int, _Pending] = {}
        self._num_sent = 0  # sentences
        self._stopped_by: CallError | None = None
        self._failed = False
        self._joining = threading.Lock()
        self._board = QueueBoard()
        context = multiprocessing.get_context("fork")
        near_end, far_end = socket.socketpair()
        near_scrapes, far_scrapes = context.Pipe()
        self.metrics = RemoteMetrics(near_scrapes)
        self._process = context.Process(
            target=host_engine,
            args=(make_engine, self._board, far_end, far_scrapes, (near_end, near_scrapes)),
            name=f"engine {name}",
            daemon=True,
        )
        self._process.start()
        # At exit the library waits for it, whom no signal of its own ends; so where the server fails before it is stopped.
        atexit.register(self._process.kill)
        far_end.close()
        far_scrapes.close()
        self._socket = MessageSocket(near_end)

    @property
    def is_alive(self) -> bool:
        """Whether it takes calls, though it may hang over one; once False it stays so."""
        return not self._failed and self._stopped_by is None and self._process.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether it broke or its process ended, so that no call will be worked on any more; costs nothing."""
        return self._failed

    def start(self) -> None:
        """Starts to take calls; called on the event loop that will submit them."""
        self._event_loop = asyncio.get_running_loop()
        self._socket.open(self._take, self._lose)

    def stop(self, error: CallError) -> None:
        """Ends every call with ``error``, and the process after its present step, for which `join` waits."""
        self._stopped_by = error
        self._end_all(error)
        self._socket.close()

    def join(self, seconds: float) -> None:
        """Waits for the process to end after `stop`, and kills one that hangs for so long; for any thread."""
        # Of two threads that wait for a process at once, one would not learn that it has ended.
        with self._joining:
            self._process.join(timeout=seconds)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        atexit.unregister(self._process.kill)

    def check_running(self) -> None:
        """Passes while calls are worked on, as ``Engine.check_running`` does."""
        if self._stopped_by is not None:
            raise self._stopped_by
        if self._failed:
            raise EngineGoneError(self.name)

    async def submit(self, call: Call, on_progress: _Listener | None = None) -> tuple[Result, ...]:
        """Returns a result for each sentence of the call, as ``Engine.submit`` does; cancelling this cancels the call."""
        return await self._send(call, listener=on_progress).results

    async def submit_bulk(self, call: Call) -> asyncio.Future[tuple[Result, ...]]:
        """Queues a call as soon as there is room and returns what its results come in, as ``Engine.submit_bulk`` does."""
        queued = asyncio.get_running_loop().create_future()
        pending = self._send(call, queued=queued)
        try:
            await queued
        except BaseException:
            pending.results.cancel()
            raise
        return pending.results

    def _queue_state(self) -> QueueState:
        if self._failed:  # nothing waits any more, and whoever comes is told why
            return QueueState(0, False)
        return self._board.read(self._num_sent)

    def _send(
        self, call: Call, *, listener: _Listener | None = None, queued: asyncio.Future[None] | None = None
    ) -> _Pending:
        self.check_running()
        results: asyncio.Future[tuple[Result, ...]] = self._event_loop.create_future()
        self._pending[call.id] = pending = _Pending(call, results, queued, listener)
        results.add_done_callback(lambda _: self._forget(pending))
        self._num_sent += len(call.work)
        self._socket.send(Submitted(call))
        return pending

    def _forget(self, pending: _Pending) -> None:
        if self._pending.pop(pending.call.id, None) is not None and pending.results.cancelled():
            self._socket.send(Cancelled(pending.call.id))

    def _take(self, message: object) -> None:
        match message:
            case Ended(call_id=call_id):
                pending = self._pending.pop(call_id, None)
                if pending is not None:  # else its caller left meanwhile
                    self._end(pending, message.results, message.error)
            case Queued(call_id=call_id):
                pending = self._pending.get(call_id)
                if pending is not None and pending.queued is not None and not pending.queued.done():
                    pending.queued.set_result(None)
            case Progressed(call_id=call_id):
                pending = self._pending.get(call_id)
                if pending is not None and pending.listener is not None:
                    pending.listener(
                        SentenceProgress(pending.call, message.index, message.token_ids, message.is_complete)
                    )
            case Failed():
                self._fail()

    def _end(self, pending: _Pending, results: tuple[Result, ...], error: CallError | None) -> None:
        if error is None:
            if not pending.results.done():
                pending.results.set_result(results)
        elif pending.queued is not None and not pending.queued.done():
            pending.queued.set_exception(error)  # whoever waits for it has no results to wait for yet
        elif not pending.results.done():
            pending.results.set_exception(error)

    def _end_all(self, error: CallError) -> None:
        pending, self._pending = self._pending, {}
        for one in pending.values():
            self._end(one, (), error)

    def _lose(self) -> None:
        """Takes note that the process is ending by itself, which it never does unless it was killed or crashed."""
        self._fail()
        # In a thread, since it may be long in ending: it may hang on the way, or have much memory to give back.
        threading.Thread(target=self._see_to_its_end, name=f"end of engine {self.name}", daemon=True).start()

    def _see_to_its_end(self) -> None:
        self.join(_END_SECONDS)
        log_event(
            logger,
            logging.CRITICAL,
            "engine process ended",
            model=self.name,
            exit_code=self._process.exitcode,
        )

    def _fail(self) -> None:
        self._failed = True
        self._end_all(InternalError())
        if self._on_failure is not None:
            self._on_failure()
