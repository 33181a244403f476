"""What a person wants to know of a running server, from two readings of its metrics."""

import math
from dataclasses import dataclass

from dragoman_client.exposition import Metrics


@dataclass(frozen=True, kw_only=True)
class Figures:
    """How a server did between two readings.

    Attributes:
        seconds: Time between them.
        requests_per_second: Calls that ended.
        failures_per_second: Calls that ended with another code than OK.
        sentences_per_second: Sentences that ended.
        tokens_per_second: Target tokens made.
        running_rows: Rows that are being decoded now.
        row_slots: Rows that may be.
        waiting_requests: Sentences that wait for a row now.
        rows_per_step: Mean rows of the decoding steps; None where there was none.
        latency_p50_seconds: Median time of a call; None where none ended.
        latency_p95_seconds: Time within which 95 % of the calls ended; None where none did.
        queue_wait_p95_seconds: Time within which 95 % of the sentences got a row; None where none did.
    """

    seconds: float
    requests_per_second: float
    failures_per_second: float
    sentences_per_second: float
    tokens_per_second: float
    running_rows: int
    row_slots: int
    waiting_requests: int
    rows_per_step: float | None
    latency_p50_seconds: float | None
    latency_p95_seconds: float | None
    queue_wait_p95_seconds: float | None


def compute_figures(before: Metrics, after: Metrics, seconds: float) -> Figures:
    """Returns the figures of the time between two readings.

    Args:
        before: The earlier reading.
        after: The later one; counters that fell belong to a server that was started anew.
        seconds: Between them, above 0.
    """
    steps = _increase(before, after, "dragoman_step_rows_count")
    rows = _increase(before, after, "dragoman_step_rows_sum")
    requests = _bucket_increases(before, after, "dragoman_request_seconds")
    waits = _bucket_increases(before, after, "dragoman_queue_wait_seconds")
    return Figures(
        seconds=seconds,
        requests_per_second=_increase(before, after, "dragoman_requests_total") / seconds,
        failures_per_second=_increase(before, after, "dragoman_requests_total", without=("code", "OK"))
        / seconds,
        sentences_per_second=_increase(before, after, "dragoman_sentences_total") / seconds,
        tokens_per_second=_increase(before, after, "dragoman_target_tokens_total") / seconds,
        running_rows=int(after.total("dragoman_running_rows")),
        row_slots=int(after.total("dragoman_row_slots")),
        waiting_requests=int(after.total("dragoman_waiting_requests")),
        rows_per_step=rows / steps if steps else None,
        latency_p50_seconds=quantile(0.5, requests),
        latency_p95_seconds=quantile(0.95, requests),
        queue_wait_p95_seconds=quantile(0.95, waits),
    )


def quantile(share: float, buckets: dict[float, float]) -> float | None:
    """Returns the value below which a share of the observations lies, linear within a bucket as Prometheus does it.

    Args:
        share: 0 to 1.
        buckets: Upper bound → observations at or below it, infinity among the bounds.

    Returns:
        None where nothing was observed; the highest finite bound where the value lies above it.
    """
    bounds = sorted(buckets)
    count = buckets.get(math.inf, 0.0)
    if not count:
        return None
    wanted = share * count
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted and buckets[bound] > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted - below) / (buckets[bound] - below)
        lower, below = (lower if math.isinf(bound) else bound), buckets[bound]
    return lower


def _increase(before: Metrics, after: Metrics, name: str, without: tuple[str, str] | None = None) -> float:
    """Returns by how much all series of a counter grew together, leaving out those with a label's value."""
    earlier = {frozenset(labels.items()): value for labels, value in before.samples(name)}
    increase = 0.0
    for labels, value in after.samples(name):
        if without and labels.get(without[0]) == without[1]:
            continue
        start = earlier.get(frozenset(labels.items()), 0.0)
        increase += value - start if value >= start else value
    return increase


def _bucket_increases(before: Metrics, after: Metrics, name: str) -> dict[float, float]:
    """Returns a histogram of what was observed between two readings, all series together."""
    earlier = {frozenset(labels.items()): value for labels, value in before.samples(f"{name}_bucket")}
    buckets: dict[float, float] = {}
    for labels, value in after.samples(f"{name}_bucket"):
        start = earlier.get(frozenset(labels.items()), 0.0)
        bound = float(labels.get("le", "nan"))
        buckets[bound] = buckets.get(bound, 0.0) + (value - start if value >= start else value)
    return buckets
