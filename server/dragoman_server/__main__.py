"""``dragoman-server``: serves until it is told to stop."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the server; where only the client is installed, says what is missing."""
    try:
        from dragoman_server.command import main as serve  # noqa: PLC0415 - may not be installed
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dragoman"):
            raise
        print(
            f"dragoman-server: error: {error.name} is not installed; pip install 'dragoman[server]'",
            file=sys.stderr,
        )
        sys.exit(1)
    serve()


if __name__ == "__main__":
    main()
