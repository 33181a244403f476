"""The bar that a long file is translated under."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from dragoman_client.lines import Line
from dragoman_client.results import Translation


class _TimeColumn(TimeRemainingColumn):
    """The time left, and in the end the time taken."""

    def render(self, task: Task) -> Text:
        return Text.assemble("in " if task.finished else "left ", super().render(task))


class LineProgress:
    """Shows how far a file is, sentences/s and the time left, in the end that taken; nothing unless ``shown``.

    Args:
        console: Where to draw.
        size_bytes: Of the whole input; None where it is not known.
        num_done: Lines that were done before.
        shown: False makes it silent.
    """

    def __init__(self, console: Console, size_bytes: int | None, *, num_done: int, shown: bool) -> None:
        self._progress = Progress(
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[lines]:,} lines", justify="right"),
            TextColumn("{task.fields[rate]:,.1f} sentences/s", justify="right"),
            _TimeColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            disable=not shown,
        )
        self._shown = shown
        self._size_bytes = size_bytes
        self._task = self._progress.add_task("", total=size_bytes, lines=num_done, rate=0.0)
        self._is_resumed = num_done > 0
        self._started = time.monotonic()
        self._sentences = 0

    def advance(self, line: Line, translation: Translation | None) -> None:
        """Counts a line as done; None is one that could not be translated."""
        if self._is_resumed:
            # What was done before says nothing of the speed, and so of the time left.
            self._progress.reset(self._task, total=self._size_bytes, completed=line.end_bytes)
            self._is_resumed = False
        self._sentences += translation.sentence_count if translation else 0
        seconds = time.monotonic() - self._started
        self._progress.update(
            self._task,
            completed=line.end_bytes,
            lines=line.number,
            rate=self._sentences / seconds if seconds > 0 else 0.0,
        )

    def say(self, message: str) -> None:
        """Writes a line to standard error, above the bar."""
        if self._shown:
            self._progress.console.print(message, soft_wrap=True, markup=False, highlight=False)
        else:
            print(message, file=sys.stderr)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
