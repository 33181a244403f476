"""One line a call, on standard error, as text or JSON; never a user's text."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import stat
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from dragoman_server.metrics import UNKNOWN_MODEL

# For a reader that is slow. As long as nothing is answered, which callers of an overload see.
_PATIENCE_MILLISECONDS = 20


@dataclass
class CallRecord:
    """What is said of a call in the log and the metrics; filled in while it is served.

    Attributes:
        method: Name of the RPC.
        request_id: The caller's, or made here.
        arrived: When it came, in seconds of the monotonic clock.
        model: Name of the model that serves it; UNKNOWN_MODEL until one is found, empty where there is none to find.
        num_texts: Texts that it holds.
    """

    method: str
    request_id: str
    arrived: float
    model: str = UNKNOWN_MODEL
    num_texts: int = 0


current_call: ContextVar[CallRecord] = ContextVar("current_call")


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Logs an event with its fields; none of them may hold a user's text."""
    logger.log(level, event, extra={"fields": fields})


def describe_exception(error: BaseException) -> dict[str, str]:
    """Returns an exception's type and place for the log.

    Its message is left out: a library may have put a user's text there.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = (f"{Path(frame.filename).name}:{frame.lineno}:{frame.name}" for frame in frames)
    return {"exception": type(error).__name__, "at": " > ".join(places)}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        pairs = "".join(f" {name}={_plain(value)}" for name, value in fields.items())
        return f"{_timestamp(record)} {record.levelname} {_message(record)}{pairs}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _timestamp(record), "level": record.levelname.lower(), "event": _message(record)}
        return json.dumps({**line, **getattr(record, "fields", {})}, default=str)


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _message(record: logging.LogRecord) -> str:
    message = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1] is not None:
        description = describe_exception(record.exc_info[1])
        message += f" ({description['exception']} at {description['at']})"
    return message


def _plain(value: object) -> str:
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or any(char in text for char in ' "=\n') else text


class _AnswerLost(logging.Filter):
    """Leaves out what gRPC says of an answer that couldn't leave since its caller was gone: no error, and the call has its line.

    It happens to refusals most of all, whose callers give up while they wait for their turn on the event loop.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        # By its name, for only a private module has it. What could not even be started is a fault of ours, and says otherwise.
        return not (
            type(error).__name__ == "ExecuteBatchError" and str(error).startswith('Failed "execute_batch"')
        )


class _UnblockedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, but none that the stream has no room for: the event loop must not wait for whoever reads the log.

    A pipe that nobody reads and a terminal that was stopped (Ctrl-S) are full for ever, and one whose reader is slow for a moment, for
    which it waits. What was left out is counted and told with the next line that can be written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(_never_waiting(stream))
        self._wait = _waiting_for_room(stream)
        self._num_lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record's line, or counts it."""
        # Where it was waited for in vain it isn't again.
        if not self._wait(0 if self._num_lost else _PATIENCE_MILLISECONDS):
            self._num_lost += 1
            return
        if self._num_lost:
            lost = logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines lost", None, None)
            lost.fields = {"count": self._num_lost}
            self._num_lost = 0
            super().emit(lost)
        super().emit(record)


def _never_waiting(stream: TextIO) -> TextIO:
    """Returns what writes to the same terminal or pipe and rather cuts a line short than waits; anything else as it is.

    They say that they have room where it is for a part of a line, and whoever writes more waits for the rest.
    """
    if sys.platform != "linux":
        return stream
    try:
        number = stream.fileno()
        if not (stream.isatty() or stat.S_ISFIFO(os.fstat(number).st_mode)):
            return stream
        # Opened anew, or whoever else writes to it wouldn't wait either.
        number = os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):  # it is no file, nobody reads it any more, or it is another user's
        return stream
    return io.TextIOWrapper(
        cast(BinaryIO, io.FileIO(number, "w")),
        encoding=stream.encoding,
        errors="backslashreplace",
        write_through=True,
    )


def _waiting_for_room(stream: TextIO) -> Callable[[int], object]:
    """Returns what waits for so many milliseconds at most until a line can be written, and says whether it can."""
    if sys.platform == "win32":  # only sockets can be asked there
        return lambda _: True
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):  # it is no file, or closed
        return lambda _: True
    return poll.poll


LOG_FORMATS = {"text": _TextFormatter, "json": _JsonFormatter}


def set_up_logging(log_format: str, log_level: str, stream: TextIO | None = None) -> None:
    """Sends every logger's lines to ``stream``, standard error by default, in the given format."""
    handler = _UnblockedHandler(stream or sys.stderr)
    handler.addFilter(_AnswerLost())
    handler.setFormatter(LOG_FORMATS[log_format]())
    logging.basicConfig(level=log_level.upper(), handlers=[handler], force=True)
