"""``python -m dragoman_server`` in a process of its own, and how it looks from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from dragoman.v1 import TranslationServiceStub

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "dragoman_server"]
ROOMS = os.pathsep.join(str(ROOT / room) for room in ("proto", "model", "server", "client"))
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}, "PYTHONPATH": ROOMS}


@contextmanager
def started(model: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Starts a server and yields it with what its one line of output says."""
    process = subprocess.Popen(
        [*COMMAND, "--model", str(model), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    kill_hung = threading.Timer(60, process.kill)
    kill_hung.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), process.communicate()[1]
        yield process, dict(pair.split("=", 1) for pair in line.split()[1:])
    finally:
        kill_hung.cancel()
        process.kill()
        process.communicate()


class Server:
    """A server in a process and ways to look at it from outside."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, str]) -> None:
        self.process = process
        self.http = said["http"]
        self.channel = grpc.insecure_channel(said["grpc"])
        self.stub = TranslationServiceStub(self.channel)

    def value(self, name: str, query: str = "") -> float:
        """Returns the sum of a metric's series whose labels hold ``query``."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if re.match(rf"{name}[{{ ]", line) and query in line
        )

    def code(self, path: str) -> int:
        """Returns the status of a page of the HTTP side."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def engines(self) -> list[int]:
        """Returns the processes that it has started."""
        files = Path(f"/proc/{self.process.pid}").glob("task/*/children")
        return sorted(int(child) for file in files for child in file.read_text().split())


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
