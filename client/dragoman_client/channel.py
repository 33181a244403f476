"""How the client connects: retries, keepalive, limits, metadata."""

import json
import uuid
from collections.abc import Sequence

import grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"
DEFAULT_TIMEOUT_SECONDS = 60.0

Metadata = Sequence[tuple[str, str | bytes]]

_LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0", "unix:")

SERVICE_CONFIG = json.dumps(
    {
        "methodConfig": [
            {
                # What these do changes nothing on the server, so they may be sent again; gRPC itself does so only until
                # the first answer comes, so that a stream repeats nothing.
                "name": [
                    {"service": "dragoman.v1.TranslationService", "method": "TranslateText"},
                    {"service": "dragoman.v1.TranslationService", "method": "StreamTranslateText"},
                    {"service": "dragoman.v1.TranslationService", "method": "ScoreText"},
                    {"service": "dragoman.v1.TranslationService", "method": "ListModels"},
                ],
                # A server that is not there is reported after 0.1 + 0.2 + 0.4 s at most. One that is busy says
                # how long to wait (grpc-retry-pushback-ms), which takes the place of the backoff.
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "2s",
                    "backoffMultiplier": 2,
                    # A server that stops lets gRPC cancel what comes on its open connections, before any of its code runs.
                    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
                },
            }
        ],
        # Ten failures more than successes stop the retries of a channel: they must not drown a server in trouble.
        "retryThrottling": {"maxTokens": 20, "tokenRatio": 0.5},
    }
)


def channel_options(address: str) -> list[tuple[str, str | int]]:
    """Returns gRPC's channel arguments for the server at ``address``."""
    options: list[tuple[str, str | int]] = [
        ("grpc.service_config", SERVICE_CONFIG),
        ("grpc.primary_user_agent", "dragoman-client"),
        # 256 texts of 20,000 characters with their tokens stay under this.
        ("grpc.max_send_message_length", 64 * 1024 * 1024),
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        # Finds a dead peer during a call. Servers answer pings that come oftener than they like with GOAWAY.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # How long to try one address that swallows packets (gRPC's own is 20 s).
        ("grpc.min_reconnect_backoff_ms", 5_000),
        # A bulk translation outlives a server that is started anew, and must not find out two minutes later (gRPC's own).
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    if address.startswith(_LOOPBACK):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def open_channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """Returns a channel to the server at ``address``, in plain text where there are no credentials."""
    return _open(address, credentials, channel_options(address))


def open_bulk_channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
    """Returns what :func:`open_channel` does, for bulk translations, which send again by themselves what has no answer.

    With gRPC's retries, which are none for them, a call that is made in the moment in which the server ends may never end.
    """
    return _open(address, credentials, [*channel_options(address), ("grpc.enable_retries", 0)])


def open_async_channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """Returns what :func:`open_channel` does, for the event loop that runs now."""
    options = channel_options(address)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, credentials, options)


def _open(
    address: str, credentials: grpc.ChannelCredentials | None, options: list[tuple[str, str | int]]
) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


def with_request_id(metadata: Metadata) -> tuple[tuple[tuple[str, str | bytes], ...], str]:
    """Returns the call's metadata with an ``x-request-id``, made where the caller gave none, and that id."""
    for key, value in metadata:
        if key == "x-request-id":
            return tuple(metadata), value if isinstance(value, str) else value.decode()
    request_id = uuid.uuid4().hex
    return (*metadata, ("x-request-id", request_id)), request_id


def check_address(address: str) -> str:
    """Returns the address as it is.

    Raises:
        ValueError: It is not HOST:PORT.
    """
    address.encode()  # or a UnicodeEncodeError, which is a ValueError
    host, _, port = address.rpartition(":")
    if address.startswith(("unix:", "dns:", "ipv4:", "ipv6:")) or (
        host and "/" not in host and port.isascii() and port.isdigit() and int(port) < 65_536
    ):
        return address
    raise ValueError(f"{address!r} is not HOST:PORT, such as {DEFAULT_ADDRESS}")
