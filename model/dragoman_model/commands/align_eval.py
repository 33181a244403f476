"""``dragoman-model align-eval``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from dragoman_model.commands.shared import (
    device_options,
    json_option,
    model_argument,
    model_directory,
    open_model,
    precision_option,
    print_json,
    recipe_option,
    recipe_path,
)
from dragoman_model.training.align_eval import AlignmentReport, LinkRow, evaluate_links
from dragoman_model.training.corpus import prepare
from dragoman_model.training.hand_aligned import hand_aligned
from dragoman_model.training.recipe import load_recipe


@click.command("align-eval")
@model_argument
@recipe_option("What fast_align learns from.")
@device_options
@precision_option
@json_option
def align_eval_command(
    model: str, recipe: Path | None, device: str, precision: str, threads: int, as_json: bool
) -> int:
    """Measures MODEL's word links on 100 hand-aligned sentences of Europarl.

    The sentences are in small letters and far from everyday ones. AER is 1 - (|A and S| + |A and P|) / (|A| + |S|); all of the
    hand-made links are sure.
    """
    path = recipe_path(recipe, model_directory(model))
    loaded = open_model(model, device=device, precision=precision, threads=threads)
    hand = hand_aligned(*loaded.config.language_pairs[0])
    report = evaluate_links(loaded, prepare(load_recipe(path)), hand)
    if as_json:
        alignment = loaded.config.alignment
        print_json(
            {"model": loaded.name, "digest": loaded.digest, "precision": loaded.precision,
             "alignment": asdict(alignment) if alignment else None, **asdict(report)}
        )  # fmt: skip
    else:
        _print(report)
    return 0


def _print(report: AlignmentReport) -> None:
    click.echo(f"{report.num_pairs} pairs, {report.num_links:,} links made by hand, all sure\n")
    click.echo(f"{'':34}{'AER':>7}{'precision':>11}{'recall':>8}")
    for row in report.rows:
        click.echo(_line(row))
    ratio = report.configured.scores.aer / max(report.mean_of_all.scores.aer, 1e-9)
    click.echo(f"\nThe configured choice has {ratio:.2f} times the error of the mean of all heads.")


def _line(row: LinkRow) -> str:
    name = f"{row.name}, {row.method}" if row.method else row.name
    scores = row.scores
    return f"{name:34}{scores.aer:7.3f}{scores.precision:11.3f}{scores.recall:8.3f}"
