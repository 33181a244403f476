"""Reads the text format in which a server shows its metrics; as much of it as the client needs."""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

DEFAULT_URL = "http://127.0.0.1:8080"

_NUMBER = r"NaN|[+-]?(?:Inf|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_SAMPLE = re.compile(rf"([A-Za-z_:][\w:]*)(?:\{{(.*)\}})?\s+({_NUMBER})(?:\s+-?\d+)?")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}

Sample = tuple[dict[str, str], float]


class MetricsError(Exception):
    """The metrics cannot be had; the message says where they were looked for and why not."""


class Metrics:
    """One reading of all metrics.

    Args:
        text: In Prometheus' text format; lines that are not are passed over.
    """

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for line in text.split("\n"):
            match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
            if match:
                name, labels, value = match.groups()
                self._samples.setdefault(name, []).append((_read_labels(labels or ""), float(value)))

    def samples(self, name: str) -> Iterator[Sample]:
        """Yields the labels and the value of each series of this name; nothing where there is none."""
        yield from self._samples.get(name, ())

    def total(self, name: str) -> float:
        """Returns the sum over all series of this name."""
        return sum(value for _, value in self.samples(name))


def fetch_metrics(url: str, *, timeout: float) -> Metrics:
    """Returns what a server measures now.

    Args:
        url: Of its HTTP side; ``/metrics`` is added where there is no path, ``http://`` where there is no scheme.
        timeout: Seconds.

    Raises:
        MetricsError: Nothing answers there, or not with metrics.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(metrics_url(url), timeout=timeout) as response:
            text = response.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        raise MetricsError(f"{metrics_url(url)} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise MetricsError(
            f"no metrics at {metrics_url(url)}; give the server's HTTP address with --http"
        ) from error
    metrics = Metrics(text)
    if not any(metrics.samples("dragoman_build_info")):
        raise MetricsError(f"{metrics_url(url)} shows no dragoman server's metrics")
    return metrics


def metrics_url(url: str) -> str:
    """Returns the whole address of the metrics."""
    scheme, _, rest = url.rpartition("://")
    host, _, path = rest.partition("/")
    return f"{scheme or 'http'}://{host}/{path or 'metrics'}"


def _read_labels(text: str) -> dict[str, str]:
    return {
        name: re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), value)
        for name, value in _LABEL.findall(text)
    }
