"""The metrics of another process, asked for at every scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from prometheus_client import CollectorRegistry, Metric


class RemoteMetrics:
    """The asking side, for any thread.

    Args:
        pipe: To the process, where `answer_scrapes` has the other end.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._is_answer_due = False
        self._metrics: list[Metric] = []

    def ask(self) -> None:
        """Asks for what the process holds now, and doesn't wait."""
        if not self._lock.acquire(blocking=False):
            return  # another scrape waits for an answer, which does for this one, too
        try:
            if self._is_answer_due and self._pipe.poll(0):  # late
                self._receive()
            if not self._is_answer_due:
                # Never a second question: they would pile up, and the one too many wait for ever.
                self._pipe.send(None)
                self._is_answer_due = True
        except (OSError, EOFError):
            pass  # it has ended
        finally:
            self._lock.release()

    def take(self, seconds: float) -> Sequence[Metric]:
        """Returns the answer, or that of the last time where none comes within so many seconds."""
        end = time.monotonic() + seconds
        if self._lock.acquire(timeout=seconds):
            try:
                if self._is_answer_due and self._pipe.poll(max(0.0, end - time.monotonic())):
                    self._receive()
            except (OSError, EOFError):
                pass  # it has ended
            finally:
                self._lock.release()
        return self._metrics

    def _receive(self) -> None:
        self._metrics = self._pipe.recv()
        self._is_answer_due = False


def answer_scrapes(registry: CollectorRegistry, pipe: Connection) -> None:
    """Says what a registry holds whenever it is asked, until the other end is gone."""
    try:
        while True:
            pipe.recv()
            pipe.send(list(registry.collect()))
    except (OSError, EOFError):
        pass
