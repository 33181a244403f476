"""What several commands have: how a model is named, where it runs, progress bars."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.options import MAX_LENGTH_PENALTY
from dragoman_model.training.recipe import RECIPE_FILE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def option(*names: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """Is ``click.option`` with a DRAGOMAN_ twin in the environment, and help that says so."""
    twin = "DRAGOMAN_" + names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, **{"envvar": twin, "show_default": True, "show_envvar": True, **attributes})


def model_argument(command: _Command) -> _Command:
    """Adds the argument MODEL: a model directory, or the bundled model's name."""
    return click.argument("model", type=str)(command)


def device_options(command: _Command) -> _Command:
    """Adds the options that say where a model runs."""
    for add in (
        option("--threads", default=0, type=click.IntRange(0), help="CPU threads; 0 leaves it to PyTorch."),
        option("--device", default="auto", help="auto (a GPU where there is one), cpu, cuda or cuda:N."),
    ):  # fmt: skip
        command = add(command)
    return command


def recipe_option(purpose: str) -> Callable[[_Command], _Command]:
    """Returns the option that names a recipe; `recipe_path` takes what it gives."""
    return option(
        "--recipe",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"{purpose}  [default: the recipe that the model carries]",
    )


class _Number(click.FloatRange):
    """A number in a range, which NaN is not, though no comparison says so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


beam_size_option = option(
    "--beam-size", type=click.IntRange(1), default=1, help="Hypotheses kept at each step; 1 is greedy search."
)

length_penalty_option = option(
    "--length-penalty",
    type=_Number(-MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
    default=1.0,
    help="Exponent a of score / length^a, by which beams' hypotheses rank.",
)

keep_numbers_option = option(
    "--keep-numbers/--no-keep-numbers",
    default=True,
    help="Writes only numbers of the source, each as often as it stands there at most.",
)

precision_option = option(
    "--precision",
    default="auto",
    type=click.Choice(["auto", "float32", "bfloat16", "float16", "int8"]),
    help="Arithmetic; auto is int8 on a CPU that is fast at it, else float32, and bfloat16 on a GPU.",
)

json_option = option("--json", "as_json", is_flag=True, help="Prints one JSON object.")


def open_model(name: str, *, device: str, precision: str, threads: int) -> LoadedModel:
    """Returns the model that MODEL names, on its device.

    Raises:
        ModelDirectoryError: It is no model directory.
        DeviceError: The device or the precision is not to be had here.
    """
    use_threads(threads)
    return load_model(model_directory(name), device=device, precision=precision)


def use_threads(threads: int) -> None:
    """Sets PyTorch's threads; 0 leaves its default."""
    if threads:
        torch.set_num_threads(threads)


def model_directory(name: str) -> Path:
    """Returns the directory that MODEL names: a path, or a bundled model's name where there is no such path."""
    bundled = BUNDLED_MODEL.parent / name
    return bundled if not Path(name).exists() and Path(name).name == name and bundled.is_dir() else Path(name)


def recipe_path(recipe: Path | None, directory: Path) -> Path:
    """Returns the recipe that was named, or else the one that a model directory carries.

    Raises:
        click.UsageError: It carries none.
    """
    path = recipe or directory / RECIPE_FILE
    if not path.is_file():
        raise click.UsageError(f"{directory} carries no recipe; name one with --recipe")
    return path


def one_line(text: str) -> str:
    """Returns a translation as one line of output: a model may write a line break where its source has none."""
    return text.replace("\r", " ").replace("\n", " ")


def print_json(values: object) -> None:
    """Prints one JSON object on standard output."""
    click.echo(json.dumps(values, ensure_ascii=False))


class RateColumn(ProgressColumn):
    """Shows a task's speed in its unit."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """Returns "12.3 UNIT/s"."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f} {self._unit}/s")


def progress_bar(unit: str) -> Progress:
    """Returns a bar on standard error that shows count, speed and time left, on a terminal only."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(unit), TimeRemainingColumn(),
        console=console, disable=not console.is_terminal, transient=True,
    )  # fmt: skip
