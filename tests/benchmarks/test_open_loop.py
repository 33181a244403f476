"""Open-loop load: when calls come, what counts as held, and how the highest rate is found."""

import asyncio
import itertools
import statistics
from collections.abc import Coroutine
from typing import Any

import grpc
import pytest
from benchmarks.open_loop import Load, RateSearch, load, poisson_arrivals


def test_arrivals_are_a_poisson_process_of_the_rate():
    arrivals = poisson_arrivals(50.0, 200.0, seed=3)
    gaps = [after - before for before, after in itertools.pairwise(arrivals)]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 200
    assert len(arrivals) == pytest.approx(50 * 200, rel=0.03)
    # Exponential gaps: as wide as their mean, and a share of 1 - 1/e below it. Even gaps would have none of both.
    mean = statistics.mean(gaps)
    assert statistics.stdev(gaps) == pytest.approx(mean, rel=0.05)
    assert sum(gap < mean for gap in gaps) / len(gaps) == pytest.approx(0.632, abs=0.02)


def test_arrivals_repeat_with_their_seed():
    assert poisson_arrivals(9.0, 5.0, seed=1) == poisson_arrivals(9.0, 5.0, seed=1)
    assert poisson_arrivals(9.0, 5.0, seed=1) != poisson_arrivals(9.0, 5.0, seed=2)


@pytest.mark.parametrize(
    ("load", "holds"),
    [
        (Load(5.0, 100, [0.1] * 100), True),
        (Load(5.0, 100, [0.1] * 97 + [0.3] * 3), False),
        (Load(5.0, 101, [0.1] * 100, num_refused=1), False),
        (Load(5.0, 100, [0.1] * 50, is_abandoned=True), False),
        (Load(5.0, 0), False),
    ],
)
def test_a_rate_holds_when_all_are_answered_and_nearly_all_in_time(load, holds):
    assert load.holds(0.25) is holds


def search_rates(capacity, start):
    search = RateSearch(start)
    tried = []
    while search.rate is not None and len(tried) < 100:
        tried.append(search.rate)
        search.record(search.rate <= capacity)
    return search.best, tried


@pytest.mark.parametrize(("capacity", "start"), [(317.0, 60.0), (61.0, 60.0), (7.0, 60.0), (4000.0, 60.0)])
def test_the_highest_rate_is_found_within_five_percent(capacity, start):
    best, tried = search_rates(capacity, start)
    assert capacity / 1.06 <= best <= capacity
    assert len(tried) < 40


def test_a_rate_that_failed_once_gets_a_second_chance():
    search = RateSearch(60.0)
    search.record(False)
    assert search.rate == 60.0
    search.record(True)
    assert (search.best, search.rate) == (60.0, 90.0)


def test_a_server_that_holds_nothing_ends_the_search():
    best, tried = search_rates(0.0, 60.0)
    assert best == 0.0
    assert tried[-1] <= 1.0


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._select = self._selector.select
        self._selector.select = self._jump

    def time(self) -> float:
        return self._now

    def _jump(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left to wait for"
        events = self._select(0)
        if not events:
            self._now += timeout
        return events


def in_virtual_time(work: Coroutine[Any, Any, Load]) -> Load:
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)


def test_latencies_count_from_when_a_call_was_due():
    free = asyncio.Semaphore(1)

    async def send(sentence):
        async with free:  # one at a time: those that come together wait for each other
            await asyncio.sleep(0.02)  # of virtual time: nothing waits

    found = in_virtual_time(load(send, ["a"], 1000.0, 0.05, seed=1, limit=60.0))
    assert len(found.latencies) == found.num_calls > 20
    # The last came within 0.05 s and waited for all before it; a closed loop would have said 0.02.
    assert max(found.latencies) > 0.02 * found.num_calls - 0.05
    assert min(found.latencies) == pytest.approx(0.02)


def test_a_hopeless_load_is_given_up_and_its_calls_cancelled():
    cancelled = []

    async def send(sentence):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(sentence)
            raise

    found = in_virtual_time(load(send, ["a"], 200.0, 60.0, seed=1, limit=0.05))
    assert found.is_abandoned
    assert len(cancelled) > 1
    assert not found.holds(0.05)


def test_refused_calls_are_counted():
    async def send(sentence):
        raise grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, None, None)

    found = in_virtual_time(load(send, ["a"], 200.0, 0.1, seed=1, limit=1.0))
    assert found.num_refused > 0
    assert not found.holds(1.0)
