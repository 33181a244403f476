"""A real Prometheus on a free port, asked over its own API."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PAUSE = threading.Event()  # never set; its wait is what keeps a poll from taking a whole core
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Prometheus:
    """A running Prometheus.

    Args:
        address: HOST:PORT of its HTTP side.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **parameters: str) -> Any:
        """Returns an answer's data; an expression that it can't evaluate is an error."""
        query = urllib.parse.urlencode(parameters)
        with _OPENER.open(f"http://{self.address}/api/v1/{path}?{query}", timeout=10) as response:
            answer = json.load(response)
        assert not answer.get("warnings"), answer
        return answer["data"]

    def values(self, expression: str) -> list[float]:
        """Returns the values of an expression's series now."""
        return [float(sample["value"][1]) for sample in self.get("query", query=expression)["result"]]


def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Returns when the condition holds; another process makes it so, and tells nobody."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        _PAUSE.wait(0.1)


@contextmanager
def scraping(target: str, folder: Path, rules: Path) -> Iterator[Prometheus]:
    """Runs a Prometheus that reads a server's metrics, and evaluates the rules, every second.

    Args:
        target: HOST:PORT of the server's HTTP side.
        folder: An empty folder for its data.
        rules: The file of rules.
    """
    config = folder / "prometheus.json"  # YAML holds JSON
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "dragoman", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: process.poll() is not None or "ready to receive web requests" in log.read_text())
        listening = re.search(r'Listening on"? address=(\S+:\d+)', log.read_text())
        assert listening, log.read_text()
        yield Prometheus(listening[1])
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
