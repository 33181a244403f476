"""Lines of a file or pipe, as texts: one in for each one out, in windows that fit a call."""

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from dragoman_client.requests import MAX_CHARACTERS_PER_CALL

MAX_LINES_PER_WINDOW = 64
"""As many rows as a server decodes at once by default: small enough that results keep coming."""

MAX_LINE_BYTES = 1 << 20
"""Above any text limit; keeps a file without line ends out of memory."""

_READ_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


class LineError(Exception):
    """A line cannot be sent; the message names it by its number, from 1."""


@dataclass
class Window:
    """Some lines that follow one another.

    Attributes:
        first_line: Number of the first line, from 1.
        texts: The lines without their ends.
        end_bytes: How far into the input they reach.
    """

    first_line: int
    texts: list[str] = field(default_factory=list)
    end_bytes: int = 0


class LineReader:
    """Cuts a binary stream into windows of lines.

    A line ends at LF or CR LF and nowhere else: U+2028, form feeds, NUL and lone CR are part of it. A BOM at the very
    start is dropped. The last line needs no end.

    A window is handed over when it is full, when nothing more can be read without waiting (so that an interactive
    user gets an answer to each line), and at the end.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._number = 0
        self._end_bytes = 0

    def windows(self) -> Iterator[Window]:
        """Yields the windows.

        Raises:
            LineError: A line is not UTF-8, or far too long. The lines before it have been yielded.
        """
        window = Window(first_line=1)
        characters = 0
        for line, more_is_ready in self._lines():
            try:
                text = self._decode(line)
            except LineError:
                if window.texts:
                    yield window
                raise
            if window.texts and characters + len(text) > MAX_CHARACTERS_PER_CALL:
                yield window
                window, characters = Window(first_line=self._number), 0
            window.texts.append(text)
            window.end_bytes = self._end_bytes
            characters += len(text)
            if len(window.texts) == MAX_LINES_PER_WINDOW or not more_is_ready:
                yield window
                window, characters = Window(first_line=self._number + 1), 0
        if window.texts:
            yield window

    def _lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yields each line with its end, and whether another can be had without waiting."""
        rest = b""
        while data := self._read():
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for index, line in enumerate(lines):
                yield line + b"\n", index + 1 < len(lines) or self._is_ready()
            if len(rest) > MAX_LINE_BYTES:
                break
        if rest:
            yield rest, False

    def _decode(self, line: bytes) -> str:
        self._number += 1
        self._end_bytes += len(line)
        if len(line) > MAX_LINE_BYTES:
            raise LineError(f"line {self._number} is longer than {MAX_LINE_BYTES:,} bytes; split it")
        if self._number == 1:
            line = line.removeprefix(_BOM)
        line = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise LineError(
                f"line {self._number} is not UTF-8: byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}; convert the file, for example with iconv"
            ) from error

    def _read(self) -> bytes:
        """Reads what is there, waiting for at least a byte; nothing at the end."""
        try:
            descriptor = self._stream.fileno()
        except OSError:  # not a file of the operating system's
            return self._stream.read(_READ_BYTES)
        # Past Python's buffer, which waits until it is full and whose lock a thread may hold when the program ends.
        return os.read(descriptor, _READ_BYTES)

    def _is_ready(self) -> bool:
        """Says whether reading would not wait; an end of file reads at once, too."""
        try:
            return bool(select.select([self._stream], [], [], 0)[0])
        except (OSError, ValueError):  # a stream in memory, or a system that selects sockets only
            return True
