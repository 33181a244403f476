"""A sign of life that a loop gives at every turn, for whoever must know whether it still turns."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable

_DOUBLE_BYTES = 8


class Heartbeat:
    """When a loop last began a turn, in memory that a process forked later shares.

    One writes and any number read, without a lock: what is read is only as true as the moment.

    Args:
        clock: Seconds that only grow, the same in every process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = memoryview(mmap.mmap(-1, _DOUBLE_BYTES)).cast("d")
        self.beat()

    def beat(self) -> None:
        """Says that a turn begins."""
        self._last[0] = self._clock()

    @property
    def silence_seconds(self) -> float:
        """How long ago the last turn began."""
        return self._clock() - self._last[0]
