"""The files of a job: opened, kept from others, never written over each other."""

import os
import stat
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from dragoman_client.commands.shared import is_terminal
from dragoman_client.journal import JournalError, draft_path, journal_path, lock


def open_input(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens the file, or standard input."""
    if path is not None and str(path) != "-":
        return path.open("rb")
    if is_terminal(sys.stdin):
        click.echo("Reading texts from the terminal, one a line; end with Ctrl-D.", err=True)
    return nullcontext(sys.stdin.buffer)


def open_output(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens what is written from its start, or standard output."""
    if path is None or str(path) == "-":
        return nullcontext(sys.stdout.buffer)
    return path.open("wb")


def open_for_update(path: Path) -> BinaryIO:
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


def size_of(stream: BinaryIO) -> int | None:
    """Returns the bytes of a regular file; None where nobody knows."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
