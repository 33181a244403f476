"""What an interrupt does while modules are imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130  # 128 + SIGINT


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Lets an interrupt end the process without a word until the block ends; for the main thread.

    Python would raise KeyboardInterrupt wherever it stands: at best a traceback of whatever is being imported, and some libraries'
    imports swallow it or make another error of it.
    """
    before = signal.getsignal(signal.SIGINT)
    # Whoever started us wants it ignored, or somebody else sees to it.
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: int | FrameType | None) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)
