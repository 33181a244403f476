from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman_server import event_loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Runs the server's tests on the event loop that it is served with."""
    return {"as served": event_loop.new_event_loop}
