"""``dragoman-server``: serves until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Runs the server; where only the client is installed, says what is missing."""
    _fill_standard_streams()
    # Python would raise KeyboardInterrupt wherever it stands, and some libraries' imports, and every fork, swallow that: the
    # server would come up as if nobody had asked it to stop.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_at_once)
    try:
        from dragoman_server.command import main as serve  # noqa: PLC0415 - may not be installed
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dragoman"):
            raise
        print(
            f"dragoman-server: error: {error.name} is not installed; pip install '.[server]' in the checkout",
            file=sys.stderr,
        )
        sys.exit(1)
    serve()


def _fill_standard_streams() -> None:
    """Opens those of the three that whoever started us left closed; else a socket would take their place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # 0 to 2 are the standard streams
        pass
    os.close(number)
    # Which Python has as None then; what is printed there would go to standard output.
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _end_at_once(number: int, _: FrameType | None) -> NoReturn:
    """Ends the process as the signal does by itself: until the server's event loop takes over there is nothing to end well."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container, whom such a signal doesn't end


if __name__ == "__main__":
    main()
