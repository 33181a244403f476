"""When calls must have ended."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Sized
from typing import Protocol


class _Calls(Container[int], Sized, Protocol):
    """The ids of the calls that have not ended."""


class Deadlines:
    """Deadlines of calls, the earliest first.

    Args:
        calls: Ids of those that have not ended; it changes outside.
    """

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, call_id: int) -> None:
        """Adds a call's deadline; it needn't be taken back when the call ends."""
        heapq.heappush(self._heap, (deadline, call_id))
        # Calls end long before their deadlines; what they leave here must not pile up.
        if len(self._heap) > 2 * len(self._calls) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self._calls]
            heapq.heapify(self._heap)

    def pop_passed(self, now: float) -> Iterator[int]:
        """Takes the deadlines that have passed, and yields the ids of their calls that have not ended."""
        while self._heap and self._heap[0][0] <= now:
            _, call_id = heapq.heappop(self._heap)
            if call_id in self._calls:
                yield call_id
