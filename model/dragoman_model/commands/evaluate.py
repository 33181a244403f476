"""``dragoman-model evaluate``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dragoman_model.checkpoint import LoadedModel
from dragoman_model.commands.shared import (
    beam_size_option,
    device_options,
    json_option,
    keep_numbers_option,
    length_penalty_option,
    model_argument,
    model_directory,
    one_line,
    open_model,
    option,
    precision_option,
    print_json,
    progress_bar,
    recipe_option,
)
from dragoman_model.options import DecodingOptions
from dragoman_model.training.corpus import Pair, prepare
from dragoman_model.training.evaluate import score_translations
from dragoman_model.training.recipe import RECIPE_FILE, load_recipe
from dragoman_model.training.robustness import RobustnessReport, robustness
from dragoman_model.translator import Translator


@click.command("evaluate")
@model_argument
@recipe_option("Whose test set to take.")
@option(
    "--set",
    "set_name",
    type=click.Choice(["test", "dev"]),
    default="test",
    help="Which of the recipe's sets.",
)
@option(
    "--source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Texts to translate instead, one a line; needs --reference.",
)
@option(
    "--reference",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Their translations, one a line; needs --source.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=0,
    help="Takes only the first N pairs; 0 takes all.",
)
@option("--batch-size", type=click.IntRange(1), default=64, help="Rows decoded at once.")
@option(
    "--robustness",
    "with_robustness",
    is_flag=True,
    help="Adds the table of numbers, loops, long sentences and other spellings.",
)
@option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the translations go, one a line.  [default: MODEL.SET.hyp in this folder]",
)
@beam_size_option
@length_penalty_option
@keep_numbers_option
@device_options
@precision_option
@json_option
def evaluate_command(
    model: str, recipe: Path | None, set_name: str, source: Path | None, reference: Path | None, limit: int,
    batch_size: int, with_robustness: bool, output: Path | None, beam_size: int, length_penalty: float, keep_numbers: bool,
    device: str, precision: str, threads: int, as_json: bool,
) -> int:  # fmt: skip
    """Scores MODEL's translations with BLEU and chrF (sacreBLEU)."""
    if (source is None) != (reference is None):
        raise click.UsageError("--source and --reference go together")
    loaded = open_model(model, device=device, precision=precision, threads=threads)
    pairs = _pairs(model_directory(model), recipe, set_name, source, reference)
    pairs = pairs[:limit] if limit else pairs
    if not pairs:
        raise click.UsageError("there is no pair to score")
    options = DecodingOptions(beam_size=beam_size, length_penalty=length_penalty, keep_numbers=keep_numbers)
    started = time.monotonic()
    translations = _translate(loaded, [pair.source for pair in pairs], batch_size, options)
    seconds = time.monotonic() - started
    hypotheses = output or Path(f"{loaded.name}.{'custom' if source else set_name}.hyp")
    hypotheses.write_text("".join(one_line(text) + "\n" for text in translations), encoding="utf-8")
    scores = score_translations(translations, [pair.target for pair in pairs])
    report = (
        robustness(pairs, translations, lambda texts: _translate(loaded, texts, batch_size, options))
        if with_robustness
        else None
    )
    values: dict[str, Any] = {
        "model": loaded.name, "digest": loaded.digest, "device": str(loaded.device), "precision": loaded.precision,
        "beam_size": beam_size, "length_penalty": length_penalty, "keep_numbers": keep_numbers, "pairs": len(pairs), **asdict(scores), "seconds": round(seconds, 3),
        "sentences_per_second": round(len(pairs) / seconds, 2), "hypotheses": str(hypotheses),
    }  # fmt: skip
    if as_json:
        print_json({**values, **({"robustness": asdict(report)} if report else {})})
        return 0
    click.echo(f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}")
    click.echo(f"chrF {scores.chrf:.2f}  {scores.chrf_signature}")
    click.echo(
        f"{len(pairs):,} pairs in {seconds:.1f} s, {len(pairs) / seconds:.1f} sentences/s; translations in {hypotheses}"
    )
    if report:
        _print_robustness(report)
    return 0


def _pairs(
    directory: Path, recipe: Path | None, set_name: str, source: Path | None, reference: Path | None
) -> list[Pair]:
    if source is not None and reference is not None:
        sources, references = (path.read_text(encoding="utf-8").split("\n") for path in (source, reference))
        if len(sources) != len(references):
            raise click.UsageError(
                f"{source} has {len(sources)} lines, {reference} {len(references)}; they must be parallel"
            )
        return [Pair(*pair) for pair in zip(sources, references, strict=True) if any(pair)]
    path = recipe or directory / RECIPE_FILE
    if not path.is_file():
        raise click.UsageError(f"{path}: no such recipe; give --recipe, or --source and --reference")
    corpus = prepare(load_recipe(path))
    return corpus.test if set_name == "test" else corpus.dev


def _translate(
    model: LoadedModel, texts: Sequence[str], batch_size: int, options: DecodingOptions
) -> list[str]:
    with progress_bar("sentences") as bar:
        task = bar.add_task("translating", total=None)
        translations = Translator(model, max_batch_size=batch_size).translate(
            texts,
            options=options,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    return [translation.text for translation in translations]


def _print_robustness(report: RobustnessReport) -> None:
    click.echo()
    click.echo(f"numbers kept            {report.numbers_kept:.1%} of {report.num_number_pairs} pairs")
    click.echo(f"looping translations    {report.num_loops}")
    click.echo(f"BLEU, 15-19 words       {report.long_bleu:.2f} on {report.num_long_pairs} pairs")
    click.echo(f"BLEU, first {report.num_spelling_pairs:,} pairs   {report.plain_bleu:.2f}")
    for score in report.spellings:
        click.echo(
            f"  {score.spelling:<26} {score.bleu:.2f}  ({score.bleu - report.plain_bleu:+.2f}, "
            f"{score.bleu / report.plain_bleu if report.plain_bleu else 0:.0%} of plain; "
            f"against the references as published {score.bleu_as_published:.2f})"
        )
