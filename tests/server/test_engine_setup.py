"""Engines that end together."""

from __future__ import annotations

from dataclasses import dataclass, field

from dragoman_server.engine_setup import join_all
from tests.server.fakes import ManualClock


@dataclass
class FakeEngine:
    clock: ManualClock
    ends_after: float
    given: list[float] = field(default_factory=list)

    def join(self, seconds: float) -> None:
        self.given.append(seconds)
        self.clock.now += min(seconds, self.ends_after)


def test_engines_that_hang_are_waited_for_together():
    clock = ManualClock()
    engines = [FakeEngine(clock, seconds) for seconds in (2.0, 1000.0, 1000.0)]
    join_all(engines, 5.0, clock)
    assert [engine.given for engine in engines] == [[5.0], [3.0], [0.0]]
