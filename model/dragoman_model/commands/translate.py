"""``dragoman-model translate``."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from dragoman_model.commands.shared import (
    beam_size_option,
    device_options,
    json_option,
    keep_numbers_option,
    length_penalty_option,
    model_argument,
    one_line,
    open_model,
    option,
    precision_option,
    print_json,
)
from dragoman_model.errors import SentenceTooLongError
from dragoman_model.options import DecodingOptions
from dragoman_model.translation import TextTranslation
from dragoman_model.translator import Translator

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
@beam_size_option
@length_penalty_option
@keep_numbers_option
@option(
    "--num-hypotheses", type=click.IntRange(1), default=1, help="Translations shown, at most --beam-size."
)
@device_options
@precision_option
@json_option
def translate_command(
    model: str, text: tuple[str, ...], batch_size: int, max_length: int | None, beam_size: int, length_penalty: float,
    num_hypotheses: int, keep_numbers: bool, device: str, precision: str, threads: int, as_json: bool,
) -> int:  # fmt: skip
    """Translates TEXTs, or the lines of standard input, with MODEL in this process, without a server."""
    loaded = open_model(model, device=device, precision=precision, threads=threads)
    if max_length is not None and max_length >= loaded.config.max_target_length:
        raise click.UsageError(
            f"--max-length is {max_length}; this model allows 1 to {loaded.config.max_target_length - 1}"
        )
    if num_hypotheses > beam_size:
        raise click.UsageError(
            f"--num-hypotheses is {num_hypotheses}; --beam-size {beam_size} allows as many"
        )
    if num_hypotheses > 1 and not (text or as_json):
        raise click.UsageError(
            "--num-hypotheses shows several lines for a text; with standard input add --json"
        )
    options = DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=length_penalty,
        max_length=max_length,
        keep_numbers=keep_numbers,
    )
    texts = _arguments(text) if text else _input_lines()
    translator = Translator(loaded, max_batch_size=batch_size)
    number = 0
    while lines := list(itertools.islice(texts, _LINES_AT_ONCE)):
        for translation in _translate(translator, lines, options, first_number=number + 1):
            _print(translation, as_json)
        number += len(lines)
    return 0


def _translate(
    translator: Translator, lines: list[str], options: DecodingOptions, *, first_number: int
) -> list[TextTranslation]:
    try:
        return translator.translate(lines, options=options)
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
        print_json(_named_reasons(asdict(translation)))
    elif translation.alternatives:
        for alternative in translation.alternatives:
            click.echo(f"{alternative.normalized_score:8.4f}  {one_line(alternative.text)}")
    else:
        click.echo(one_line(translation.text))


def _named_reasons(document: dict[str, Any]) -> dict[str, Any]:
    reason = document["finish_reason"]
    alternatives = [_named_reasons(alternative) for alternative in document.get("alternatives", ())]
    return {
        **document,
        "finish_reason": reason.name if reason else "BLANK",
        **({"alternatives": alternatives} if "alternatives" in document else {}),
        **({"warnings": _named_kinds(document["warnings"])} if "warnings" in document else {}),
    }


def _named_kinds(warnings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**warning, "kind": warning["kind"].name} for warning in warnings]
