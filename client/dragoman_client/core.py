"""What both translators share: everything about a call but the waiting."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2

from dragoman_client.channel import Metadata, check_address, with_request_id
from dragoman_client.errors import DragomanError, NotFoundError, error_from_call
from dragoman_client.serving import ServingStatus


@dataclass(frozen=True)
class Call:
    """One call: how to send it and how to explain that it failed.

    Attributes:
        address: Where the server is looked for.
        timeout: Seconds until the call fails; None waits for ever.
        metadata: What travels beside the request, ``x-request-id`` among it.
        request_id: The same id.
    """

    address: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...]
    request_id: str

    @contextmanager
    def raising(self, *, text_offset: int = 0) -> Iterator[None]:
        """Raises gRPC's errors as ours.

        Args:
            text_offset: Where the call's first text stands among the caller's.
        """
        try:
            yield
        except grpc.RpcError as error:
            raise error_from_call(
                error,
                address=self.address,
                timeout=self.timeout,
                request_id=self.request_id,
                text_offset=text_offset,
            ) from error


# gRPC counts nanoseconds in 64 bits; what lies beyond them it takes for a deadline that has passed.
_MAX_TIMEOUT_SECONDS = 365 * 86_400.0


class Core:
    """The settings of a translator, and whether it is closed."""

    def __init__(self, address: str, *, timeout: float | None, metadata: Metadata) -> None:
        self._timeout = _check_timeout(timeout)
        self.address = check_address(address)
        self.closed = False
        self._metadata = tuple(metadata)

    def begin(self, timeout: float | None) -> Call:
        """Returns a new call.

        Args:
            timeout: Seconds; None takes the translator's.

        Raises:
            RuntimeError: The translator is closed.
            ValueError: The timeout is not above 0.
        """
        if self.closed:
            raise RuntimeError("the translator is closed; make a new one")
        metadata, request_id = with_request_id(self._metadata)
        seconds = self._timeout if timeout is None else _check_timeout(timeout)
        return Call(self.address, seconds, metadata, request_id)


def _check_timeout(timeout: float | None) -> float | None:
    """Returns seconds that gRPC can count, or None for ever."""
    if timeout is None:
        return None
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout}; give seconds above 0, or None to wait for ever")
    return timeout if timeout < _MAX_TIMEOUT_SECONDS else None


def read_health(response: health_pb2.HealthCheckResponse) -> ServingStatus:
    """Returns what a health check answered."""
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    return ServingStatus[name]


def read_health_error(error: DragomanError) -> ServingStatus:
    """Returns what a failed health check means, where it means anything.

    Raises:
        DragomanError: The check itself failed.
    """
    if isinstance(error, NotFoundError):
        return ServingStatus.SERVICE_UNKNOWN
    raise error
