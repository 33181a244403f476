"""How calls ended: in the metrics, and as one line each in the log."""

from __future__ import annotations

import functools
import logging
import time

from prometheus_client import Counter, Histogram

from dragoman_server.logs import CallRecord, log_event
from dragoman_server.metrics import Metrics

logger = logging.getLogger(__name__)


class CallEnds:
    """Records the end of every call, with labels looked up once."""

    def __init__(self, metrics: Metrics) -> None:
        self._count = metrics.requests.labels
        self._seconds = metrics.request_seconds.labels
        self._refused = functools.cache(metrics.refused.labels)  # of few reasons
        self._known: dict[tuple[str, str, str], tuple[Counter, Histogram]] = {}

    def record(self, call: CallRecord, code: str, refused_for: str | None = None) -> None:
        """Takes a call that ended.

        Args:
            call: What is known of it.
            code: Name of its status.
            refused_for: The reason, where no model work was done.
        """
        seconds = time.monotonic() - call.arrived
        labels = call.method, call.model, code
        if labels not in self._known:  # of few methods, served models and codes
            self._known[labels] = self._count(*labels), self._seconds(call.method, call.model)
        count, observed = self._known[labels]
        count.inc()
        observed.observe(seconds)
        if refused_for is not None:
            self._refused(refused_for).inc()
        if logger.isEnabledFor(logging.INFO):
            log_event(
                logger,
                logging.INFO,
                "call",
                method=call.method,
                model=call.model,
                code=code,
                seconds=round(seconds, 6),
                texts=call.num_texts,
                request_id=call.request_id,
            )
