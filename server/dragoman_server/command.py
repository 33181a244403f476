"""The command line of ``dragoman-server``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dragoman_server.addresses import check_addresses
from dragoman_server.app import serve
from dragoman_server.config import (
    ENGINES,
    LOG_FORMATS,
    LOG_LEVELS,
    PRECISIONS,
    ServerConfig,
    read_config_file,
)
from dragoman_server.errors import ConfigError, StartError
from dragoman_server.loading import load_models
from dragoman_server.logs import set_up_logging

PROGRAM = "dragoman-server"
DEFAULTS = ServerConfig()


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Makes the file's settings the defaults that flags and environment override."""
    if path is not None:
        context.default_map = read_config_file(path)


class _MayBeEmpty(click.Option):
    """An option that an empty variable sets as well, which click takes for none."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return "" if os.environ.get(str(self.envvar)) == "" else super().resolve_envvar_value(ctx)


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _option(name: str, kind: Any, text: str, **more: Any) -> _Decorator:
    """Returns an option with its twin in the environment and the default of ``ServerConfig``."""
    field = name.replace("-", "_")
    return click.option(
        f"--{name}",
        field,
        type=kind,
        default=getattr(DEFAULTS, field),
        envvar=f"DRAGOMAN_{field.upper()}",
        show_envvar=True,
        help=text,
        **{"show_default": True, **more},
    )


@click.command(
    name=PROGRAM, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="DRAGOMAN_CONFIG",
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=_read_config,
    help="TOML file with any of the settings below, dashes written as underscores. Flags and environment win over it.",
)
@_option(
    "model",
    click.Path(path_type=Path),
    "Model directory; repeatable.",
    multiple=True,
    show_default="the bundled one",
)
@_option("listen", str, "HOST:PORT of gRPC; port 0 takes a free one.")
@_option("http", str, 'HOST:PORT of /metrics, /healthz and /readyz; "" turns them off.', cls=_MayBeEmpty)
@_option("device", str, "auto, cpu, cuda or cuda:N.")
@_option("precision", click.Choice(PRECISIONS), "Precision of the computation.")
@_option("threads", int, "Threads of one tensor operation; 0: from the CPU quota.")
@_option(
    "engine",
    click.Choice(ENGINES),
    "What a model's engine runs in: a thread of the server or a process of its own; auto: a process on a CPU where there are several.",
)
@_option(
    "max-batch-size", int, "Rows decoded at once, for each model: one for each sentence, beam or sample."
)
@_option("max-queue-size", int, "Sentences that may wait, for each model.")
@_option(
    "max-queue-seconds",
    float,
    "Seconds that a call may wait in the queue; at the measured speed it is refused beforehand. 0: as long as it takes.",
)
@_option("max-prefill-tokens", int, "Source tokens encoded between two decoding steps.")
@_option("max-bulk-streams", int, "TranslateBatch calls open at once, for each model.")
@_option("max-attention-calls", int, "DumpAttention calls served at once, for each model.")
@_option(
    "attention-sample-share",
    float,
    "Share of the texts whose translation's attention is looked at for the metrics, 0 (none) to 1.",
)
@_option("max-text-count", int, "Texts in one call.")
@_option("max-text-characters", int, "Unicode code points in one text.")
@_option("max-beam-size", int, "Beams of one search.")
@_option("max-num-hypotheses", int, "Translations returned of one text.")
@_option("max-sentence-rows", int, "Rows that one sentence takes: one for each beam or sample.")
@_option(
    "hang-seconds",
    float,
    "Seconds without a step, or without looking for work, after which an engine counts as hung; 0 turns that off.",
)
@_option("grace-seconds", float, "Seconds that running calls get to end after SIGTERM.")
@_option("log-format", click.Choice(LOG_FORMATS), "Format of the log on standard error.")
@_option("log-level", click.Choice(LOG_LEVELS), "Least level that is logged.")
@click.version_option(package_name="dragoman", prog_name=PROGRAM)
def command(**settings: Any) -> None:
    """Serves translation models over gRPC until SIGTERM or Ctrl-C, then lets running calls end.

    Prints one line with the addresses when it is ready; everything else goes to standard error.
    """
    config = ServerConfig(**settings)
    set_up_logging(config.log_format, config.log_level)
    check_addresses(config)
    serve(config, load_models(config))


def main() -> None:
    """Runs the command; a mistake gets one line, and exit code 2 for bad usage or 1 for a start that failed."""
    try:
        code = command.main(prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message(), error.exit_code))
    except ConfigError as error:
        sys.exit(_complain(str(error), 2))
    except StartError as error:
        sys.exit(_complain(str(error), 1))
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    print(f"{PROGRAM}: error: {' '.join(message.split())}", file=sys.stderr)
    return code
