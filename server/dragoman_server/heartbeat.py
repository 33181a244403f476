"""A sign of life that a loop gives at every turn, for whoever must know whether it still turns."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

_DOUBLE_BYTES = 8


class Heartbeat:
    """When a loop last began a turn, in memory that a process forked later shares.

    One writes and any number read, without a lock: what is read is only as true as the moment.

    Args:
        clock: Seconds that only grow, the same in every process.

    Attributes:
        is_missed: Whether whoever watches it has waited too long for the next one. He says so in his own process; the time alone
            doesn't, since the whole server may have stood still.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = memoryview(mmap.mmap(-1, _DOUBLE_BYTES)).cast("d")
        self.is_missed = False
        self.beat()

    def beat(self) -> None:
        """Says that a turn begins."""
        self._last[0] = self._clock()

    @property
    def silence_seconds(self) -> float:
        """How long ago the last turn began."""
        return self._clock() - self._last[0]


class EngineState(Enum):
    """How an engine does, as those who watch the server are told."""

    RUNNING = "running"
    HUNG = "hung"
    """It may go on."""
    GONE = "gone"
    """It doesn't."""


class Watched(Protocol):
    """What is looked at of an engine."""

    @property
    def heartbeat(self) -> Heartbeat:
        """Its own."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it takes calls, though it may hang over one; once False it stays so."""
        ...


def state_of(engine: Watched) -> EngineState:
    """Returns how an engine does."""
    if not engine.is_alive:
        return EngineState.GONE
    return EngineState.HUNG if engine.heartbeat.is_missed else EngineState.RUNNING
