"""The commands of ``dragoman``, a module each."""

from importlib.metadata import PackageNotFoundError, version

import click

from dragoman_client.commands.attention import attention
from dragoman_client.commands.models import models
from dragoman_client.commands.shared import shared_options
from dragoman_client.commands.status import status
from dragoman_client.commands.translate import translate


def _version() -> str:
    try:
        return version("dragoman")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), prog_name="dragoman")
@shared_options
def dragoman() -> None:
    """Translates with a dragoman server, and shows what the translation attended to.

    Start a server with `dragoman-server`.
    """


dragoman.add_command(translate)
dragoman.add_command(attention)
dragoman.add_command(models)
dragoman.add_command(status)
