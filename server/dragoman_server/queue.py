"""A waiting queue: first come first served inside a caller, fair over callers."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WaitingQueue(Generic[Item]):
    """Items that wait; next is the caller that has the fewest rows in the batch.

    Of several that have as few, it is the one that has had them for longest. So a call of a thousand sentences delays a call
    of one by a single sentence, and searches of eight beams get no more of the batch than greedy ones.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Item]] = {}
        self._rows: dict[int, int] = {}  # in the batch, by caller; none where there are none
        self._by_rows: dict[int, OrderedDict[int, None]] = {}  # who waits, by the rows that they have
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def num_callers(self) -> int:
        """Callers that wait."""
        return len(self._waiting)

    def add(self, caller: int, items: Iterable[Item]) -> None:
        """Puts items behind those that the caller has waiting."""
        added = list(items)
        if not added:
            return
        self._size += len(added)
        if caller in self._waiting:
            self._waiting[caller].extend(added)
        else:
            self._waiting[caller] = deque(added)
            self._line_up(caller)

    def peek(self) -> Item:
        """Returns what ``pop`` would; the queue must not be empty."""
        return self._waiting[self._next_caller()][0]

    def pop(self) -> Item:
        """Takes the next item; its rows are to be charged to its caller."""
        caller = self._next_caller()
        item = self._waiting[caller].popleft()
        self._size -= 1
        if not self._waiting[caller]:
            self._forget(caller)
        return item

    def charge(self, caller: int, num_rows: int) -> None:
        """Adds to the rows that a caller has in the batch; a negative number gives them back."""
        if caller in self._waiting:
            self._step_out(caller)
        rows = self._rows.pop(caller, 0) + num_rows
        assert rows >= 0
        if rows:
            self._rows[caller] = rows
        if caller in self._waiting:
            self._line_up(caller)

    def remove(self, caller: int, is_gone: Callable[[Item], bool]) -> list[Item]:
        """Forgets those of a caller's items that are gone and returns them."""
        waiting = self._waiting.get(caller, ())
        removed = [item for item in waiting if is_gone(item)]
        if removed:
            self._size -= len(removed)
            left = deque(item for item in waiting if not is_gone(item))
            if left:
                self._waiting[caller] = left
            else:
                self._forget(caller)
        return removed

    def _next_caller(self) -> int:
        return next(iter(self._by_rows[min(self._by_rows)]))

    def _forget(self, caller: int) -> None:
        self._step_out(caller)
        del self._waiting[caller]

    def _line_up(self, caller: int) -> None:
        self._by_rows.setdefault(self._rows.get(caller, 0), OrderedDict())[caller] = None

    def _step_out(self, caller: int) -> None:
        rows = self._rows.get(caller, 0)
        del self._by_rows[rows][caller]
        if not self._by_rows[rows]:
            del self._by_rows[rows]
