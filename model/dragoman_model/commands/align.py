"""``dragoman-model align``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from dragoman_model.commands.shared import (
    device_options,
    json_option,
    model_argument,
    model_directory,
    print_json,
    recipe_option,
    recipe_path,
    use_threads,
)
from dragoman_model.training.align import align_model
from dragoman_model.training.corpus import prepare
from dragoman_model.training.recipe import load_recipe


@click.command("align")
@model_argument
@recipe_option("What it was trained on.")
@device_options
@json_option
def align_command(model: str, recipe: Path | None, device: str, threads: int, as_json: bool) -> int:
    """Finds the heads of MODEL that link words best, and writes them into its config.json.

    The end of training does the same. They are compared with what both directions of fast_align say of the recipe's dev set.
    """
    directory = model_directory(model)
    path = recipe_path(recipe, directory)
    use_threads(threads)
    found = align_model(directory, prepare(load_recipe(path)), device)
    if found is None:
        raise click.ClickException("the recipe's dev set gives no word links to compare with")
    if as_json:
        print_json({"model": str(directory), **asdict(found)})
        return 0
    chosen = found.alignment
    click.echo(
        f"{directory}: layer {chosen.layer}, heads {', '.join(map(str, chosen.heads))}, {chosen.method}, "
        f"{chosen.weighting}: AER {found.aer:.3f} against silver links of {found.num_pairs:,} pairs"
    )
    return 0
