"""The queue beside even sharing itself, through random histories."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dragoman_server.queue import WaitingQueue

# The same histories in every run, however slow the machine is.
seeded = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Item:
    """What waits; ``job`` numbers the jobs of a history, ``index`` the items of a job."""

    caller: int
    job: int
    index: int
    width: int = 1


@dataclass(frozen=True)
class Arrival:
    """A job of so many items, each so wide; then some leave, and the next is looked at or not."""

    caller: int
    widths: list[int]
    num_pops: int = 0
    is_seen: bool = False


@dataclass
class EvenSharing:
    """All callers are served at once, each by the same part of the work, which it spends on its jobs in their order."""

    jobs: dict[int, deque[tuple[int, Fraction]]] = field(default_factory=dict)  # a job and what is left of it
    done: Fraction = Fraction(0)
    ends: dict[int, Fraction] = field(default_factory=dict)  # by job: the work that was done by then

    def add(self, caller: int, job: int, size: int) -> None:
        self.jobs.setdefault(caller, deque()).append((job, Fraction(size)))

    def work(self, amount: Fraction) -> None:
        while amount > 0:
            part = min(amount / len(self.jobs), *(jobs[0][1] for jobs in self.jobs.values()))
            self.done += part * len(self.jobs)
            amount -= part * len(self.jobs)
            for caller, jobs in list(self.jobs.items()):
                job, left = jobs.popleft()
                if left > part:
                    jobs.appendleft((job, left - part))
                    continue
                self.ends[job] = self.done
                if not jobs:
                    del self.jobs[caller]


def histories(*, with_looks: bool = False) -> st.SearchStrategy[list[Arrival]]:
    arrivals = st.builds(
        Arrival,
        caller=st.integers(0, 4),
        widths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
        num_pops=st.integers(0, 8),
        is_seen=st.booleans() if with_looks else st.just(False),
    )
    return st.lists(arrivals, max_size=20)


def exact_queue() -> WaitingQueue[Item]:
    """Returns a queue that calculates without rounding, so that what must be equal is."""
    return WaitingQueue(lambda item: cast(Any, Fraction(item.width)))


def items_of(job: int, arrival: Arrival) -> list[Item]:
    return [Item(arrival.caller, job, index, width) for index, width in enumerate(arrival.widths)]


def size(items: list[Item]) -> int:
    return sum(item.width for item in items)


def play(queue: WaitingQueue[Item], history: list[Arrival]) -> Iterator[Item]:
    """Lets jobs come, and yields the items that leave meanwhile."""
    for job, arrival in enumerate(history):
        queue.add(arrival.caller, items_of(job, arrival))
        yield from drain(queue, arrival.num_pops)
        if arrival.is_seen and queue:
            queue.peek()


def drain(queue: WaitingQueue[Item], count: int | None = None) -> Iterator[Item]:
    for _ in range(len(queue) if count is None else min(count, len(queue))):
        yield queue.pop()


def lateness(history: list[Arrival]) -> Fraction:
    """Returns by how much work the job that is the latest ends after it would by even sharing."""
    queue, even = exact_queue(), EvenSharing()
    ends: dict[int, Fraction] = {}

    def work(items: Iterator[Item]) -> None:
        for item in items:
            even.work(Fraction(item.width))
            ends[item.job] = even.done

    for job, arrival in enumerate(history):
        even.add(arrival.caller, job, sum(arrival.widths))
        queue.add(arrival.caller, items_of(job, arrival))
        work(drain(queue, arrival.num_pops))
        if arrival.is_seen and queue:
            queue.peek()
    work(drain(queue))
    assert len(ends) == len(history)
    return max((end - even.ends[job] for job, end in ends.items()), default=Fraction(0))


@seeded
@given(histories())
def test_no_job_ends_later_than_by_even_sharing(history: list[Arrival]):
    assert lateness(history) <= 0


@seeded
@given(histories(with_looks=True))
def test_an_item_that_was_seen_as_the_next_delays_others_by_its_width_at_most(history: list[Arrival]):
    widest = max((max(arrival.widths) for arrival in history), default=0)
    assert lateness(history) <= widest


@seeded
@given(histories(), st.integers(1, 12))
def test_as_much_of_each_caller_as_its_own_size_goes_before_a_new_one_at_most(
    history: list[Arrival], num_items: int
):
    queue = exact_queue()
    list(play(queue, history))
    num_callers = queue.num_callers
    queue.add(9, [Item(9, -1, index) for index in range(num_items)])
    order = list(drain(queue))
    before = order[: order.index(Item(9, -1, 0))]
    assert size(before) <= num_callers * num_items


@seeded
@given(histories(with_looks=True))
def test_every_item_leaves_once_and_those_of_a_caller_in_their_order(history: list[Arrival]):
    queue = WaitingQueue[Item](lambda item: item.width)
    left = [*play(queue, history), *drain(queue)]
    came = [item for job, arrival in enumerate(history) for item in items_of(job, arrival)]
    for caller in range(5):
        assert [item for item in left if item.caller == caller] == [i for i in came if i.caller == caller]


@seeded
@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 99)), max_size=40),
)
def test_calls_of_one_size_leave_in_the_order_in_which_they_came_though_some_are_cancelled(
    num_items: int, events: list[tuple[int, bool, int]]
):
    queue = WaitingQueue[Item]()  # rounding must not matter
    num_removed = 0
    left: list[Item] = []
    for call, (num_pops, is_cancelled, chosen) in enumerate(events):
        queue.add(call, [Item(call, call, index) for index in range(num_items)])
        left += drain(queue, num_pops)
        if is_cancelled:
            num_removed += len(queue.remove(chosen % (call + 1), lambda item: True))
    left += drain(queue)
    assert [(item.job, item.index) for item in left] == sorted((item.job, item.index) for item in left)
    assert len(left) + num_removed == num_items * len(events)


@seeded
@given(histories(), histories(), st.integers(0, 40), st.integers(10, 200))
def test_what_even_sharing_did_of_a_call_that_left_unserved_it_did_for_the_others(
    before: list[Arrival], after: list[Arrival], num_pops: int, num_items: int
):
    def order(*, with_guest: bool) -> list[Item]:
        queue = exact_queue()
        left = list(play(queue, before))
        num_others = len(queue)
        if with_guest:
            queue.add(9, [Item(9, -1, index) for index in range(num_items)])
        left += drain(queue, min(num_pops, num_others))
        if with_guest:
            assume(len(queue.remove(9, lambda item: True)) == num_items)
        return [*left, *play(queue, after), *drain(queue)]

    assert order(with_guest=True) == order(with_guest=False)


@seeded
@given(histories(), histories(), st.integers(1, 40))
def test_a_job_that_is_taken_back_leaves_those_behind_it_where_they_would_be(
    before: list[Arrival], after: list[Arrival], num_items: int
):
    def order(*, with_guest: bool) -> list[Item]:
        queue = exact_queue()
        left = list(play(queue, before))
        if with_guest:
            queue.add(0, [Item(0, -1, index) for index in range(num_items)])
        for caller in (0, 8):
            queue.add(caller, [Item(caller, -2, 0, width=3)])
        if with_guest:
            assert len(queue.remove(0, lambda item: item.job == -1)) == num_items
        return [*left, *play(queue, after), *drain(queue)]

    assert order(with_guest=True) == order(with_guest=False)


@seeded
@given(
    histories(with_looks=True),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=20, max_size=20),
)
def test_even_sharing_has_as_much_left_to_do_as_waits(
    history: list[Arrival], removals: list[tuple[int, int]]
):
    queue = exact_queue()
    waiting: list[Item] = []
    for job, (arrival, (caller, nth)) in enumerate(zip(history, removals, strict=False)):
        queue.add(arrival.caller, added := items_of(job, arrival))
        waiting += added
        for item in drain(queue, arrival.num_pops):
            waiting.remove(item)
        removed = queue.remove(caller, lambda item, nth=nth: (item.job + item.index) % nth == 0)
        waiting = [item for item in waiting if item not in removed]
        assert len(queue) == len(waiting)
        assert sum(end - queue._now for end in queue._ends.values()) == size(waiting)
        assert sorted((end, caller) for caller, end in queue._ends.items()) == queue._sharing
        assert {item.caller for item in waiting} == queue._jobs.keys()


def test_a_long_life_leaves_nothing_behind():
    rng = random.Random(4)
    queue = WaitingQueue[Item](lambda item: item.width)
    for job in range(20_000):
        caller = rng.choice((job, job % 7))
        widths = [rng.choice((1, 1, 1, 4))] * rng.choice((1, 1, 2, 8))
        queue.add(caller, items_of(job, Arrival(caller, widths)))
        list(drain(queue, rng.randrange(8)))
        if rng.random() < 0.1:
            queue.remove(rng.choice((job, job % 7)), lambda item: True)
        assert len(queue) < 2000
        # Who is ahead of even sharing is remembered, but not for long.
        assert queue.num_callers <= 2 * max(len(queue), 8)
    list(drain(queue))
    assert (queue._seen, queue._now) == (None, 0)
    assert not any((queue._jobs, queue._line, queue._ends, queue._sharing))
