import io
import json
import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIRequestHandler, make_server

import prometheus_client
import pytest
from rich.console import Console

from dragoman_client.commands.watch import bars, duration, read_figures, watch_metrics
from dragoman_client.exposition import Metrics, MetricsError
from tests.client.command_line import Dragoman


class _Quiet(WSGIRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def http_address() -> Iterator[str]:
    """A real scrape target on which every reading finds ten tokens more."""
    registry = prometheus_client.CollectorRegistry()
    tokens = prometheus_client.Counter("dragoman_target_tokens", ".", ["model"], registry=registry)
    prometheus_client.Gauge("dragoman_build_info", ".", registry=registry).set(1)
    prometheus_client.Gauge("dragoman_row_slots", ".", registry=registry).set(64)
    expose = prometheus_client.make_wsgi_app(registry)

    def application(environment, start_response):  # type: ignore[no-untyped-def]
        tokens.labels("en-de").inc(10)
        return expose(environment, start_response)

    with make_server("127.0.0.1", 0, application, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_json_prints_an_object_a_refresh(dragoman: Dragoman, http_address: str) -> None:
    result = dragoman(
        "status", "--watch", "--json", "--count", "2", "--interval", "0.1", "--http", http_address
    )

    assert result.exit_code == 0
    documents = [json.loads(line) for line in result.lines]
    assert len(documents) == 2
    for document in documents:
        assert document["reachable"] is True
        assert document["tokens_per_second"] == pytest.approx(10 / document["seconds"], rel=1e-4)
        assert document["row_slots"] == 64
        assert document["latency_p50_seconds"] is None


def test_pipe_gets_a_line_a_refresh(
    dragoman: Dragoman, http_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_HTTP", http_address)

    [line] = dragoman("status", "--watch", "--count", "1", "--interval", "0.1").lines

    assert "tokens/s" in line
    assert "0 of 64 rows" in line


def test_terminal_shows_the_figures_in_place(http_address: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)

    watch_metrics(http_address, console, interval=0.1, count=2, as_json=False)

    shown = screen.getvalue()
    for label in ("requests/s", "tokens/s", "rows running", "waiting", "latency p95", "● live"):
        assert label in shown


def test_missing_http_side_exits_1_with_the_option_to_give(dragoman: Dragoman) -> None:
    result = dragoman("status", "--watch", "--http", "127.0.0.1:1")

    assert result.exit_code == 1
    assert result.stderr == (
        "Error: no metrics at http://127.0.0.1:1/metrics; give the server's HTTP address with --http\n"
    )


def test_server_that_goes_away_is_waited_for() -> None:
    answers: list[Metrics | None] = [
        Metrics("dragoman_target_tokens_total 0"),
        None,
        Metrics("dragoman_target_tokens_total 60"),
    ]
    times = iter([0.0, 2.0])

    def fetch() -> Metrics:
        answer = answers.pop(0)
        if answer is None:
            raise MetricsError("gone")
        return answer

    waits: list[float] = []
    gone, back = read_figures(fetch, interval=1, count=2, sleep=waits.append, clock=lambda: next(times))

    assert gone is None
    assert back is not None
    assert (back.seconds, back.tokens_per_second) == (2.0, 30.0)
    assert waits == [1, 1]


@pytest.mark.parametrize("as_json", [False, True])
def test_interrupt_ends_the_watch_well(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    readings = iter([Metrics("")])

    def read_once_then_interrupt(url: str, *, timeout: float) -> Metrics:
        try:
            return next(readings)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("dragoman_client.commands.watch.fetch_metrics", read_once_then_interrupt)
    screen = io.StringIO()

    watch_metrics("host:1", Console(file=screen), interval=0.001, count=None, as_json=as_json)

    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    ("values", "top", "drawn"),
    [([0, 1, 2, 4], None, "▁▃▅█"), ([None, 0.0], None, " ▁"), ([32, 64], 64.0, "▅█"), ([], None, "")],
)
def test_bars_are_as_high_as_their_values(values: list[float | None], top: float | None, drawn: str) -> None:
    assert bars(values, top) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (0.9999, "1 s"), (2.345, "2.35 s")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
