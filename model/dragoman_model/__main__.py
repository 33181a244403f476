"""``dragoman-model``: trains, measures and runs translation models."""

from __future__ import annotations

import sys
from typing import NoReturn

from dragoman_model.interrupts import ending_at_once


def main() -> NoReturn:
    """Runs the command line and ends the process."""
    with ending_at_once():
        from dragoman_model.command import run  # noqa: PLC0415 - so that nothing is imported before
    sys.exit(run())


if __name__ == "__main__":
    main()
