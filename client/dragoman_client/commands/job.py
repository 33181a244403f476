"""A job of ``dragoman translate``, a text a line: what is asked for, and one run of it."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from dragoman_client.async_translator import AsyncTranslator
from dragoman_client.commands.arguments import Search
from dragoman_client.commands.doubts import Numbers, doubts_about
from dragoman_client.commands.job_files import size_of
from dragoman_client.commands.printing import Printer
from dragoman_client.commands.progress import LineProgress
from dragoman_client.commands.shared import Shared, is_terminal
from dragoman_client.errors import DragomanError
from dragoman_client.journal import Journal, JournalError
from dragoman_client.lines import Line, LineReader, read_ahead
from dragoman_client.results import BatchResult

EXIT_FAILED_LINES = 1


class JobError(Exception):
    """A job ended before its end; the message says why, how far it came and how to go on."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to translate, and how.

    Attributes:
        input_path: None or - is standard input.
        output_path: None or - is standard output.
        search: Arguments of each call.
        target_prefix: What each translation starts with.
        as_json: Writes objects instead of text.
        with_links: Adds the word links to each translation.
        resume: Goes on with an interrupted job.
        max_outage_seconds: How long to wait for a server that went away.
    """

    input_path: Path | None
    output_path: Path | None
    search: Search
    target_prefix: str | None
    as_json: bool
    with_links: bool
    resume: bool
    max_outage_seconds: float


class Run:
    """One run of a job, from the first line that is not done.

    Args:
        job: What to translate.
        settings: How to reach the server.
        source: The input, at its start.
        output: Takes what comes next.
        journal: Kept beside the output; None where nothing can be gone on with.
        num_done: Lines that are there already.
    """

    def __init__(
        self,
        job: Job,
        settings: Shared,
        source: BinaryIO,
        output: BinaryIO,
        journal: Journal | None,
        num_done: int,
    ) -> None:
        self._job = job
        self._settings = settings
        self._source = source
        self._printer = Printer(output, as_json=job.as_json, single_lines=True, with_links=job.with_links)
        self._journal = journal
        self._num_done = num_done
        self._failed = Numbers()
        for number in sorted(journal.failed_lines) if journal else ():
            self._failed.add(number)
        for number, doubts in sorted(journal.doubtful_lines.items()) if journal else ():
            self._printer.doubts.add(number, doubts)

    def translate(self) -> int:
        """Translates what is left, and returns the exit code."""
        console = self._settings.console(stderr=True)
        shown = _shows_bar(self._job.output_path)
        try:
            with LineProgress(
                console, size_of(self._source), num_done=self._num_done, shown=shown
            ) as progress:
                asyncio.run(self._translate(progress))
        except DragomanError as error:
            raise JobError(f"{error}{self.so_far()}") from error
        except KeyboardInterrupt:
            if self._journal is not None:
                click.echo(f"Interrupted{self.so_far()}", err=True)
            raise
        self._printer.doubts.warn()
        if not self._failed.count:
            return 0
        click.echo(
            f"Error: {self._failed.count:,} of {self._num_done:,} lines could not be translated; their places are "
            f"{'marked' if self._job.as_json else 'empty'}: line {self._failed}",
            err=True,
        )
        return EXIT_FAILED_LINES

    async def _translate(self, progress: LineProgress) -> None:
        under_way: deque[Line] = deque()
        reader = LineReader(self._source, skip=self._num_done)

        async def texts() -> AsyncIterator[str]:
            async for line in read_ahead(reader):
                under_way.append(line)
                yield line.text  # nothing, where it cannot be read: its place in the order is what it is sent for

        async with AsyncTranslator(
            self._settings.server, timeout=self._settings.timeout, credentials=self._settings.credentials()
        ) as translator:
            results = translator.translate_batch(
                texts(),
                target_prefix=self._job.target_prefix,
                max_outage_seconds=self._job.max_outage_seconds,
                **self._job.search,
            )
            async with aclosing(results):
                async for result in results:
                    line = under_way.popleft()
                    self._check_model(result)
                    self._write(line, result, progress)
                    self._num_done = line.number
                    progress.advance(line, result.translation)
        if reader.num_lines < self._num_done:
            raise JournalError(
                f"{self._job.output_path} holds more lines than the input has: it was changed since the job was "
                "interrupted; leave --resume off to start anew"
            )

    def _check_model(self, result: BatchResult) -> None:
        """Sees to it that all lines of the output are by one model, be it that the server was started anew meanwhile.

        Raises:
            JournalError: This one is by another.
        """
        translation = result.translation
        if self._journal is not None and translation is not None and translation.model_digest:
            self._journal.check_model(translation.model, translation.model_digest, result.precision)

    def _write(self, line: Line, result: BatchResult, progress: LineProgress) -> None:
        """Writes one line, or leaves its place and says why."""
        if line.error is None and result.translation is not None:
            doubts = doubts_about(result.translation)
            if self._journal is not None and doubts:
                self._journal.doubt(line.number, doubts)
            self._printer.write(line.number, line.text, result.translation)
            return
        code, reason = "INVALID_ARGUMENT", line.error
        if reason is None:
            assert result.error
            code, reason = result.error.code.name, result.error.message.removeprefix("text: ")
        progress.say(f"line {line.number}: {reason}")
        self._failed.add(line.number)
        if self._journal is not None:
            self._journal.fail(line.number)
        self._printer.write_failure(None if line.error else line.text, code, reason)

    def so_far(self) -> str:
        """Says how much is done, and how to go on."""
        if self._journal is not None:
            return f"; {self._num_done:,} lines are done, go on with --resume"
        return f"; lines 1 to {self._num_done:,} are done" if self._num_done else ""


def _shows_bar(output_path: Path | None) -> bool:
    """Says whether a bar can be drawn without getting between the translations."""
    return is_terminal(sys.stderr) and (output_path is not None or not is_terminal(sys.stdout))
