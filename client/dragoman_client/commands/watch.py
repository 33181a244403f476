"""The live figures of ``dragoman status --watch``."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.exposition import Metrics, MetricsError, fetch_metrics, metrics_url
from dragoman_client.figures import Figures, compute_figures

FETCH_TIMEOUT_SECONDS = 5.0
HISTORY = 40  # refreshes that a line of bars shows

_BARS = "▁▂▃▄▅▆▇█"


def watch_metrics(url: str, console: Console, *, interval: float, count: int | None, as_json: bool) -> None:
    """Shows a server's figures until Ctrl-C, or ``count`` times.

    Args:
        url: Of the server's HTTP side.
        console: Where to draw; on a terminal in place, otherwise a line a refresh.
        interval: Seconds between two refreshes.
        count: None goes on for ever.
        as_json: Prints objects instead.

    Raises:
        MetricsError: There are no metrics to begin with. A server that goes away later is waited for.
    """
    figures = read_figures(
        lambda: fetch_metrics(url, timeout=FETCH_TIMEOUT_SECONDS), interval=interval, count=count
    )
    with suppress(KeyboardInterrupt):
        if as_json:
            for number in figures:
                print_json({"reachable": number is not None, **as_document(asdict(number) if number else {})})
        elif console.is_terminal:
            _draw(figures, console, url)
        else:
            for number in figures:
                click.echo(_line(number))


def read_figures(
    fetch: Callable[[], Metrics],
    *,
    interval: float,
    count: int | None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Figures | None]:
    """Yields the figures of each interval; None where the server could not be read.

    Raises:
        MetricsError: The very first reading failed.
    """
    before, read_at = fetch(), clock()
    done = 0
    while count is None or done < count:
        sleep(interval)
        try:
            after, now = fetch(), clock()
        except MetricsError:
            yield None
        else:
            yield compute_figures(before, after, max(now - read_at, 1e-9))
            before, read_at = after, now
        done += 1


def _draw(figures: Iterator[Figures | None], console: Console, url: str) -> None:
    """Draws in place."""
    history: deque[Figures] = deque(maxlen=HISTORY)
    with Live(Text(f"reading {metrics_url(url)} …", "dim"), console=console, auto_refresh=False) as live:
        for number in figures:
            if number:
                history.append(number)
            live.update(_panel(url, history, reachable=number is not None), refresh=True)


def _panel(url: str, history: deque[Figures], *, reachable: bool) -> Group:
    """Returns one frame."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    table.add_column(style="cyan", no_wrap=True)
    state = Text("● live", "green") if reachable else Text("● no answer; still trying", "red")
    headline = Text(metrics_url(url)).append("  ").append_text(state)
    if not history:
        return Group(headline)
    now = history[-1]

    def row(
        label: str, value: str, series: Callable[[Figures], float | None], top: float | None = None
    ) -> None:
        table.add_row(label, value, bars([series(figures) for figures in history], top))

    row("requests/s", f"{now.requests_per_second:,.1f}", lambda figures: figures.requests_per_second)
    row("failures/s", f"{now.failures_per_second:,.1f}", lambda figures: figures.failures_per_second)
    row("sentences/s", f"{now.sentences_per_second:,.1f}", lambda figures: figures.sentences_per_second)
    row("tokens/s", f"{now.tokens_per_second:,.0f}", lambda figures: figures.tokens_per_second)
    row(
        "rows running",
        f"{now.running_rows} of {now.row_slots}",
        lambda figures: figures.running_rows,
        float(now.row_slots),
    )
    rows = "–" if now.rows_per_step is None else f"{now.rows_per_step:.1f}"
    row("rows per step", rows, lambda figures: figures.rows_per_step, float(now.row_slots))
    row("waiting", f"{now.waiting_requests:,}", lambda figures: figures.waiting_requests)
    row("latency p50", duration(now.latency_p50_seconds), lambda figures: figures.latency_p50_seconds)
    row("latency p95", duration(now.latency_p95_seconds), lambda figures: figures.latency_p95_seconds)
    row("queue p95", duration(now.queue_wait_p95_seconds), lambda figures: figures.queue_wait_p95_seconds)
    return Group(headline, Text(), table, Text(), Text("Ctrl-C ends", "dim"))


def bars(values: list[float | None], top: float | None = None) -> str:
    """Returns a value a column, as high as its part of ``top``; None takes the highest. A gap stands for no value."""
    highest = top or max((value for value in values if value is not None), default=0.0)
    return "".join(
        " " if value is None else _BARS[min(len(_BARS) - 1, int(value / (highest or 1.0) * len(_BARS)))]
        for value in values
    )


def duration(seconds: float | None) -> str:
    """Returns a time with three digits at most; a dash for none."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _line(figures: Figures | None) -> str:
    """Returns a frame as one line, for a log."""
    if figures is None:
        return "no answer"
    return (
        f"{figures.requests_per_second:.1f} requests/s  {figures.failures_per_second:.1f} failures/s  "
        f"{figures.sentences_per_second:.1f} sentences/s  {figures.tokens_per_second:.0f} tokens/s  "
        f"{figures.running_rows} of {figures.row_slots} rows  {figures.waiting_requests} waiting  "
        f"p50 {duration(figures.latency_p50_seconds)}  p95 {duration(figures.latency_p95_seconds)}"
    )
