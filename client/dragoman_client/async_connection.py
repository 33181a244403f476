"""What the asyncio client is beside its calls: the blocking one's twin."""
# ruff: noqa: ASYNC109 - a timeout travels to the server, which then stops too; `asyncio.timeout` would not tell it

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import ListModelsRequest, TranslationServiceStub
from dragoman_client.channel import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_SECONDS,
    Metadata,
    open_async_channel,
    open_bulk_channel,
)
from dragoman_client.closing import AsyncClosing
from dragoman_client.core import Core, read_health, read_health_error
from dragoman_client.errors import DragomanError
from dragoman_client.responses import read_models
from dragoman_client.serving import ModelList, ServingStatus


class AsyncServerConnection(AsyncClosing):
    """A connection to a server, which lists its models and says how it is; the base of :class:`AsyncTranslator`."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
        max_concurrent_calls: int = 2,
    ) -> None:
        if max_concurrent_calls < 1:
            raise ValueError(f"max_concurrent_calls is {max_concurrent_calls}; give 1 or more")
        self._core = Core(address, timeout=timeout, metadata=metadata)
        self._credentials = credentials
        self._max_concurrent_calls = max_concurrent_calls
        self._channel: grpc.aio.Channel | None = None
        self._bulk_channel: grpc.Channel | None = None

    def _connected(self) -> grpc.aio.Channel:
        """Returns the channel, which belongs to the event loop of the first call."""
        if self._channel is None:
            self._channel = open_async_channel(self._core.address, self._credentials)
        return self._channel

    def _connected_for_bulk(self) -> grpc.Channel:
        """Returns the channel of bulk translations, which ``bulk_connection`` explains."""
        if self._bulk_channel is None:
            self._bulk_channel = open_bulk_channel(self._core.address, self._credentials)
        return self._bulk_channel

    async def models(self, *, timeout: float | None = None) -> ModelList:
        """Returns the served models and the server's limits; see :meth:`Translator.models`."""
        call = self._core.begin(timeout)
        with call.raising():
            response = await TranslationServiceStub(self._connected()).ListModels(
                ListModelsRequest(), timeout=call.timeout, metadata=call.metadata
            )
        return read_models(response)

    async def health(self, model: str | None = None, *, timeout: float | None = None) -> ServingStatus:
        """Returns whether requests are taken; see :meth:`Translator.health`."""
        request = health_pb2.HealthCheckRequest(service=model or "")
        call = self._core.begin(timeout)
        try:
            with call.raising():
                response = await self._health_stub().Check(
                    request, timeout=call.timeout, metadata=call.metadata
                )
        except DragomanError as error:
            return read_health_error(error)
        return read_health(response)

    def _health_stub(self) -> Any:
        """Returns the health service's stub, which knows no types."""
        return health_pb2_grpc.HealthStub(self._connected())

    async def close(self) -> None:
        """Ends the connection; calls that still run fail."""
        self._core.closed = True
        if self._bulk_channel is not None:
            self._bulk_channel.close()
        if self._channel is not None:
            await self._channel.close()
