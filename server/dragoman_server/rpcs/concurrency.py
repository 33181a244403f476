"""How many calls of a kind run at once."""

from __future__ import annotations

from dragoman_server.errors import QueueFullError


class ConcurrentCalls:
    """Lets so many calls in at once and refuses the others.

    Args:
        method: Name of the RPC.
        limit: Calls at once.
        setting: Of the server, that sets the limit.
    """

    def __init__(self, method: str, limit: int, setting: str) -> None:
        self._method = method
        self._limit = limit
        self._setting = setting
        self._running = 0

    def __enter__(self) -> None:
        if self._running >= self._limit:
            raise QueueFullError(
                f"{self._running} {self._method} calls are running; at most {self._limit} may ({self._setting})"
            )
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
