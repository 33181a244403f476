"""Whose turn it is: what would end first, if all callers were served at once and evenly.

This is fair queueing by finish tags (Demers, Keshav and Shenker 1989, "Analysis and simulation of a fair queueing algorithm"); for
jobs of known size it is the fair sojourn protocol (Friedman and Henderson 2003, "Fairness and efficiency in web server protocols"):
served one after another in the order in which even sharing would end them, none of them ends later than by it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass
class _Job(Generic[Item]):
    """What one ``add`` brought; its times are virtual.

    Attributes:
        number: How many came before it.
        arrived: When it came.
        start: When even sharing begins with it, after what its caller brought before.
        size: Of all its items, those that have left included.
        items: Those that wait.
    """

    number: int
    arrived: float
    start: float
    size: int
    items: deque[Item]

    @property
    def tag(self) -> float:
        """When even sharing ends it."""
        return self.start + self.size


class WaitingQueue(Generic[Item]):
    """Items that wait; next are those of the job that even sharing would end first, of several the one that came first.

    So calls of one size leave in the order in which they came, a call of one sentence lets one of a call of a thousand go first at
    most, and streams of single items take turns.

    Even sharing is imagined beside the queue: it does as much work, for all callers at once. Virtual time is what it has done
    for a caller who had work for it all the while.

    Args:
        size_of: The work that an item is, above 0; by default all are the same.
    """

    def __init__(self, size_of: Callable[[Item], int] = lambda item: 1) -> None:
        self._size_of = size_of
        self._numbers = itertools.count()
        self._num_items = 0
        self._jobs: dict[int, deque[_Job[Item]]] = {}  # those with items, by caller
        # Sorted lists: what is removed leaves nothing behind as in a heap, and among thousands it's cheap to move the rest.
        self._line: list[tuple[float, int, int]] = []  # tag and number of a caller's first job, caller
        self._seen: int | None = None  # the caller whose item was shown as the next
        self._now: float = 0  # virtual time
        self._ends: dict[int, float] = {}  # when even sharing ends all that a caller brought, unless it has
        self._sharing: list[tuple[float, int]] = []  # the same, sorted

    def __len__(self) -> int:
        return self._num_items

    @property
    def num_callers(self) -> int:
        """Callers whom even sharing would be serving: who waits, and who has had more than an even share."""
        return len(self._sharing)

    def add(self, caller: int, items: Iterable[Item]) -> None:
        """Puts a job behind those that the caller has waiting."""
        added = deque(items)
        if not added:
            return
        start = self._ends.get(caller, self._now)
        job = _Job(next(self._numbers), self._now, start, sum(map(self._size_of, added)), added)
        self._num_items += len(added)
        self._set_end(caller, job.tag)
        if caller in self._jobs:
            self._jobs[caller].append(job)
        else:
            self._line_up(caller, deque([job]))

    def peek(self) -> Item:
        """Returns what ``pop`` takes, whatever comes before it does; the queue must not be empty."""
        if self._seen is None:
            self._seen = self._line[0][-1]
        return self._jobs[self._seen][0].items[0]

    def pop(self) -> Item:
        """Takes the next item."""
        caller = self._line[0][-1] if self._seen is None else self._seen
        jobs, self._seen = self._step_out(caller), None
        item = jobs[0].items.popleft()
        if not jobs[0].items:
            jobs.popleft()
        self._line_up(caller, jobs)
        self._num_items -= 1
        self._share(self._size_of(item))
        return item

    def remove(self, caller: int, is_gone: Callable[[Item], bool]) -> list[Item]:
        """Forgets those of a caller's items that are gone and returns them."""
        if caller not in self._jobs:
            return []
        jobs, removed = self._step_out(caller), list[Item]()
        if caller == self._seen and is_gone(jobs[0].items[0]):
            self._seen = None
        end = jobs[0].start
        for job in jobs:
            if any(map(is_gone, job.items)):
                gone = [item for item in job.items if is_gone(item)]
                removed += gone
                job.items = deque(item for item in job.items if not is_gone(item))
                job.size -= sum(map(self._size_of, gone))
            job.start = max(job.arrived, end)
            end = job.tag
        self._line_up(caller, deque(job for job in jobs if job.items))
        self._num_items -= len(removed)
        end, end_before = max(end, self._now), self._ends.get(caller, self._now)
        self._set_end(caller, end)
        # What even sharing had done of it already, it would have done for others.
        self._share(max(sum(map(self._size_of, removed)) - (end_before - end), 0))
        return removed

    def _share(self, work: float) -> None:
        """Does so much work in the way of even sharing."""
        while self._sharing and (until_end := (self._sharing[0][0] - self._now) * len(self._sharing)) <= work:
            work -= until_end
            self._now, caller = self._sharing[0]
            self._set_end(caller, self._now)
        if self._sharing:
            self._now += work / len(self._sharing)
        if not self._num_items:  # both end together, but for what was rounded
            self._now = 0
            self._ends.clear()
            self._sharing.clear()

    def _set_end(self, caller: int, end: float) -> None:
        if caller in self._ends:
            del self._sharing[bisect_left(self._sharing, (self._ends.pop(caller), caller))]
        if end > self._now:
            self._ends[caller] = end
            insort(self._sharing, (end, caller))

    def _line_up(self, caller: int, jobs: deque[_Job[Item]]) -> None:
        if jobs:
            self._jobs[caller] = jobs
            insort(self._line, (jobs[0].tag, jobs[0].number, caller))

    def _step_out(self, caller: int) -> deque[_Job[Item]]:
        jobs = self._jobs.pop(caller)
        del self._line[bisect_left(self._line, (jobs[0].tag, jobs[0].number))]
        return jobs
