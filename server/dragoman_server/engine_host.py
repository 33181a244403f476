"""The process that an engine has to itself: it runs the calls that come over a socket, until that closes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol, TypeAlias

from prometheus_client import CollectorRegistry

from dragoman_server import event_loop
from dragoman_server.engine import JOIN_SECONDS, Engine
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
from dragoman_server.errors import CallError, DrainingError, InternalError
from dragoman_server.logs import describe_exception, log_event
from dragoman_server.remote_metrics import answer_scrapes
from dragoman_server.request import Call
from dragoman_server.room import QueueState
from dragoman_server.sentences import SentenceProgress

logger = logging.getLogger(__name__)

# Where there are fewer CPUs than work, the server's event loop comes first: what it does is short, and refusals, deadlines and
# health checks wait for it. The model has all that is left.
_NICENESS = 10
# How soon it notices that the server was killed, where other processes keep the socket open.
_PARENT_SECONDS = 1.0


class _Closable(Protocol):
    def close(self) -> None: ...


# Makes the engine that writes its metrics to a registry, calls the first function when its loop breaks, and the second with how
# its queue stands.
EngineFactory: TypeAlias = Callable[
    [CollectorRegistry, Callable[[], None], Callable[[QueueState], None]], Engine
]


def host_engine(
    make_engine: EngineFactory,
    board: QueueBoard,
    end: socket.socket,
    scrapes: Connection,
    of_parent: Sequence[_Closable],
) -> None:
    """Runs an engine; the target of `engine_process.EngineProcess`, whose ends of the connections are ``of_parent``."""
    parent = os.getppid()
    # The server alone hears of signals.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for other in of_parent:
        other.close()
    os.nice(_NICENESS)
    registry = CollectorRegistry()
    threading.Thread(target=answer_scrapes, args=(registry, scrapes), name="scrapes", daemon=True).start()
    event_loop.run(_Host(MessageSocket(end), board).run(make_engine, registry, parent))


class _Host:
    """Hands calls to the engine and what becomes of them back."""

    def __init__(self, messages: MessageSocket, board: QueueBoard) -> None:
        self._messages = messages
        self._board = board
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._closed = asyncio.Event()

    async def run(self, make_engine: EngineFactory, registry: CollectorRegistry, parent: int) -> None:
        self._engine = make_engine(registry, lambda: self._messages.send(Failed()), self._board.publish)
        self._engine.start()
        self._messages.open(self._take, self._closed.set)
        while not self._closed.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(self._closed.wait(), _PARENT_SECONDS)
            except TimeoutError:
                continue
        self._engine.stop(DrainingError())
        self._engine.join(JOIN_SECONDS)

    def _take(self, message: object) -> None:
        match message:
            case Submitted(call=call):
                self._board.count_taken(len(call.work))
                working = self._calls[call.id] = asyncio.create_task(self._work_on(call))
                # Not in the task, which doesn't get that far where it's cancelled before it begins.
                working.add_done_callback(lambda _: self._calls.pop(call.id))
            case Cancelled(call_id=call_id):
                task = self._calls.get(call_id)
                if task is not None:
                    task.cancel()

    async def _work_on(self, call: Call) -> None:
        try:
            if call.stream is None:
                results = await self._engine.submit(call, self._report if call.reports_progress else None)
            else:
                future = await self._engine.submit_bulk(call)
                self._messages.send(Queued(call.id))
                results = await future
            self._messages.send(Ended(call.id, results))
        except CallError as error:
            self._messages.send(Ended(call.id, error=error))
        except Exception as error:  # a fault of ours, which its caller must not wait behind for ever
            log_event(
                logger, logging.ERROR, "call failed", request_id=call.request_id, **describe_exception(error)
            )
            self._messages.send(Ended(call.id, error=InternalError()))

    def _report(self, progress: SentenceProgress) -> None:
        self._messages.send(
            Progressed(progress.call.id, progress.index, progress.token_ids, progress.is_complete)
        )
