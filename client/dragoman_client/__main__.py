"""The ``dragoman`` command."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

# gRPC's own lines on standard error would stand between ours; ours say the same in words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from dragoman_client.commands import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED, dragoman
from dragoman_client.commands.job import JobError
from dragoman_client.errors import DragomanError
from dragoman_client.exposition import MetricsError
from dragoman_client.journal import JournalError

EXIT_FAILED = 1


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 2 for bad usage, 1 for a failed job.

    Args:
        arguments: Without the program's name; None takes the process's.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows a question mark
    try:
        result = dragoman.main(arguments, prog_name="dragoman", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (DragomanError, JobError, JournalError, MetricsError) as error:
        return _fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        reason = error.strerror or str(error)
        return _fail(f"{error.filename}: {reason}" if error.filename else reason)


def _drop_output() -> None:
    """Sends what is still in standard output's buffer nowhere; Python would complain of it, too, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    print(f"Error: {message}", file=sys.stderr)
    return EXIT_FAILED


def main() -> NoReturn:
    """Runs the command line and ends the process."""
    # A stream that was closed before we began is None here; nothing comes from it and nothing gets there.
    sys.stdin = sys.stdin or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.exit(run())


if __name__ == "__main__":
    main()
