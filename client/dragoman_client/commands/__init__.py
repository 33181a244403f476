"""The commands of ``dragoman``, a module each."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from dragoman_client.commands.attention import attention
from dragoman_client.commands.models import models
from dragoman_client.commands.score import score
from dragoman_client.commands.shared import shared_options
from dragoman_client.commands.status import status
from dragoman_client.commands.translate import translate

EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def _version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


class _Commands(click.Group):
    """Ends well when a person has seen enough: Ctrl-C, or a reader that closed our pipe."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; click itself would print an empty line, or exit as for a job that failed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            raise click.exceptions.Exit(EXIT_BROKEN_PIPE) from None


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(_version(), prog_name="dragoman")
@shared_options
def dragoman() -> None:
    """Translates with a dragoman server, and shows what the translation attended to.

    Start a server with `dragoman-server`.
    """


dragoman.add_command(translate)
dragoman.add_command(attention)
dragoman.add_command(score)
dragoman.add_command(models)
dragoman.add_command(status)
