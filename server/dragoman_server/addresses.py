"""Whether the server's addresses are free."""

from __future__ import annotations

import errno
import socket

from dragoman_server.config import ServerConfig, split_address
from dragoman_server.errors import AddressError


def check_addresses(config: ServerConfig) -> None:
    """Tries both addresses, before a model is loaded and because gRPC says of a failure neither why nor in one line.

    Raises:
        AddressError: One can't be listened on.
    """
    for name, setting in (("listen", config.listen), ("http", config.http)):
        if not setting:
            continue
        host, port = split_address(name, setting)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                reason += f"; give another with --{name}, port 0 for any that is free"
            raise AddressError(f"{name}: can't listen on {setting}: {reason}") from error
