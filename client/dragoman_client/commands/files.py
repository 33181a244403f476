"""A text a line, from a file or a pipe into another: the long jobs of ``dragoman translate``."""

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from dragoman_client.async_translator import AsyncTranslator
from dragoman_client.commands.arguments import Search, flags
from dragoman_client.commands.printing import Numbers, Printer
from dragoman_client.commands.progress import LineProgress
from dragoman_client.commands.shared import Shared, is_terminal
from dragoman_client.errors import DragomanError
from dragoman_client.journal import (
    Journal,
    JournalError,
    count_lines,
    draft_path,
    fingerprint,
    journal_path,
    lock,
)
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


def translate_lines(job: Job, settings: Shared) -> int:
    """Translates each line of the input, and returns the exit code: 1 where a line could not be translated.

    Raises:
        JobError: The job cannot be finished.
        JournalError: There is nothing to go on with, or it is not this job.
        OSError: A file cannot be opened, read or written.
    """
    with _open_input(job.input_path) as source:
        if _is_journaled(source, job):
            return _translate_journaled(job, settings, source)
        if job.resume:
            raise click.UsageError("--resume goes with --input FILE and --output FILE, both regular files")
        with _open_output(job.output_path) as output:
            return _Run(job, settings, source, output, None, 0).translate()


def _translate_journaled(job: Job, settings: Shared, source: BinaryIO) -> int:
    """Translates from file to file, so that it can be gone on with after any interruption."""
    assert job.output_path
    run: _Run | None = None
    try:
        with _open_for_update(job.output_path) as output:
            journal, num_done = _prepare(job, source, output)
            done = False
            try:
                run = _Run(job, settings, source, output, journal, num_done)
                exit_code = run.translate()
                output.flush()
                done = True
            finally:
                journal.close(done=done)
            return exit_code
    except BrokenPipeError:  # of standard error
        raise
    except OSError as error:
        if run is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        raise JobError(f"{where}{error.strerror or error}{run.so_far()}") from error


class _Run:
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

    def translate(self) -> int:
        """Translates what is left, and returns the exit code."""
        console = self._settings.console(stderr=True)
        shown = _shows_bar(self._job.output_path)
        try:
            with LineProgress(console, _size(self._source), num_done=self._num_done, shown=shown) as progress:
                asyncio.run(self._translate(progress))
        except DragomanError as error:
            raise JobError(f"{error}{self.so_far()}") from error
        except KeyboardInterrupt:
            if self._journal is not None:
                click.echo(f"Interrupted{self.so_far()}", err=True)
            raise
        self._printer.warn()
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
            precisions: dict[str, str] | None = None
            async with aclosing(results):
                async for result in results:
                    line = under_way.popleft()
                    if precisions is None and self._journal is not None:
                        # Asked for when the server has answered: before, it may be one that is only starting.
                        listed = await translator.models()
                        precisions = {model.name: model.precision for model in listed.models}
                    self._write(line, result, progress, precisions or {})
                    self._num_done = line.number
                    progress.advance(line, result.translation)
        if reader.num_lines < self._num_done:
            raise JournalError(
                f"{self._job.output_path} holds more lines than the input has: it was changed since the job was "
                "interrupted; leave --resume off to start anew"
            )

    def _write(
        self, line: Line, result: BatchResult, progress: LineProgress, precisions: dict[str, str]
    ) -> None:
        """Writes one line, or leaves its place and says why."""
        if line.error is None and result.translation is not None:
            if self._journal is not None and result.translation.model_digest:
                name = result.translation.model
                self._journal.check_model(name, result.translation.model_digest, precisions.get(name, ""))
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


def _is_journaled(source: BinaryIO, job: Job) -> bool:
    """Says whether the job can be gone on with: both its ends are files that stay."""
    output_path = job.output_path
    if job.input_path is None or output_path is None or "-" in (str(job.input_path), str(output_path)):
        return False
    return _size(source) is not None and (output_path.is_file() or not output_path.exists())


def _prepare(job: Job, source: BinaryIO, output: BinaryIO) -> tuple[Journal, int]:
    """Returns the journal, begun, and the lines that are done; the output stands where the next one goes."""
    assert job.output_path
    path = journal_path(job.output_path)
    options = flags(job.search, target_prefix=job.target_prefix, json=job.as_json)
    now = {"input": fingerprint(source), "options": options}
    journal, num_done, end = Journal(path, now), 0, 0
    if job.resume and os.fstat(output.fileno()).st_size:
        num_done, end = count_lines(output)
        try:
            journal = Journal.load(path, now, num_done)
        except FileNotFoundError:
            raise JournalError(
                f"there is nothing to go on with: {job.output_path} is complete, or no job that was interrupted "
                f"wrote it, since there is no {path}; leave --resume off to start anew"
            ) from None
    output.seek(end)
    output.truncate()
    try:
        journal.begin()
    except OSError as error:
        click.echo(f"Warning: {path}: {error.strerror}; the job cannot be gone on with", err=True)
    return journal, num_done


def _open_input(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens the file, or standard input."""
    if path is not None and str(path) != "-":
        return path.open("rb")
    if is_terminal(sys.stdin):
        click.echo("Reading texts from the terminal, one a line; end with Ctrl-D.", err=True)
    return nullcontext(sys.stdin.buffer)


def _open_output(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens what is written from its start, or standard output."""
    if path is None or str(path) == "-":
        return nullcontext(sys.stdout.buffer)
    return path.open("wb")


def _open_for_update(path: Path) -> BinaryIO:
    """Opens a regular file as it is, made where there was none, and keeps others from writing it.

    Raises:
        JournalError: Another process writes it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    stream = os.fdopen(descriptor, "r+b")
    try:
        lock(stream, path)
    except JournalError:
        stream.close()
        raise
    return stream


def check_paths(input_path: Path | None, output_path: Path | None) -> None:
    """Refuses to write over the input, be it with the output or with its journal.

    Raises:
        click.UsageError: The input is one of the files that would be written.
    """
    if not (input_path and output_path and input_path.is_file()):
        return
    journal = journal_path(output_path)
    if output_path.exists() and input_path.samefile(output_path):
        raise click.UsageError(f"--output would overwrite --input: {output_path}")
    for path in (journal, draft_path(journal)):
        if path.exists() and input_path.samefile(path):
            raise click.UsageError(f"the journal of --output would overwrite --input: {path}")


def _size(stream: BinaryIO) -> int | None:
    """Returns the bytes of a regular file; None where nobody knows."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _shows_bar(output_path: Path | None) -> bool:
    """Says whether a bar can be drawn without getting between the translations."""
    return is_terminal(sys.stderr) and (output_path is not None or not is_terminal(sys.stdout))
