"""Room in the queue: who is refused before any work is done for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dragoman_server.errors import QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.sentences import Lane


class QueueState(NamedTuple):
    """How a queue stands.

    Attributes:
        num_waiting: Sentences that wait.
        is_bulk_waiting: Whether there are bulk sentences among them.
        retry_seconds: When a caller that is refused now had better come back.
    """

    num_waiting: int
    is_bulk_waiting: bool
    retry_seconds: float


def check_room(limits: SchedulerLimits, state: QueueState, count: int, lane: Lane = Lane.INTERACTIVE) -> None:
    """Refuses a call whose ``count`` sentences don't all fit.

    Raises:
        QueueFullError: They don't; it says when to try again.
    """
    max_size = limits.max_queue_size
    if lane is Lane.BULK and state.is_bulk_waiting:
        max_size -= limits.num_reserved_places
    if state.num_waiting + count > max_size:
        raise QueueFullError(
            f"the queue is full: {state.num_waiting} sentences wait, at most {max_size} may, {count} more don't fit",
            retry_seconds=state.retry_seconds,
        )


class Room:
    """The places of a queue, those that calls hold while their texts are prepared included; for one thread.

    Args:
        limits: How much may wait.
        state: Returns how the queue stands; only as true as the moment, since it is asked for every call of an overload.
    """

    def __init__(self, limits: SchedulerLimits, state: Callable[[], QueueState]) -> None:
        self._limits = limits
        self._state = state
        self._num_held = 0
        self._was_full = False

    @property
    def max_queue_size(self) -> int:
        """Sentences that may wait."""
        return self._limits.max_queue_size

    def find_refusal(self) -> QueueFullError | None:
        """Returns why no call is let in now, or None while the queue has room.

        Once it was full it counts as full until an eighth of it is free. Under overload nearly every call would otherwise find
        a place or two and be read, only to be refused since its sentences need more.
        """
        num_places = max(1, self.max_queue_size // 8) if self._was_full else 1
        try:
            check_room(self._limits, self._state(), self._num_held + num_places)
        except QueueFullError as error:
            self._was_full = True
            return error
        self._was_full = False
        return None

    @contextmanager
    def hold(self, count: int) -> Iterator[None]:
        """Keeps room for a call of ``count`` sentences or more while its texts are prepared; costs nothing.

        However many calls are prepared at a time, together they hold no more than the queue could take.

        Raises:
            QueueFullError: The queue hasn't that many places beside those already held.
        """
        # So many sentences are bulk however they are searched for, and would be refused as that when they have been prepared.
        lane = Lane.BULK if count > max(1, self._limits.num_reserved_rows) else Lane.INTERACTIVE
        try:
            check_room(self._limits, self._state(), self._num_held + count, lane)
        except QueueFullError:
            # Bulk is refused with an eighth of the places free, which are kept for the others.
            self._was_full = self._was_full or lane is Lane.INTERACTIVE
            raise
        self._num_held += count
        try:
            yield
        finally:
            self._num_held -= count
