"""``dragoman-model average``."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from dragoman_model.checkpoint import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    load_weights,
    named_weights,
    save_model,
)
from dragoman_model.commands.shared import option
from dragoman_model.config_file import read_config
from dragoman_model.errors import ModelDirectoryError
from dragoman_model.tokenizer import TOKENIZER_FILE
from dragoman_model.training.recipe import RECIPE_FILE
from dragoman_model.training.state import TRAINING_FOLDER, average_checkpoints
from dragoman_model.transformer import Transformer


@click.command("average")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("checkpoints", nargs=-1, type=click.Path(exists=True, path_type=Path))
@option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The model directory to make.",
)
def average_command(run: Path, checkpoints: tuple[Path, ...], output: Path) -> int:
    """Writes a model whose weights are the mean of CHECKPOINTS, with the configuration and vocabulary of RUN.

    RUN is the output folder of a training run, finished or not. CHECKPOINTS are safetensors files or model directories; the
    default is all that RUN keeps.
    """
    paths = [path / WEIGHTS_FILE if path.is_dir() else path for path in checkpoints] or sorted(
        (run / TRAINING_FOLDER / "checkpoints").glob("step-*.safetensors")
    )
    if not paths:
        raise click.UsageError(f"{run}: keeps no checkpoints; name some")
    config = read_config(run / CONFIG_FILE)
    transformer = Transformer(config)
    load_weights(transformer, average_checkpoints(paths), paths[0])
    output.mkdir(parents=True, exist_ok=True)
    for name in (TOKENIZER_FILE, RECIPE_FILE):
        if (run / name).is_file():
            shutil.copyfile(run / name, output / name)
        elif name == TOKENIZER_FILE:
            raise ModelDirectoryError(
                f"{run / name}: no such file; RUN is the output folder of a training run"
            )
    names = "\n".join(f"- {path.name}" for path in paths)
    card = f"# {output.name}\n\nThe mean of the weights of\n\n{names}\n"
    save_model(output, config, named_weights(transformer), card)
    click.echo(f"{output}: the mean of {len(paths)} checkpoint{'s' if len(paths) > 1 else ''}")
    return 0
