import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import prometheus_client
import pytest

from dragoman_client.exposition import Metrics, MetricsError, fetch_metrics, metrics_url


def test_what_prometheus_client_writes_is_read() -> None:
    registry = prometheus_client.CollectorRegistry()
    counter = prometheus_client.Counter("calls", "Calls.", ["model", "code"], registry=registry)
    counter.labels('a "b" \\ \n c, d="}', "OK").inc(3)
    counter.labels("x", "INTERNAL").inc(1.5)
    prometheus_client.Histogram("seconds", "Time.", buckets=(0.1, 1), registry=registry).observe(0.5)
    prometheus_client.Gauge("gauge", "Gauge.", registry=registry).set(float("inf"))

    metrics = Metrics(prometheus_client.generate_latest(registry).decode())

    assert list(metrics.samples("calls_total")) == [
        ({"model": 'a "b" \\ \n c, d="}', "code": "OK"}, 3.0),
        ({"model": "x", "code": "INTERNAL"}, 1.5),
    ]
    assert metrics.total("calls_total") == 4.5
    assert list(metrics.samples("seconds_bucket")) == [
        ({"le": "0.1"}, 0),
        ({"le": "1.0"}, 1),
        ({"le": "+Inf"}, 1),
    ]
    assert metrics.total("gauge") == float("inf")
    assert metrics.total("missing") == 0


def test_timestamps_comments_and_noise_are_passed_over() -> None:
    metrics = Metrics(
        "# HELP a b\n# TYPE a counter\na 1 1700000000000\n\nnot a sample at all\nb{} 2\nc NaNs\n"
    )

    assert (metrics.total("a"), metrics.total("b")) == (1, 2)
    assert list(metrics.samples("c")) == []


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/metrics"),
        ("http://host:1", "http://host:1/metrics"),
        ("http://host:1/", "http://host:1/metrics"),
        ("https://host/dragoman/metrics", "https://host/dragoman/metrics"),
    ],
)
def test_address_is_completed(given: str, url: str) -> None:
    assert metrics_url(given) == url


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/metrics": "dragoman_build_info 1\n", "/other": "up 1\n"}
        self.send_response(200 if self.path in pages else 404)
        self.end_headers()
        self.wfile.write(pages.get(self.path, "").encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def http_address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Pages) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_metrics_are_fetched_though_a_proxy_is_set(
    http_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert fetch_metrics(http_address, timeout=5).total("dragoman_build_info") == 1


def test_other_pages_are_told_from_ours(http_address: str) -> None:
    with pytest.raises(MetricsError, match="shows no dragoman server's metrics"):
        fetch_metrics(f"{http_address}/other", timeout=5)
    with pytest.raises(MetricsError, match="answers 404"):
        fetch_metrics(f"{http_address}/nothing", timeout=5)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:1", "ftp://127.0.0.1:1", "http://", "no such host", "127.0.0.1:port"]
)
def test_nothing_there_is_said_with_the_address(url: str) -> None:
    with pytest.raises(MetricsError, match=r"no metrics at .*--http"):
        fetch_metrics(url, timeout=5)
