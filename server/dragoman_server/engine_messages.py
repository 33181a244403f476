"""What the server and an engine in a process of its own say to each other, and how it gets there."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import pickle
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dragoman_server.errors import CallError
from dragoman_server.request import Call
from dragoman_server.room import QueueState
from dragoman_server.sentences import Result

_LENGTH = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 18
_DOUBLE_BYTES = 8


@dataclass(frozen=True)
class Submitted:
    """To the engine: work on this call, as its ``submit`` or ``submit_bulk`` does."""

    call: Call


@dataclass(frozen=True)
class Cancelled:
    """To the engine: nobody waits for this call any more."""

    call_id: int


@dataclass(frozen=True)
class Queued:
    """From the engine: there was room for this bulk call."""

    call_id: int


@dataclass(frozen=True)
class Progressed:
    """From the engine: what `sentences.SentenceProgress` says."""

    call_id: int
    index: int
    token_ids: tuple[int, ...]
    is_complete: bool


@dataclass(frozen=True)
class Ended:
    """From the engine: a call's results, one for each of its sentences, or the error that ended it."""

    call_id: int
    results: tuple[Result, ...] = ()
    error: CallError | None = None


@dataclass(frozen=True)
class Failed:
    """From the engine: its loop broke, and no call will be worked on any more."""


class MessageSocket:
    """One end of a pair of sockets between two event loops; messages are pickled, and come in order.

    Both ends belong to this program, which alone may write what the other unpickles.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent = bytearray()
        self._received = bytearray()

    def open(self, on_message: Callable[[Any], None], on_closed: Callable[[], None]) -> None:
        """Starts to send and to receive on the running event loop.

        Args:
            on_message: Takes each message.
            on_closed: Called once when the other end is gone.
        """
        self._on_message, self._on_closed = on_message, on_closed
        self._event_loop = asyncio.get_running_loop()
        self._event_loop.add_reader(self._end, self._receive)

    def send(self, message: object) -> None:
        """Sends a message, together with all that are sent before the event loop's next turn."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if not self._unsent:
            self._event_loop.call_soon(self._flush)
        self._unsent += _LENGTH.pack(len(data)) + data

    def close(self) -> None:
        """Stops both; the other end learns of it."""
        if self._end.fileno() >= 0:
            self._event_loop.remove_reader(self._end)
            self._event_loop.remove_writer(self._end)
            with contextlib.suppress(OSError):  # the other end is gone
                # To close it doesn't tell the other end, where a process that was forked meanwhile has it open, too.
                self._end.shutdown(socket.SHUT_RDWR)
            self._end.close()

    def _flush(self) -> None:
        if self._end.fileno() < 0:
            return
        try:
            del self._unsent[: self._end.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return  # the other end is gone, which `_receive` is told as well
        if self._unsent:
            self._event_loop.add_writer(self._end, self._flush)
        else:
            self._event_loop.remove_writer(self._end)

    def _receive(self) -> None:
        try:
            data = self._end.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._on_closed()
            return
        self._received += data
        start = 0
        while len(self._received) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received, start)
            end = start + _LENGTH.size + size
            if len(self._received) < end:
                break
            message = pickle.loads(memoryview(self._received)[start + _LENGTH.size : end])
            start = end
            try:
                self._on_message(message)
            except Exception as error:  # those behind it are for others
                self._event_loop.call_exception_handler(
                    {"message": f"a {type(message).__name__} could not be taken", "exception": error}
                )
        del self._received[:start]


class QueueBoard:
    """How an engine's queue stands, in memory that both processes see; made before they part.

    One writes and one reads, without a lock: what is read is only as true as the moment.
    """

    def __init__(self) -> None:
        # Sentences taken in all, then what `QueueState` has; zeros at first.
        self._values = memoryview(mmap.mmap(-1, (1 + len(QueueState._fields)) * _DOUBLE_BYTES)).cast("d")

    def publish(self, state: QueueState) -> None:
        """Says how the queue stands; the engine's side."""
        for place, value in enumerate(state, start=1):
            self._values[place] = value

    def count_taken(self, num_sentences: int) -> None:
        """Counts sentences that have come over; the engine's side."""
        self._values[0] += num_sentences

    def read(self, num_sent: int) -> QueueState:
        """Returns how the queue stands, with what is on its way among those that wait.

        Args:
            num_sent: Sentences that were sent in all.
        """
        taken, num_waiting, is_bulk_waiting, *seconds = self._values
        return QueueState(int(num_waiting + num_sent - taken), bool(is_bulk_waiting), *seconds)
