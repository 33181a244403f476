"""Real servers in processes of their own, pinned to a core where asked to."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

OURS = ("-m", "dragoman_server", "--http", "", "--log-level", "warning")
BASELINE = (str(Path(__file__).parent / "baseline.py"),)


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    Attributes:
        name: What reports call it.
        address: host:port of its gRPC side.
        pid: Its process.
        precision: In force.
        http: host:port of its metrics; "off" without.
    """

    name: str
    address: str
    pid: int
    precision: str
    http: str = "off"

    def cpu_seconds(self) -> float:
        """Returns the processor time that it and its children have taken so far."""
        return sum(map(_cpu_seconds, _tree(self.pid)))

    def memory_bytes(self) -> int:
        """Returns its resident memory and that of its children; pages that they share count for each."""
        return resident_bytes(self.pid)

    def metrics(self) -> dict[str, float]:
        """Returns the present value of every series, by its name with its labels as they are exposed."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def total(self, *names: str) -> int:
        """Returns the sum of the present values of all series of these metrics, which count whole things."""
        families = tuple(f"{name}{{" for name in names)
        return round(sum(value for name, value in self.metrics().items() if name.startswith(families)))

    def held(self) -> dict[str, float]:
        """Returns what it still works on."""
        families = ("dragoman_running_rows", "dragoman_waiting_requests")
        return {name: value for name, value in self.metrics().items() if name.startswith(families) and value}


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process and its children, 0 where it has just ended; pages that they share count for each."""
    return sum(map(_resident_bytes, _tree(pid)))


def _tree(pid: int) -> list[int]:
    """Returns a process and all that descend from it."""
    children = {
        int(child)
        for task in Path(f"/proc/{pid}").glob("task/*/children")
        for child in task.read_text().split()
    }
    return [pid, *(process for child in children for process in _tree(child))]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))  # user and system time, also of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    # One that has ended and is not yet waited for has a status, but no memory.
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@contextmanager
def running(
    name: str, program: Sequence[str], arguments: Sequence[str] = (), *, core: int | None = None
) -> Iterator[RunningServer]:
    """Starts a server, yields it when it is ready and stops it in the end.

    Args:
        name: For reports.
        program: `OURS` or `BASELINE`.
        arguments: More of the command line.
        core: The CPU that it is pinned to; None leaves it free.
    """

    command = [sys.executable, *program, "--listen", "127.0.0.1:0", *arguments]
    with _pinned(core):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise click.ClickException(f"the server did not start: {name}")
        fields = dict(pair.split("=", 1) for pair in line.split()[1:])
        yield RunningServer(name, fields["grpc"], process.pid, fields["precision"], fields.get("http", "off"))
    finally:
        process.terminate()
        process.wait()


def cores(pinned: bool) -> tuple[int | None, int | None]:
    """Returns the servers' core and the load's; None leaves a process where it is."""
    allowed = sorted(os.sched_getaffinity(0))
    if not pinned or len(allowed) < 2:
        return None, None
    return allowed[0], allowed[-1]


@contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """Keeps this thread on a core; what it starts meanwhile stays there, and so do the threads of that."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running_server(arguments: Sequence[str]) -> Iterator[str]:
    """Starts our server and yields its address; stops it in the end."""
    with running("dragoman", OURS, arguments) as server:
        yield server.address
