"""Windows of lines through a server, several at a time, out in their order."""

import asyncio
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError

from dragoman_client.errors import InvalidRequestError, OverloadedError
from dragoman_client.lines import Window
from dragoman_client.results import Translation

MAX_WINDOWS_UNDER_WAY = 3  # enough to refill rows as they end; more would only crowd the queue
MAX_OVERLOADED_TRIES = 30

Translate = Callable[[list[str]], Awaitable[list[Translation]]]


async def translate_windows(
    windows: Iterator[Window], translate: Translate
) -> AsyncGenerator[tuple[Window, list[Translation]]]:
    """Yields each window with its translations, in order; holds only a few windows in memory.

    An error of the input is raised after everything before it has been yielded.

    Args:
        windows: May block; read in a thread of its own.
        translate: Translates one window's texts.

    Raises:
        InvalidRequestError: A line is refused; the message names it by its number.
        DragomanError: The server failed otherwise.
        LineError: The input cannot be read.
    """
    source = _read_ahead(windows)
    pending: deque[tuple[Window, asyncio.Task[list[Translation]]]] = deque()
    reading: asyncio.Task[Window | Exception | None] | None = asyncio.create_task(source.get())
    failure: Exception | None = None
    try:
        while reading or pending:
            waiting: set[asyncio.Task[object]] = set()
            if reading and len(pending) < MAX_WINDOWS_UNDER_WAY:
                waiting.add(reading)
            if pending:
                waiting.add(pending[0][1])
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if pending and pending[0][1].done():
                window, task = pending.popleft()
                yield window, await task
            elif reading and reading.done():
                item = reading.result()
                reading = None
                if isinstance(item, Window):
                    pending.append((item, asyncio.create_task(_translate_window(item, translate))))
                    reading = asyncio.create_task(source.get())
                else:
                    failure = item
    finally:
        left: list[asyncio.Task[object]] = [task for _, task in pending]
        if reading:
            left.append(reading)
        for unfinished in left:
            unfinished.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    if failure:
        raise failure


async def _translate_window(window: Window, translate: Translate) -> list[Translation]:
    """Translates a window, and says what is done where a line is refused."""
    try:
        return await _translate_part(window, translate)
    except InvalidRequestError as error:
        if window.first_line == 1:
            raise
        raise _reworded(error, f"{error.message}; lines 1 to {window.first_line - 1} are done") from error


async def _translate_part(window: Window, translate: Translate) -> list[Translation]:
    """Translates a window or a part of one. A long job outwaits a busy server, and names the line that is at fault."""
    for tries in range(1, MAX_OVERLOADED_TRIES + 1):
        try:
            return await translate(window.texts)
        except OverloadedError as error:
            if tries == MAX_OVERLOADED_TRIES:
                raise
            await asyncio.sleep(error.retry_after_seconds or 1.0)
        except InvalidRequestError as error:
            if len(window.texts) > 1 and _holds_too_much(error):
                return await _translate_halves(window, translate)
            raise _reworded(error, _name_lines(error.message, window.first_line)) from error
    raise AssertionError("the last try returns or raises")


def _holds_too_much(error: InvalidRequestError) -> bool:
    """Says whether it is all texts together that are refused: a server may take fewer than a window holds."""
    return any(violation.field == "texts" for violation in error.field_violations)


async def _translate_halves(window: Window, translate: Translate) -> list[Translation]:
    """Translates a window in two calls, one after the other."""
    middle = len(window.texts) // 2
    translations: list[Translation] = []
    for start, texts in ((0, window.texts[:middle]), (middle, window.texts[middle:])):
        half = Window(window.first_line + start, texts, window.end_bytes)
        translations += await _translate_part(half, translate)
    return translations


def _reworded(error: InvalidRequestError, message: str) -> InvalidRequestError:
    return InvalidRequestError(
        message,
        code=error.code,
        reason=error.reason,
        field_violations=error.field_violations,
        request_id=error.request_id,
    )


def _name_lines(message: str, first_line: int) -> str:
    """Says lines where the server counts the call's texts."""
    return re.sub(r"\btexts\[(\d+)\]", lambda match: f"line {first_line + int(match[1])}", message)


def _read_ahead(windows: Iterator[Window]) -> asyncio.Queue[Window | Exception | None]:
    """Returns a queue of the windows, then None or the error that ended them.

    The thread is a daemon: it may wait for a terminal's next line when the program ends.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Window | Exception | None] = asyncio.Queue(maxsize=1)

    def read() -> None:
        item: Window | Exception | None
        while True:
            try:
                item = next(windows, None)
            except Exception as error:  # whatever it is, the job's end is told of it
                item = error
            putting = queue.put(item)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()  # the job is over before its input is
                return
            if not isinstance(item, Window):
                return

    threading.Thread(target=read, name="read-lines", daemon=True).start()
    return queue
