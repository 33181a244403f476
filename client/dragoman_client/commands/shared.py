"""What every command has: where the server is, how to speak to it, colours."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

import click
import grpc
from click.core import ParameterSource
from rich.console import Console

from dragoman_client.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT_SECONDS, check_address
from dragoman_client.translator import Translator

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The values of the shared options.

    Attributes:
        server: HOST:PORT.
        timeout: Seconds for each call.
        color: auto, always or never.
        tls: Speak TLS; so does a given ``ca_file``.
        ca_file: PEM certificates to trust; None trusts gRPC's own list.
    """

    server: str
    timeout: float
    color: str
    tls: bool
    ca_file: Path | None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Returns what the channel needs; None for plain text."""
        if self.ca_file is not None:
            certificates = self.ca_file.read_bytes()
            if b"-----BEGIN CERTIFICATE-----" not in certificates:
                raise click.BadParameter(f"{self.ca_file} holds no PEM certificate", param_hint="--ca-file")
            return grpc.ssl_channel_credentials(certificates)
        return grpc.ssl_channel_credentials() if self.tls else None

    def translator(self, *, timeout: float | None = None) -> Translator:
        """Returns a client of the server; ``timeout`` in seconds, None takes the option's."""
        return Translator(self.server, timeout=timeout or self.timeout, credentials=self.credentials())

    def console(self, *, stderr: bool = False, stream: TextIO | None = None) -> Console:
        """Returns a console that colours only a terminal, unless told otherwise.

        Args:
            stderr: Write to standard error instead of standard output.
            stream: Write here instead.
        """
        colorless = self.color == "never" or (self.color == "auto" and bool(os.environ.get("NO_COLOR")))
        color_system: Literal["auto", "256", "truecolor"] = "auto"
        if self.color == "always":  # a pipe says nothing about what is at its end
            color_system = "truecolor" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "256"
        return _Console(
            file=stream or (sys.stderr if stderr else None),
            force_terminal=True if self.color == "always" else None,
            color_system=None if colorless else color_system,
            no_color=colorless,
            highlight=False,
            emoji=False,
            markup=False,
        )


def shared_options(command: _Command) -> _Command:
    """Adds the shared options; they work before and after the command's name, and the last one given counts."""
    return with_options(command, _OPTIONS)


def shared() -> Shared:
    """Returns what the running command was given."""
    meta = click.get_current_context().meta
    return Shared(**{name: meta[_key(name)] for name in Shared.__dataclass_fields__})


def option(*names: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """Is ``click.option`` with a DRAGOMAN_ twin in the environment, and help that says so."""
    twin = "DRAGOMAN_" + names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, **{"envvar": twin, "show_default": True, "show_envvar": True, **attributes})


def with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """Adds options; help lists them in their order."""
    for add in reversed(options):
        command = add(command)
    return command


def is_terminal(stream: TextIO) -> bool:
    """Says whether a person reads the stream."""
    return not stream.closed and stream.isatty()


class _Console(Console):
    """A console that leaves the end of a pipe to the program, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Raises the BrokenPipeError that is being handled."""
        raise  # noqa: PLE0704 - rich calls this while it handles one


class Seconds(click.FloatRange):
    """A time between two bounds; a number at that."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the time, or fails."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keeps the value for :func:`shared`; the environment and the default yield to what was typed."""
    assert parameter.name
    key = _key(parameter.name)
    typed = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    if typed or key not in context.meta:
        context.meta[key] = value


def _check_server(context: click.Context, parameter: click.Parameter, value: str) -> None:
    try:
        check_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    _remember(context, parameter, value)


def _key(name: str) -> str:
    return f"dragoman_client.{name}"


_OPTIONS = [
    option(
        "--server",
        metavar="HOST:PORT",
        default=DEFAULT_ADDRESS,
        expose_value=False,
        callback=_check_server,
        help="The server's gRPC address.",
    ),
    option(
        "--timeout",
        metavar="SECONDS",
        type=Seconds(min=0.001, max=86_400),
        default=DEFAULT_TIMEOUT_SECONDS,
        expose_value=False,
        callback=_remember,
        help="How long each call to the server may take, and lines wait for the next answer.",
    ),
    option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        expose_value=False,
        callback=_remember,
        help="When to colour; auto colours a terminal, unless NO_COLOR is set.",
    ),
    option(
        "--tls/--no-tls",
        default=False,
        expose_value=False,
        callback=_remember,
        help="Encrypt the connection.",
    ),
    option(
        "--ca-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_remember,
        help="PEM certificates to trust; implies --tls.",
    ),
]
