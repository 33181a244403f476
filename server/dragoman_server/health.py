"""The state of the server for grpc.health.v1 and the HTTP checks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable

from grpc_health.v1 import health, health_pb2

from dragoman_server.catalogue import Catalogue
from dragoman_server.heartbeat import EngineState, state_of
from dragoman_server.logs import log_event

logger = logging.getLogger(__name__)

SERVICE_NAME = "dragoman.v1.TranslationService"

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_LOOK_SECONDS = 1.0
# An event loop that seems to hang gets so long to look after all: it may have stood still together with the whole server.
_PATIENCE_SECONDS = 2 * _LOOK_SECONDS


class Health:
    """One state for the server, under "" and the service's name, and one for each model under the model's name.

    An engine can be gone, for good, or hang: it has not begun a step for longer than any honest step takes, nor, without work,
    looked for some. One that hangs may go on again. New calls are refused (`catalogue.ServedModel.find_outage`).

    Args:
        catalogue: The served models.
        hang_seconds: How long an engine must have been silent to count as hung; 0 is never.
        clock: Seconds that only grow.
        patience_seconds: How long an event loop that seems to hang is waited for.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        hang_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self.servicer = health.aio.HealthServicer()
        self._catalogue = catalogue
        self._hang_seconds = hang_seconds
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._looked = clock()
        self._has_looked = threading.Event()
        self._has_looked.set()
        self._is_draining = False

    @property
    def is_alive(self) -> bool:
        """Whether every model's engine runs, and the event loop; for other threads, which alone can see that it hangs."""
        return not self._is_loop_hanging() and self._do_engines_run

    def _is_loop_hanging(self) -> bool:
        if not 0 < self._hang_seconds < self._clock() - self._looked:
            return False
        self._has_looked.clear()
        return not self._has_looked.wait(self._patience_seconds)

    @property
    def is_ready(self) -> bool:
        """Whether calls are taken and worked on."""
        return not self._is_draining and self.is_alive

    @property
    def _do_engines_run(self) -> bool:
        return all(state_of(served.engine) is EngineState.RUNNING for served in self._catalogue.models)

    async def watch(self) -> None:
        """Looks after the engines until it is cancelled; returns where none counts as hung."""
        while self._hang_seconds > 0:
            await asyncio.sleep(min(_LOOK_SECONDS, self._hang_seconds / 4))
            await self.look()

    async def look(self) -> None:
        """Takes note of the engines that hang and of those that go on, and tells the watchers and the log of a change."""
        elapsed, self._looked = self._clock() - self._looked, self._clock()
        self._has_looked.set()
        if elapsed > self._hang_seconds / 2:
            return  # the whole server stood still, stopped in a terminal say, and the engines could not but be silent
        has_changed = False
        for served in self._catalogue.models:
            engine, silence_seconds = served.engine, served.engine.heartbeat.silence_seconds
            hangs = engine.is_alive and silence_seconds > self._hang_seconds
            if hangs == engine.heartbeat.is_missed:
                continue
            has_changed = True
            engine.heartbeat.is_missed = hangs
            if hangs:
                fields = {"model": served.name, "silence_seconds": round(silence_seconds, 1)}
                log_event(logger, logging.CRITICAL, "engine hangs", **fields)
            elif engine.is_alive:
                log_event(logger, logging.WARNING, "engine goes on", model=served.name)
        if has_changed:
            await self.refresh()

    async def refresh(self) -> None:
        """Tells the watchers how things stand."""
        # Not `is_alive`: who gets here is on the event loop, which hangs no longer, however long ago it looked.
        await self._set(("", SERVICE_NAME), self._do_engines_run)
        for served in self._catalogue.models:
            await self._set((served.name,), state_of(served.engine) is EngineState.RUNNING)

    async def drain(self) -> None:
        """Says NOT_SERVING under every name, for good."""
        self._is_draining = True
        await self.servicer.enter_graceful_shutdown()

    async def _set(self, names: Iterable[str], is_serving: bool) -> None:
        for name in names:
            await self.servicer.set(name, _SERVING if is_serving else _NOT_SERVING)
