"""`dragoman translate` from file to file, as a process that is watched, and ended early where it should be."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from servers import RunningServer, resident_bytes

# What the command said last is enough; its bar is drawn again ten times a second.
_KEPT_BYTES = 1 << 14
_READ_BYTES = 1 << 20
# A command that does not end by its signal is killed, and its exit code says so.
_MAX_END_SECONDS = 60


@dataclass(frozen=True)
class Stop:
    """When to end the command, and how: once its output has so many lines."""

    num_lines: int
    signal: signal.Signals


@dataclass(frozen=True)
class Sample:
    """A look at both processes.

    Attributes:
        num_lines: Of the output, so far.
        server_bytes: The server's resident memory.
        command_bytes: The command's.
        in_engine: Sentences that the engine works on or has waiting.
    """

    num_lines: int
    server_bytes: int
    command_bytes: int
    in_engine: int


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        start_lines: Lines of the output before it.
        end_lines: Lines of the output after it.
        exit_code: Minus the signal's number where one ended it.
        seconds: From its start to its end.
        cpu_seconds: Processor time of the command.
        server_cpu_seconds: Of the server meanwhile.
        samples: One a second.
        said: The end of what it wrote to standard error, a terminal; without colours and moves.
    """

    start_lines: int
    end_lines: int
    exit_code: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    samples: list[Sample]
    said: str


class GrowingFile:
    """Counts the lines of a file that is being written, and reads each of them once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = self._num_lines = 0

    def num_lines(self) -> int:
        """Returns how many lines are complete."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            # What stands after the last line end may be cut off when the job is gone on with.
            while end := (data := self._read(file)).rfind(b"\n") + 1:
                self._num_lines += data.count(b"\n")
                self._end += end
        return self._num_lines

    def _read(self, file: BinaryIO) -> bytes:
        file.seek(self._end)
        return file.read(_READ_BYTES)


def run_job(
    server: RunningServer,
    source: Path,
    output: Path,
    *,
    resume: bool,
    stop: Stop | None,
    see: Callable[[Sample], None],
    interval_seconds: float = 1.0,
) -> Run:
    """Runs the command until it ends, or until it is ended.

    Args:
        server: That translates.
        source: The input.
        output: Where the translations go.
        resume: Goes on with what is there.
        stop: When to end it; None lets it come to its end.
        see: Called with each sample.
        interval_seconds: Between two samples.
    """
    command = [sys.executable, "-m", "dragoman_client", "translate", "--server", server.address]
    command += ["--input", str(source), "--output", str(output), *(["--resume"] if resume else [])]
    lines, samples = GrowingFile(output), []
    start_lines = lines.num_lines() if resume else 0
    cpu_seconds, server_cpu_seconds, started = -_ended_cpu_seconds(), -server.cpu_seconds(), time.monotonic()
    with _Terminal() as terminal:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=terminal.slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "24"},
        )
        try:
            while process.poll() is None:
                num_lines = lines.num_lines()
                if stop is not None and num_lines >= stop.num_lines:
                    process.send_signal(stop.signal)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_MAX_END_SECONDS)
                    break
                if command_bytes := resident_bytes(process.pid):
                    in_engine = server.total("dragoman_running_rows", "dragoman_waiting_requests")
                    samples.append(Sample(num_lines, server.memory_bytes(), command_bytes, in_engine))
                    see(samples[-1])
                with suppress(subprocess.TimeoutExpired):
                    process.wait(interval_seconds)
        finally:
            process.kill()
            process.wait()
    return Run(
        start_lines,
        GrowingFile(output).num_lines(),
        process.returncode,
        time.monotonic() - started,
        cpu_seconds + _ended_cpu_seconds(),
        server_cpu_seconds + server.cpu_seconds(),
        samples,
        terminal.text(),
    )


def _ended_cpu_seconds() -> float:
    """Returns the processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class _Terminal:
    """A terminal that nobody looks at; the command draws its bar there as it does for a person.

    Attributes:
        slave: The side that programs write to.
    """

    def __enter__(self) -> _Terminal:
        self._master, self.slave = pty.openpty()
        self._kept = bytearray()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.slave)
        self._reading.join()
        os.close(self._master)

    def text(self) -> str:
        """Returns the end of what was written, without what moves the cursor and colours."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._kept.decode(errors="replace"))
        return re.sub(r"[\r\n]+", "\n", text).strip()

    def _read(self) -> None:
        with suppress(OSError):  # on Linux the end of a terminal is an error
            while data := os.read(self._master, _READ_BYTES):
                self._kept += data
                del self._kept[:-_KEPT_BYTES]
