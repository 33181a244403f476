"""A bulk translation for the blocking client: the caller's thread reads the texts, one of ours the answers."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

from dragoman_client.bulk import END_SECONDS, HELD_UP_SECONDS, Bulk, Outage
from dragoman_client.bulk_connection import Arrival, BulkCalls, Connection
from dragoman_client.errors import DragomanError, too_late_error
from dragoman_client.results import BatchResult


def translate_in_bulk(
    texts: Iterator[tuple[str, str]],
    bulk: Bulk,
    outage: Outage,
    calls: BulkCalls,
) -> Generator[BatchResult, None, None]:
    """Yields a result for each text.

    Texts are read in the caller's thread, when there is room and nothing to hand over; an error of theirs is raised
    after the results of those before it.

    Args:
        texts: Each with its prefix.
        bulk: Holds what is under way.
        outage: Says how long to wait for a server that is away.
        calls: Makes calls.
    """
    link = _Link(bulk, outage, calls)
    failure: Exception | None = None
    try:
        while True:
            link.receive()
            if (result := bulk.pop()) is not None:
                yield result
            elif link.failure is not None:
                raise link.failure
            elif not link.input_ended and bulk.has_room:
                try:
                    text, target_prefix = next(texts)
                except StopIteration:
                    link.end_input()
                except Exception as error:
                    failure = error
                    link.end_input()
                else:
                    link.send(text, target_prefix)
            elif bulk.num_unanswered:
                link.receive(wait=True)
            else:
                break
    finally:
        link.close()
    if failure is not None:
        raise failure


class _Link:
    """The way to the server, over as many calls as it takes.

    Attributes:
        input_ended: No more texts come.
        failure: Why no other call is made.
    """

    def __init__(
        self,
        bulk: Bulk,
        outage: Outage,
        calls: BulkCalls,
    ) -> None:
        self._bulk = bulk
        self._outage = outage
        self._calls = calls
        self._connection: Connection | None = None
        self._arrivals: SimpleQueue[Arrival] = SimpleQueue()
        self.input_ended = False
        self.failure: DragomanError | None = None

    def send(self, text: str, target_prefix: str) -> None:
        """Takes a text of the input."""
        item = self._bulk.add(text, target_prefix)
        if item is not None and self._connection is not None:
            self._connection.send(item)

    def end_input(self) -> None:
        """Says that no more texts come."""
        self.input_ended = True
        if self._connection is not None:
            self._connection.end()

    def receive(self, *, wait: bool = False) -> None:
        """Takes the answers that have arrived; with ``wait``, waits for some or for another call to begin."""
        if self.failure is not None:
            return
        try:
            if self._connection is None and self._bulk.num_unanswered:
                self._connect()
            while self._connection is not None:
                try:
                    arrival = self._next_arrival(self._connection, wait=wait)
                except Empty:
                    return
                wait = False
                if self._connection.feed(arrival, self._bulk):
                    self._outage.answer()
                else:
                    self._drop()
        except DragomanError as error:
            self._drop()
            if not self._bulk.num_unanswered:  # nobody's loss: another text makes another call
                return
            try:
                time.sleep(self._outage.delay(error, time.monotonic()))
            except DragomanError as final:
                self.failure = final

    def _next_arrival(self, connection: Connection, *, wait: bool) -> Arrival:
        """Returns what has arrived first; with ``wait``, what arrives next.

        Raises:
            Empty: Nothing has.
            DeadlineExceededError: The server was silent for too long.
        """
        if not wait:
            return self._arrivals.get_nowait()
        timeout = connection.call.timeout or threading.TIMEOUT_MAX
        while True:
            due = time.monotonic() + timeout
            try:
                return self._arrivals.get(timeout=timeout)
            except Empty:
                if time.monotonic() - due < HELD_UP_SECONDS:
                    raise too_late_error(connection.call) from None

    def close(self) -> None:
        """Ends the call; the server may end it itself where it has answered everything."""
        if self._connection is not None and self.input_ended and not self._bulk.num_unanswered:
            with suppress(Empty):
                self._arrivals.get(timeout=END_SECONDS)
        self._drop()

    def _connect(self) -> None:
        self._arrivals = SimpleQueue()
        self._connection = self._calls.connect(self._bulk.unanswered, self._arrivals.put)
        if self.input_ended:
            self._connection.end()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
