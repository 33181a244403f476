"""Lines of a file or pipe, as texts: one in for each one out, in little memory."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_BYTES = 1 << 20
"""Above any text limit; keeps a file without line ends out of memory."""

_READ_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the input.

    Attributes:
        number: Its number, from 1.
        text: The line without its end; empty where it cannot be read.
        end_bytes: How far into the input it reaches, its end included.
        error: Why it cannot be read; None where it can.
    """

    number: int
    text: str
    end_bytes: int
    error: str | None = None


class LineReader:
    """Cuts a binary stream into lines.

    A line ends at LF or CR LF and nowhere else: U+2028, form feeds, NUL and lone CR are part of it. A BOM at the very
    start is dropped. The last line needs no end. A line that cannot be read keeps its place.

    Args:
        stream: Read from where it stands, which should be its start.
        skip: Lines to leave out at the start.

    Attributes:
        num_lines: Lines read so far, left out or not.
    """

    def __init__(self, stream: BinaryIO, *, skip: int = 0) -> None:
        self._stream = stream
        self._skip = skip
        self.num_lines = 0
        self._end_bytes = 0
        self._begun = bytearray()  # of the line whose end has not come yet
        self._begun_bytes = 0  # may be more than is kept

    def read(self) -> Iterator[list[Line]]:
        """Yields the lines, as many at a time as can be had without waiting for more."""
        while data := self._read():
            *ended, begun = data.split(b"\n")
            lines = []
            for piece in ended:
                self._grow(piece)
                lines += self._take(end=b"\n")
            self._grow(begun)
            if lines:
                yield lines
        if self._begun_bytes:
            yield self._take(end=b"")

    def _grow(self, piece: bytes) -> None:
        """Adds to the line that has begun; of one that is too long only the length is kept."""
        self._begun_bytes += len(piece)
        if self._begun_bytes <= MAX_LINE_BYTES:
            self._begun += piece
        else:
            self._begun.clear()

    def _take(self, end: bytes) -> list[Line]:
        """Returns the line that has ended; nothing where it is to be left out."""
        data, num_bytes = bytes(self._begun), self._begun_bytes
        self._begun.clear()
        self._begun_bytes = 0
        self.num_lines += 1
        self._end_bytes += num_bytes + len(end)
        if self.num_lines <= self._skip:
            return []
        if num_bytes > MAX_LINE_BYTES:
            return [self._unreadable(f"longer than {MAX_LINE_BYTES:,} bytes; split it")]
        if self.num_lines == 1:
            data = data.removeprefix(_BOM)
        try:
            text = (data.removesuffix(b"\r") if end else data).decode()
        except UnicodeDecodeError as error:
            return [
                self._unreadable(
                    f"not UTF-8: byte {error.start + 1} of the line is 0x{data[error.start]:02x}; "
                    "convert the file, for example with iconv"
                )
            ]
        return [Line(self.num_lines, text, self._end_bytes)]

    def _unreadable(self, reason: str) -> Line:
        return Line(self.num_lines, "", self._end_bytes, reason)

    def _read(self) -> bytes:
        """Reads what is there, waiting for at least a byte; nothing at the end."""
        try:
            descriptor = self._stream.fileno()
        except OSError:  # not a file of the operating system's
            return self._stream.read(_READ_BYTES)
        # Past Python's buffer, which waits until it is full and whose lock a thread may hold when the program ends.
        return os.read(descriptor, _READ_BYTES)


async def read_ahead(reader: LineReader) -> AsyncIterator[Line]:
    """Yields the lines, read in a thread that stays a little ahead.

    The thread is a daemon: it may wait for a terminal's next line when the program ends.

    Raises:
        OSError: The input cannot be read, after the lines before that.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[Line] | Exception | None] = asyncio.Queue(maxsize=1)
    parts = reader.read()

    def read() -> None:
        part: list[Line] | Exception | None
        while True:
            try:
                part = next(parts, None)
            except Exception as error:  # whatever it is, the job's end is told of it
                part = error
            putting = queue.put(part)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()  # the job is over before its input is
                return
            if not isinstance(part, list):
                return

    threading.Thread(target=read, name="read-lines", daemon=True).start()
    while (part := await queue.get()) is not None:
        if isinstance(part, Exception):
            raise part
        for line in part:
            yield line
