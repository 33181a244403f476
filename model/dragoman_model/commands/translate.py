"""``dragoman-model translate``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from dragoman_model.checkpoint import LoadedModel
from dragoman_model.commands.shared import (
    device_options,
    json_option,
    model_argument,
    one_line,
    open_model,
    option,
    precision_option,
    print_json,
)
from dragoman_model.errors import SentenceTooLongError
from dragoman_model.translator import TextTranslation, Translator

_LINES_AT_ONCE = 1024  # bounds memory on an endless input, and is plenty to sort by length


@click.command("translate")
@model_argument
@click.argument("text", nargs=-1)
@option("--batch-size", type=click.IntRange(1), default=64, help="Rows decoded at once.")
@option(
    "--max-length",
    type=click.IntRange(1),
    help="Target tokens of a sentence.  [default: 10 + 2 x source tokens]",
)
@device_options
@precision_option
@json_option
def translate_command(
    model: str, text: tuple[str, ...], batch_size: int, max_length: int | None, device: str, precision: str, threads: int,
    as_json: bool,
) -> int:  # fmt: skip
    """Translates TEXTs, or the lines of standard input, with MODEL in this process, without a server."""
    loaded = open_model(model, device=device, precision=precision, threads=threads)
    if max_length is not None and max_length >= loaded.config.max_target_length:
        raise click.UsageError(
            f"--max-length is {max_length}; this model allows 1 to {loaded.config.max_target_length - 1}"
        )
    texts = _arguments(text) if text else _input_lines()
    translator = Translator(loaded, max_batch_size=batch_size)
    number = 0
    while lines := list(itertools.islice(texts, _LINES_AT_ONCE)):
        for translation in _translate(translator, loaded, lines, max_length, first_number=number + 1):
            _print(translation, as_json)
        number += len(lines)
    return 0


def _translate(
    translator: Translator, model: LoadedModel, lines: list[str], max_length: int | None, *, first_number: int
) -> list[TextTranslation]:
    try:
        return translator.translate(lines, max_length=max_length)
    except SentenceTooLongError as error:
        number = first_number + (error.text_index or 0)
        raise click.ClickException(f"line {number}: {error}") from None


def _arguments(texts: tuple[str, ...]) -> Iterator[str]:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError:  # Python stands surrogates in for bytes that it cannot read
            raise click.UsageError(f"TEXT number {number}: not valid UTF-8") from None
        yield text


def _input_lines() -> Iterator[str]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError:
            raise click.ClickException(f"standard input, line {number}: not valid UTF-8") from None


def _print(translation: TextTranslation, as_json: bool) -> None:
    if as_json:
        reason = translation.finish_reason.name if translation.finish_reason else "BLANK"
        print_json({**asdict(translation), "finish_reason": reason})
    else:
        click.echo(one_line(translation.text))
