import math

import prometheus_client
import pytest

from dragoman_client.exposition import Metrics
from dragoman_client.figures import compute_figures, quantile


class Server:
    """Metrics as the server names them."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()

        def counter(name: str, *labels: str) -> prometheus_client.Counter:
            return prometheus_client.Counter(f"dragoman_{name}", ".", labels, registry=self.registry)

        def histogram(name: str, *labels: str, buckets: tuple[float, ...]) -> prometheus_client.Histogram:
            return prometheus_client.Histogram(
                f"dragoman_{name}", ".", labels, registry=self.registry, buckets=buckets
            )

        self.requests = counter("requests", "method", "model", "code")
        self.sentences = counter("sentences", "model", "finish_reason")
        self.tokens = counter("target_tokens", "model")
        self.seconds = histogram("request_seconds", "method", buckets=(0.1, 0.2, 0.4))
        self.wait = histogram("queue_wait_seconds", "model", buckets=(0.1, 1.0))
        self.rows = histogram("step_rows", "model", buckets=(1, 2, 4))
        self.gauges = {
            name: prometheus_client.Gauge(f"dragoman_{name}", ".", registry=self.registry)
            for name in ("running_rows", "row_slots", "waiting_requests")
        }

    def read(self) -> Metrics:
        return Metrics(prometheus_client.generate_latest(self.registry).decode())


def test_figures_are_those_of_the_time_between_two_readings() -> None:
    server = Server()
    server.requests.labels("TranslateText", "en-de", "OK").inc(1000)
    server.seconds.labels("TranslateText").observe(99)
    before = server.read()
    server.requests.labels("TranslateText", "en-de", "OK").inc(6)
    server.requests.labels("DumpAttention", "en-de", "INTERNAL").inc(2)
    server.sentences.labels("en-de", "eos").inc(10)
    server.tokens.labels("en-de").inc(100)
    for seconds in (0.05, 0.15, 0.15, 0.3):
        server.seconds.labels("TranslateText").observe(seconds)
    server.rows.labels("en-de").observe(3)
    server.rows.labels("en-de").observe(4)
    for name, value in {"running_rows": 4, "row_slots": 64, "waiting_requests": 7}.items():
        server.gauges[name].set(value)

    figures = compute_figures(before, server.read(), 2.0)

    assert figures.requests_per_second == 4
    assert figures.failures_per_second == 1
    assert figures.sentences_per_second == 5
    assert figures.tokens_per_second == 50
    assert (figures.running_rows, figures.row_slots, figures.waiting_requests) == (4, 64, 7)
    assert figures.rows_per_step == 3.5
    assert figures.latency_p50_seconds == pytest.approx(0.15)
    assert figures.latency_p95_seconds == pytest.approx(0.36)
    assert figures.queue_wait_p95_seconds is None


def test_quiet_server_has_rates_of_zero_and_no_latencies() -> None:
    metrics = Server().read()

    figures = compute_figures(metrics, metrics, 1.0)

    assert figures.requests_per_second == 0
    assert (figures.rows_per_step, figures.latency_p50_seconds, figures.latency_p95_seconds) == (
        None,
        None,
        None,
    )


def test_server_that_was_started_anew_counts_from_zero() -> None:
    old, new = Server(), Server()
    old.tokens.labels("en-de").inc(1000)
    new.tokens.labels("en-de").inc(30)

    assert compute_figures(old.read(), new.read(), 1.0).tokens_per_second == 30


@pytest.mark.parametrize(
    ("share", "buckets", "value"),
    [
        (0.5, {1.0: 0.0, 2.0: 0.0, math.inf: 0.0}, None),
        (0.5, {}, None),
        (0.5, {1.0: 10.0, 2.0: 10.0, math.inf: 10.0}, 0.5),
        (0.5, {1.0: 0.0, 2.0: 10.0, math.inf: 10.0}, 1.5),
        (0.95, {1.0: 50.0, 2.0: 100.0, math.inf: 100.0}, 1.9),
        (0.95, {1.0: 50.0, 2.0: 50.0, math.inf: 100.0}, 2.0),
        (1.0, {1.0: 4.0, math.inf: 4.0}, 1.0),
    ],
)
def test_quantile_is_prometheus(share: float, buckets: dict[float, float], value: float | None) -> None:
    assert quantile(share, buckets) == (value if value is None else pytest.approx(value))
