"""``python -m dragoman_server`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
