"""Room in the queue: who is refused before any work is done for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dragoman_server.errors import QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.sentences import Lane

# Sooner than the first a caller had better not come back, and after the last it had better look again.
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 30.0
# Calls are let in while the queue takes so much of `max_queue_seconds` at the measured speed. That speed wavers, and who waits for
# longer after all has waited for nothing.
_EXPECTED_SHARE = 2 / 3
# A queue that was full counts as full until so much of it is free.
_FREE_SHARE = 1 / 8


class QueueState(NamedTuple):
    """How a queue stands.

    Attributes:
        num_waiting: Sentences that wait.
        is_bulk_waiting: Whether there are bulk sentences among them.
        interactive_seconds: How long the interactive ones will take at the measured speed; 0 before any was measured.
        bulk_seconds: How long the bulk ones will.
        bulk_row_seconds: How long these keep a call waiting at most for each row of its own, since callers share evenly.
    """

    num_waiting: int
    is_bulk_waiting: bool
    interactive_seconds: float = 0.0
    bulk_seconds: float = 0.0
    bulk_row_seconds: float = 0.0

    @property
    def retry_seconds(self) -> float | None:
        """When a caller that is refused now had better come back: when the queue has been worked off; None before any speed was measured."""
        seconds = self.interactive_seconds + self.bulk_seconds
        return min(max(_MIN_RETRY_SECONDS, seconds), _MAX_RETRY_SECONDS) if seconds else None

    def wait_seconds(self, lane: Lane, num_rows: int) -> float:
        """Returns how long a call that takes so many rows would wait for the first."""
        if lane is Lane.INTERACTIVE:
            return self.interactive_seconds
        return min(self.bulk_seconds, num_rows * self.bulk_row_seconds)


def check_room(
    limits: SchedulerLimits,
    state: QueueState,
    count: int,
    lane: Lane = Lane.INTERACTIVE,
    *,
    num_rows: int = 0,
    seconds_share: float = 1.0,
) -> None:
    """Refuses a call whose ``count`` sentences don't all fit, or would wait for too long.

    Args:
        limits: How much may wait, and for how long.
        state: How the queue stands.
        count: The call's sentences; one that has none, as for attention alone, waits for nothing.
        lane: Where they would wait.
        num_rows: That they take; 0 is one each.
        seconds_share: Of the time that the queue may take.

    Raises:
        QueueFullError: It says when to try again.
    """
    if not count:
        return
    max_size = limits.max_queue_size
    if lane is Lane.BULK and state.is_bulk_waiting:
        max_size -= limits.num_reserved_places
    if state.num_waiting + count > max_size:
        raise QueueFullError(
            f"the queue is full: {state.num_waiting} sentences wait, at most {max_size} may, {count} more don't fit",
            retry_seconds=state.retry_seconds,
        )
    seconds = state.wait_seconds(lane, num_rows or count)
    if limits.max_queue_seconds and seconds > seconds_share * _EXPECTED_SHARE * limits.max_queue_seconds:
        raise QueueFullError(
            f"the queue is full: what comes first takes {seconds:.2f} s at the measured speed, and no call may wait for more "
            f"than {limits.max_queue_seconds:g} s (--max-queue-seconds)",
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
        free = _FREE_SHARE if self._was_full else 0.0
        count = max(1, int(free * self.max_queue_size))
        try:
            check_room(self._limits, self._state_with_held(), count, seconds_share=1 - free)
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
            check_room(self._limits, self._state_with_held(), count, lane)
        except QueueFullError:
            # Bulk is refused with an eighth of the places free, which are kept for the others.
            self._was_full = self._was_full or lane is Lane.INTERACTIVE
            raise
        self._num_held += count
        try:
            yield
        finally:
            self._num_held -= count

    def _state_with_held(self) -> QueueState:
        state = self._state()
        return state._replace(num_waiting=state.num_waiting + self._num_held)
