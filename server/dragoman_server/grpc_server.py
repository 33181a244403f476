"""The gRPC side: how large and how many calls a connection may bring, and where it listens."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from dragoman_server.config import ServerConfig, split_address
from dragoman_server.errors import AddressError

# UTF-8 takes at most 4 bytes a code point; what stands around the texts is small.
_MAX_BYTES_PER_CHARACTER = 4
_MESSAGE_OVERHEAD_BYTES = 1 << 20
_MAX_MESSAGE_BYTES = (1 << 31) - 1
# Calls on one connection that may be on their way to a refusal, which takes a fraction of a millisecond each.
_MAX_REFUSALS = 1000


def build_grpc_server(
    config: ServerConfig, interceptors: Sequence[grpc.aio.ServerInterceptor], num_models: int
) -> grpc.aio.Server:
    """Returns a server without services, which doesn't listen yet.

    Args:
        config: How to serve.
        interceptors: Around every call, the outermost first.
        num_models: How many share it.
    """
    text_bytes = config.max_text_count * config.max_text_characters * _MAX_BYTES_PER_CHARACTER
    return grpc.aio.server(
        interceptors=interceptors,
        options=[
            # Two servers on one port would each get some of the calls; better an error.
            ("grpc.so_reuseport", 0),
            (
                "grpc.max_receive_message_length",
                min(text_bytes + _MESSAGE_OVERHEAD_BYTES, _MAX_MESSAGE_BYTES),
            ),
            # gRPC unpacks a compressed message whole before it looks at the limit above, and a small one may hold
            # gigabytes. Bit 0 is "not compressed".
            ("grpc.compression_enabled_algorithms_bitset", 1),
            # Clients that keep an idle connection open may ask whether it still stands.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            # What comes faster than it can even be refused would pile up in gRPC's own memory without bound. More calls
            # on one connection than could be in work are turned away there, before any of our code (UNAVAILABLE).
            ("grpc.max_concurrent_streams", _max_calls(config, num_models)),
        ],
    )


def bind(server: grpc.aio.Server, address: str) -> str:
    """Lets a server listen, and returns where it does.

    Raises:
        AddressError: It can't.
    """
    host, port = split_address("listen", address)
    target = f"[{host}]" if ":" in host else host
    try:
        port = server.add_insecure_port(f"{target}:{port}")
    except RuntimeError as error:
        raise AddressError(f"listen: can't listen on {address}") from error
    return f"{target}:{port}"


def _max_calls(config: ServerConfig, num_models: int) -> int:
    """Returns how many calls can be in work at once, beside those that are just being refused."""
    of_a_model = (
        config.max_queue_size + config.max_batch_size + config.max_bulk_streams + config.max_attention_calls
    )
    return min(num_models * of_a_model + _MAX_REFUSALS, _MAX_MESSAGE_BYTES)
