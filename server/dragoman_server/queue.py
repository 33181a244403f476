"""The waiting queue: bounded, first come first served inside a call, fair over calls."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from dragoman_server.errors import QueueFullError

Item = TypeVar("Item")


class WaitingQueue(Generic[Item]):
    """Items that wait, handed out one per call in turn.

    A call with a thousand sentences delays a call with one by a single sentence, not by a thousand.

    Args:
        max_size: Items that may wait, over all calls.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._calls: OrderedDict[int, deque[Item]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def check_room(self, count: int) -> None:
        """Refuses what doesn't fit as a whole.

        Raises:
            QueueFullError: Fewer than ``count`` places are free.
        """
        if self._size + count > self.max_size:
            raise QueueFullError(
                f"the queue is full: {self._size} sentences wait, at most {self.max_size} may, {count} more don't fit"
            )

    def add(self, call_id: int, items: Iterable[Item]) -> None:
        """Takes a call's items, all or none.

        Raises:
            QueueFullError: They don't all fit.
        """
        waiting = deque(items)
        self.check_room(len(waiting))
        if waiting:
            self._calls[call_id] = waiting
            self._size += len(waiting)

    def peek(self) -> Item:
        """Returns what ``pop`` would; the queue must not be empty."""
        return next(iter(self._calls.values()))[0]

    def pop(self) -> Item:
        """Takes the next item, and sends its call to the end of the line."""
        call_id, waiting = next(iter(self._calls.items()))
        item = waiting.popleft()
        self._size -= 1
        if waiting:
            self._calls.move_to_end(call_id)
        else:
            del self._calls[call_id]
        return item

    def remove(self, call_id: int) -> int:
        """Forgets a call's items and returns how many there were."""
        count = len(self._calls.pop(call_id, ()))
        self._size -= count
        return count
