"""A text a line, from a file or a pipe into another, and on from where an interrupted job left off."""

import os
from typing import BinaryIO

import click

from dragoman_client.commands.arguments import flags
from dragoman_client.commands.job import Job, JobError, Run
from dragoman_client.commands.job_files import open_for_update, open_input, open_output, size_of
from dragoman_client.commands.shared import Shared
from dragoman_client.journal import Journal, JournalError, count_lines, fingerprint, journal_path


def translate_lines(job: Job, settings: Shared) -> int:
    """Translates each line of the input, and returns the exit code: 1 where a line could not be translated.

    Raises:
        JobError: The job cannot be finished.
        JournalError: There is nothing to go on with, or it is not this job.
        OSError: A file cannot be opened, read or written.
    """
    with open_input(job.input_path) as source:
        if _is_journaled(source, job):
            return _translate_journaled(job, settings, source)
        if job.resume:
            raise click.UsageError("--resume goes with --input FILE and --output FILE, both regular files")
        with open_output(job.output_path) as output:
            return Run(job, settings, source, output, None, 0).translate()


def _translate_journaled(job: Job, settings: Shared, source: BinaryIO) -> int:
    """Translates from file to file, so that it can be gone on with after any interruption."""
    assert job.output_path
    run: Run | None = None
    try:
        with open_for_update(job.output_path) as output:
            journal, num_done = _prepare(job, source, output)
            done = False
            try:
                run = Run(job, settings, source, output, journal, num_done)
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


def _is_journaled(source: BinaryIO, job: Job) -> bool:
    """Says whether the job can be gone on with: both its ends are files that stay."""
    output_path = job.output_path
    if job.input_path is None or output_path is None or "-" in (str(job.input_path), str(output_path)):
        return False
    return size_of(source) is not None and (output_path.is_file() or not output_path.exists())


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
