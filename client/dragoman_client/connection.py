"""What a blocking client is beside its calls: a channel, opened and closed, and what a server says of itself."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import ListModelsRequest, TranslationServiceStub
from dragoman_client.channel import (
    DEFAULT_ADDRESS,
    DEFAULT_TIMEOUT_SECONDS,
    Metadata,
    open_bulk_channel,
    open_channel,
)
from dragoman_client.closing import Closing
from dragoman_client.core import Core, read_health, read_health_error
from dragoman_client.errors import DragomanError
from dragoman_client.responses import read_models
from dragoman_client.serving import ModelList, ServingStatus


class ServerConnection(Closing):
    """A connection to a server, which lists its models and says how it is; the base of :class:`Translator`."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Metadata = (),
    ) -> None:
        self._core = Core(address, timeout=timeout, metadata=metadata)
        self._credentials = credentials
        self._channel = open_channel(address, credentials)
        self._bulk_channel: grpc.Channel | None = None
        self._stub = TranslationServiceStub(self._channel)
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)

    def models(self, *, timeout: float | None = None) -> ModelList:
        """Returns the served models and the server's limits.

        Args:
            timeout: Seconds; None takes the translator's.

        Raises:
            DragomanError: As :meth:`translate` does.
        """
        call = self._core.begin(timeout)
        with call.raising():
            response = self._stub.ListModels(
                ListModelsRequest(), timeout=call.timeout, metadata=call.metadata
            )
        return read_models(response)

    def health(self, model: str | None = None, *, timeout: float | None = None) -> ServingStatus:
        """Returns whether requests are taken, by ``grpc.health.v1``.

        Args:
            model: Asks for this model; None asks for the server as a whole.
            timeout: Seconds; None takes the translator's.

        Raises:
            UnavailableError: No server answers; this call is never retried.
            DragomanError: As :meth:`translate` does.
        """
        request = health_pb2.HealthCheckRequest(service=model or "")
        call = self._core.begin(timeout)
        try:
            with call.raising():
                response = self._health.Check(request, timeout=call.timeout, metadata=call.metadata)
        except DragomanError as error:
            return read_health_error(error)
        return read_health(response)

    def _connected_for_bulk(self) -> grpc.Channel:
        """Returns the channel of bulk translations, opened at the first of them."""
        if self._bulk_channel is None:
            self._bulk_channel = open_bulk_channel(self._core.address, self._credentials)
        return self._bulk_channel

    def close(self) -> None:
        """Ends the connection; calls that run in other threads fail."""
        self._core.closed = True
        if self._bulk_channel is not None:
            self._bulk_channel.close()
        self._channel.close()
