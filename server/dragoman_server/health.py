"""The state of the server for grpc.health.v1 and the HTTP checks."""

from __future__ import annotations

from collections.abc import Iterable

from grpc_health.v1 import health, health_pb2

from dragoman_server.catalogue import Catalogue

SERVICE_NAME = "dragoman.v1.TranslationService"

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """One state for the server, under "" and the service's name, and one for each model under the model's name."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.servicer = health.aio.HealthServicer()
        self._catalogue = catalogue
        self._is_draining = False

    @property
    def is_alive(self) -> bool:
        """Whether every model's engine runs."""
        return all(served.engine.is_alive for served in self._catalogue.models)

    @property
    def is_ready(self) -> bool:
        """Whether calls are taken and worked on."""
        return self.is_alive and not self._is_draining

    async def refresh(self) -> None:
        """Tells the watchers how things stand."""
        await self._set(("", SERVICE_NAME), self.is_alive)
        for served in self._catalogue.models:
            await self._set((served.name,), served.engine.is_alive)

    async def drain(self) -> None:
        """Says NOT_SERVING under every name, for good."""
        self._is_draining = True
        await self.servicer.enter_graceful_shutdown()

    async def _set(self, names: Iterable[str], is_serving: bool) -> None:
        for name in names:
            await self.servicer.set(name, _SERVING if is_serving else _NOT_SERVING)
