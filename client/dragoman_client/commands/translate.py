"""``dragoman translate``."""

import asyncio
import math
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import click

from dragoman_client.async_translator import AsyncTranslator
from dragoman_client.commands.decoding import decoding_options, read_decoding_options
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.progress import LineProgress
from dragoman_client.commands.shared import (
    Shared,
    is_terminal,
    option,
    search_options,
    shared,
    shared_options,
)
from dragoman_client.errors import InvalidRequestError
from dragoman_client.lines import LineReader
from dragoman_client.options import DecodingOptions
from dragoman_client.pipeline import translate_windows
from dragoman_client.requests import check_encodable
from dragoman_client.results import FinishReason, Translation

MAX_NUMBERS_NAMED = 10


class _Search(TypedDict):
    """What every call of the command is made with."""

    source_language: str | None
    target_language: str | None
    model: str | None
    options: DecodingOptions | None
    include_tokens: bool
    split: str


@click.command()
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@option(
    "--input",
    "input_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Translate this file, a text on each line; - is standard input.",
)
@option(
    "--output",
    "output_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write here instead of standard output.",
)
@search_options
@decoding_options
@option(
    "--target-prefix",
    metavar="TEXT",
    help="What each translation starts with.",
)
@option(
    "--split",
    type=click.Choice(["sentences", "none"]),
    default="sentences",
    help="How a text is cut before translation.",
)
@option("--tokens", "include_tokens", is_flag=True, help="Show each target token with its probability.")
@option("--json", "as_json", is_flag=True, help="Print one JSON object for each text, on a line.")
@shared_options
def translate(
    texts: tuple[str, ...],
    input_path: Path | None,
    output_path: Path | None,
    source_language: str | None,
    target_language: str | None,
    model: str | None,
    max_length: int | None,
    target_prefix: str | None,
    split: str,
    include_tokens: bool,
    as_json: bool,
    **decoding: Any,
) -> None:
    """Translates each TEXT; without any, each line of standard input or of a file.

    Lines end at LF or CR LF. As many lines come out as went in, in their order.
    """
    if texts and input_path:
        raise click.UsageError("give TEXT or --input, not both")
    if include_tokens and not (texts or as_json):
        raise click.UsageError("--tokens shows several lines for a text; with a file add --json")
    options = read_decoding_options(max_decoding_length=max_length, **decoding)
    if options and (options.num_hypotheses or 1) > 1 and not (texts or as_json):
        raise click.UsageError("--num-hypotheses shows several lines for a text; with a file add --json")
    check_texts(texts)
    search = _Search(
        source_language=source_language,
        target_language=target_language,
        model=model,
        options=options,
        include_tokens=include_tokens,
        split=split,
    )
    with ExitStack() as stack:
        source = None if texts else stack.enter_context(_open_input(input_path))
        output = stack.enter_context(_open_output(output_path, input_path))
        printer = _Printer(output, as_json=as_json, single_lines=source is not None)
        if source is None:
            with shared().translator() as translator:
                for number, translation in enumerate(
                    translator.translate(list(texts), target_prefix=_each(target_prefix, texts), **search), 1
                ):
                    printer.write(number, texts[number - 1], translation)
        else:
            size = _size(source)
            with LineProgress(shared().console(stderr=True), size, shown=_shows_bar(output_path)) as progress:
                asyncio.run(
                    _translate_stream(shared(), LineReader(source), search, target_prefix, printer, progress)
                )
        printer.warn()


def _each(target_prefix: str | None, texts: Sequence[str]) -> list[str] | None:
    return None if target_prefix is None else [target_prefix] * len(texts)


def check_texts(texts: tuple[str, ...]) -> None:
    """Refuses arguments that are not text.

    Raises:
        click.UsageError: An argument's bytes are not UTF-8.
    """
    for number, text in enumerate(texts, 1):
        try:
            check_encodable(text, f"TEXT number {number}")
        except InvalidRequestError as error:
            raise click.UsageError(str(error)) from error


@dataclass
class _Printer:
    """Writes translations, and remembers those that may be cut.

    Attributes:
        stream: Takes UTF-8, whatever the locale is.
        as_json: Writes objects instead of text.
        single_lines: Each text is a line, and so must be its translation.
        cut: Numbers of the first few texts whose translations reached their length limit.
        cut_count: How many there are.
    """

    stream: BinaryIO
    as_json: bool
    single_lines: bool
    cut: list[int] = field(default_factory=list)
    cut_count: int = 0

    def write(self, number: int, source: str, translation: Translation) -> None:
        """Writes the translation of one text, counted from 1."""
        if self.as_json:
            print_json({"source": source, **as_document(translation)}, self.stream)
        else:
            text = translation.text
            if self.single_lines:
                text = text.replace("\n", " ")  # a model that falls back to bytes can make any
            self.stream.write(text.encode() + b"\n")
            for alternative in translation.alternatives:
                line = alternative.text.replace("\n", " ")
                self.stream.write(f"  {alternative.normalized_score:8.4f}  {line}\n".encode())
            for token in translation.tokens:
                probability = math.exp(token.log_probability)
                self.stream.write(f"  {probability:6.1%}  {token.piece}\n".encode())
            self.stream.flush()
        if translation.finish_reason is FinishReason.LENGTH:
            self.cut_count += 1
            if self.cut_count <= MAX_NUMBERS_NAMED:
                self.cut.append(number)

    def warn(self) -> None:
        """Says on standard error which translations may be cut."""
        if self.cut:
            noun = "line" if self.single_lines else "text"
            numbers = ", ".join(map(str, self.cut)) + (", …" if self.cut_count > len(self.cut) else "")
            click.echo(
                f"Warning: {self.cut_count:,} of the translations reached the length limit and may be cut: "
                f"{noun} {numbers}",
                err=True,
            )


async def _translate_stream(
    settings: Shared,
    lines: LineReader,
    search: _Search,
    target_prefix: str | None,
    printer: _Printer,
    progress: LineProgress,
) -> None:
    """Translates all lines."""
    async with AsyncTranslator(
        settings.server, timeout=settings.timeout, credentials=settings.credentials()
    ) as translator:

        async def translate_texts(texts: list[str]) -> list[Translation]:
            return await translator.translate(texts, target_prefix=_each(target_prefix, texts), **search)

        async with aclosing(translate_windows(lines.windows(), translate_texts)) as windows:
            async for window, translations in windows:
                for index, (text, translation) in enumerate(zip(window.texts, translations, strict=True)):
                    printer.write(window.first_line + index, text, translation)
                progress.advance(window, translations)


def _open_input(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens the file, or standard input."""
    if path is not None and str(path) != "-":
        return path.open("rb")
    stream = sys.stdin.buffer
    if is_terminal(sys.stdin):
        click.echo("Reading texts from the terminal, one a line; end with Ctrl-D.", err=True)
    return nullcontext(stream)


def _open_output(path: Path | None, input_path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Opens the file, or standard output."""
    if path is None or str(path) == "-":
        return nullcontext(sys.stdout.buffer)
    if input_path and path.exists() and input_path.exists() and path.samefile(input_path):
        raise click.UsageError(f"--output would overwrite --input: {path}")
    return path.open("wb")


def _size(stream: BinaryIO) -> int | None:
    """Returns the bytes still to come from a regular file; None where nobody knows."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _shows_bar(output_path: Path | None) -> bool:
    """Says whether a bar can be drawn without getting between the translations."""
    return is_terminal(sys.stderr) and (output_path is not None or not is_terminal(sys.stdout))
