"""The bar that a long file is translated under."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dragoman_client.lines import Window
from dragoman_client.results import Translation


class LineProgress:
    """Shows how far a file is, sentences/s and the time left; nothing unless ``shown``.

    Args:
        console: Where to draw.
        size_bytes: Of the whole input; None where it is not known.
        shown: False makes it silent.
    """

    def __init__(self, console: Console, size_bytes: int | None, *, shown: bool) -> None:
        self._progress = Progress(
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[lines]:,} lines", justify="right"),
            TextColumn("{task.fields[rate]:,.1f} sentences/s", justify="right"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            expand=True,
            disable=not shown,
        )
        self._task = self._progress.add_task("", total=size_bytes, lines=0, rate=0.0)
        self._started = time.monotonic()
        self._lines = 0
        self._sentences = 0

    def advance(self, window: Window, translations: list[Translation]) -> None:
        """Counts a window as done."""
        self._lines += len(translations)
        self._sentences += sum(translation.sentence_count for translation in translations)
        seconds = time.monotonic() - self._started
        self._progress.update(
            self._task,
            completed=window.end_bytes,
            lines=self._lines,
            rate=self._sentences / seconds if seconds > 0 else 0.0,
        )

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
