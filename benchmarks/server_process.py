"""A real server in a process of its own, seen from outside: its address, its memory, its CPU time, its metrics."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

_TICKS = os.sysconf("SC_CLK_TCK")

# Short and long ones, as people send them.
SENTENCES = """
Good morning, how did you sleep?
It is raining again.
Where did you put the keys?
The train to Hamburg leaves at ten past seven, and we still have to buy the tickets.
She has been learning the piano for six years.
Thank you.
We would like a table for four by the window, please.
He bought a used car for 3,500 euros last week, although his brother had told him that it was much too old.
Do you want tea or coffee?
I will call you back as soon as I get home.
The museum is closed on Mondays.
They moved to a smaller town because the rent was too high.
My phone is broken, so I could not answer.
The meeting was moved to Thursday at 2 pm.
I have never seen so many stars in the sky as on that night in the mountains, far away from all the towns.
If the weather is good, we will go swimming on Sunday.
The old man sat on the bench and fed the birds.
Our neighbours have two dogs and a cat.
You should see a doctor about that cough.
No!
The book you lent me was better than the film.
We waited for an hour, and then we went home without him.
Could you speak a little more slowly?
The bridge was built more than a hundred years ago, and nobody knows who paid for it.
""".strip().splitlines()


class ServerProcess:
    """A running server.

    Attributes:
        grpc: HOST:PORT of its gRPC side.
        http: HOST:PORT of its metrics.
    """

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        fields = dict(pair.split("=", 1) for pair in line.split()[1:])
        self.grpc, self.http, self.model = fields["grpc"], fields["http"], fields["model"]
        self.description = f"{fields['model']}, {fields['device']}, {fields['precision']}"
        self._process = process

    def memory_bytes(self) -> int:
        """Returns its resident memory; 0 when the process is gone."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def metrics(self) -> dict[str, float]:
        """Returns the present value of every series, by its name with its labels as they are exposed."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


@contextmanager
def server_process(arguments: list[str], *, cpus: set[int] | None = None) -> Iterator[ServerProcess]:
    """Starts a server and stops it in the end.

    Args:
        arguments: Its flags, beside those that give it free ports.
        cpus: Those that it may run on; None leaves the choice to the system.
    """
    command = [sys.executable, "-m", "dragoman_server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--log-level", "warning", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        if cpus:
            os.sched_setaffinity(process.pid, cpus)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise click.ClickException("the server did not start")
        yield ServerProcess(process, line)
    finally:
        process.terminate()
        process.wait()


def split_cpus() -> tuple[set[int], set[int]]:
    """Returns the CPUs for the server and the one for its clients; with a single CPU they share it."""
    *servers, client = sorted(os.sched_getaffinity(0))
    return set(servers) or {client}, {client}


def peak_memory(samples: list[tuple[float, int]], start: float, end: float) -> int:
    """Returns the largest of the samples that were taken in a span of time."""
    return max((memory for time, memory in samples if start <= time <= end), default=0)
