"""What a server's calls hold on to: rows, places in the queue, caches, futures, handlers."""

from __future__ import annotations

from dragoman_model.batch import RunningBatch
from dragoman_server.engine import Engine
from tests.integration.servers import RunningServer, until


def engine_of(server: RunningServer) -> Engine:
    (served,) = server.app._catalogue.models
    return served.engine


def held(server: RunningServer) -> dict[str, int]:
    """Returns what calls hold on to; all zero where none is running."""
    engine = engine_of(server)
    batch, scheduler = engine._batch, engine._scheduler
    roster = scheduler._roster
    assert isinstance(batch, RunningBatch)
    return {
        # A copy: the engine's thread adds and drops groups meanwhile.
        "cached rows": sum(group.cache.num_rows for group in list(batch._groups.values())),
        "rows": scheduler._admission.num_rows,
        "waiting": scheduler._admission.num_waiting,
        "calls": len(scheduler._calls),
        "sentences": len(roster._running) + len(roster._attending) + len(roster._abandoned),
        "futures": len(engine._futures) + len(engine._listeners),
        "places": engine.room._num_held,
        "handlers": server.app.interceptor._running,
    }


async def until_nothing_is_held(server: RunningServer) -> None:
    await until(lambda: not any(held(server).values()))
