"""Open-loop load: calls come when they come, whether or not the server keeps up.

A closed loop of callers that wait for their answers slows down with the server and hides its queue; here the calls'
times are drawn beforehand, and a latency counts from the time at which the call was due.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import grpc
from reporting import percentile

Send = Callable[[str], Awaitable[object]]


def poisson_arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Returns times from 0 to ``seconds`` of calls that come independently of each other, ``rate`` a second.

    Args:
        rate: Mean calls a second; the times between them are exponential.
        seconds: Length of the load.
        seed: The same seed gives the same times in units of 1 / rate.
    """
    draw = random.Random(seed)
    times = itertools.accumulate(draw.expovariate(1.0) / rate for _ in itertools.count())
    return list(itertools.takewhile(lambda time: time < seconds, times))


@dataclass
class Load:
    """What one rate got.

    Attributes:
        rate: Calls a second.
        num_calls: Calls that were planned.
        latencies: Seconds of the calls that were answered.
        num_refused: Calls that ended with an error.
        is_abandoned: The load was given up since too many calls were late already.
        cpu_seconds: Processor time that the server took meanwhile.
    """

    rate: float
    num_calls: int
    latencies: list[float] = field(default_factory=list)
    num_refused: int = 0
    is_abandoned: bool = False
    cpu_seconds: float = 0.0

    def holds(self, limit: float) -> bool:
        """Whether all calls were answered, 99 of 100 within ``limit`` seconds."""
        return (
            not self.is_abandoned
            and not self.num_refused
            and bool(self.latencies)
            and percentile(self.latencies, 0.99) <= limit
        )


async def load(
    send: Send, sentences: Sequence[str], rate: float, seconds: float, *, seed: int, limit: float
) -> Load:
    """Sends sentences at a rate and returns what became of them.

    Args:
        send: Makes one call.
        sentences: Taken at random.
        rate: Calls a second.
        seconds: How long.
        seed: Of the times and of the choice of sentences.
        limit: Seconds; once more than a hundredth of the calls have taken longer, the load is given up.
    """
    arrivals = poisson_arrivals(rate, seconds, seed)
    found = Load(rate, len(arrivals))
    choice = random.Random(seed + 1)
    running: dict[asyncio.Task[None], float] = {}
    num_late = 0
    clock = asyncio.get_running_loop().time

    async def call(sentence: str, due: float) -> None:
        nonlocal num_late
        try:
            await send(sentence)
        except grpc.aio.AioRpcError:
            found.num_refused += 1
            return
        latency = clock() - due
        found.latencies.append(latency)
        num_late += latency > limit

    def is_hopeless() -> bool:
        now = clock()
        late = num_late + found.num_refused + sum(now - due > limit for due in running.values())
        return late > len(arrivals) / 100

    started = clock() + 0.01
    for arrival in arrivals:
        due = started + arrival
        await asyncio.sleep(max(0.0, due - clock()))
        if is_hopeless():
            break
        task = asyncio.create_task(call(choice.choice(sentences), due))
        running[task] = due
        task.add_done_callback(running.pop)
    while running and not is_hopeless():
        await asyncio.wait(set(running), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if running:
        found.is_abandoned = True
        abandoned = list(running)
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
    found.is_abandoned |= is_hopeless()
    return found


class RateSearch:
    """Finds the highest rate that holds: rises until one does not, then halves the gap.

    A rate fails when it has failed twice, since a neighbour's load may fail any.

    Args:
        start: First rate.
        growth: By what it rises.
        precision: Gap at which to stop, as a share of the rate.
    """

    def __init__(self, start: float, *, growth: float = 1.5, precision: float = 0.05) -> None:
        self.best = 0.0
        self.rate: float | None = start
        self._growth = growth
        self._precision = precision
        self._failed: float | None = None
        self._tried_once = False

    def record(self, holds: bool) -> None:
        """Takes what the present rate did and chooses the next; `rate` is None when the search is over."""
        assert self.rate is not None
        if not holds and not self._tried_once:
            self._tried_once = True
            return
        self._tried_once = False
        if holds:
            self.best = self.rate
        else:
            self._failed = self.rate
        if self._failed is None:
            self.rate = self.best * self._growth
        elif not self.best:  # not even the first one held
            self.rate = self._failed / self._growth if self._failed > 1 else None
        elif self._failed - self.best <= self._precision * self._failed:
            self.rate = None
        else:
            self.rate = (self.best + self._failed) / 2
