"""The ``dragoman-model`` command."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from dragoman_model.errors import ModelError
from dragoman_model.interrupts import EXIT_INTERRUPTED, ending_at_once

EXIT_FAILED = 1
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

# What help says of each where a package is missing, without which it cannot be asked.
_COMMANDS = {
    "train": "Trains a model as a recipe says.",
    "evaluate": "Scores translations with BLEU and chrF.",
    "translate": "Translates texts without a server.",
    "average": "Writes the mean of a run's checkpoints.",
    "info": "Says what a model directory is.",
    "align": "Finds the heads that link words best.",
    "align-eval": "Measures word links on hand-aligned sentences.",
}


class _LazyGroup(click.Group):
    """Imports a command when it is asked for: `translate` needs none of what only training needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        try:
            with ending_at_once():
                module = importlib.import_module(f"dragoman_model.commands.{name}")
        except ModuleNotFoundError as error:
            return _refusal(cmd_name, error.name)
        command: click.Command = getattr(module, f"{name}_command")
        return command


def _refusal(name: str, missing: str | None) -> click.Command:
    """Returns what stands for a command that lacks a package: help lists it, and running it says what to install."""

    def refuse() -> NoReturn:
        raise click.ClickException(
            f"{name} needs {missing}, which is not installed: pip install '.[train]' in the checkout"
        )

    return click.Command(
        name,
        callback=refuse,
        short_help=f"{_COMMANDS[name]} Needs {missing}: pip install '.[train]' in the checkout",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dragoman")
def dragoman_model() -> None:
    """Trains, measures and runs translation models."""


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 2 for bad usage, 1 for a failed job.

    Args:
        arguments: Without the program's name; None takes the process's.
    """
    try:
        result = dragoman_model.main(arguments, prog_name="dragoman-model", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ModelError as error:
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
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _drop_output() -> None:
    """Sends what is still in standard output's buffer nowhere; Python would complain of it, too, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    print(f"Error: {message}", file=sys.stderr)
    return EXIT_FAILED
