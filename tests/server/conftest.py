from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from dragoman_server import event_loop
from dragoman_server.engine import Engine
from dragoman_server.errors import DrainingError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.metrics import Metrics
from dragoman_server.scheduler import Scheduler
from tests.server.fakes import FakeBatch, ManualClock, Start


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs the server's tests on the event loop that it is served with."""
    return {"as served": event_loop.new_event_loop}


@pytest.fixture
def batch() -> FakeBatch:
    return FakeBatch()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def start(batch: FakeBatch, clock: ManualClock) -> AsyncIterator[Start]:
    """Starts engines, which are stopped in the end."""
    engines = []

    def start_engine(limits: SchedulerLimits | None = None, **more: object) -> Engine:
        scheduler = Scheduler(limits or SchedulerLimits(), Metrics(CollectorRegistry()).of_model("m"), clock)
        engine = Engine("m", batch, scheduler, clock=clock, **more)
        engine.start()
        engines.append(engine)
        return engine

    yield start_engine
    if batch.gate is not None:
        batch.gate.release(1_000_000)
    for engine in engines:
        engine.stop(DrainingError())
        engine.join(10)
