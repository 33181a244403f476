"""``dragoman translate``."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import click

from dragoman_client.commands.arguments import Search, check_texts
from dragoman_client.commands.choices import ModelChoice, json_option, model_options, tokens_option
from dragoman_client.commands.decoding import decoding_options, read_decoding_options
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.files import translate_lines
from dragoman_client.commands.job import Job
from dragoman_client.commands.job_files import check_paths, open_output
from dragoman_client.commands.printing import Printer
from dragoman_client.commands.shared import (
    Seconds,
    is_terminal,
    option,
    shared,
    shared_options,
)

DEFAULT_MAX_OUTAGE_SECONDS = 60.0


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
@option("--resume", is_flag=True, help="Go on with --output where an interrupted job left off.")
@option(
    "--max-outage",
    "max_outage_seconds",
    metavar="SECONDS",
    type=Seconds(min=0, max=86_400),
    default=DEFAULT_MAX_OUTAGE_SECONDS,
    help="How long a file waits for a server that went away or is busy.",
)
@option(
    "--stream/--no-stream",
    default=None,
    help="Show a translation while it is made; by default that of a single TEXT on a terminal.",
)
@model_options
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
@tokens_option
@option(
    "--alignments",
    type=click.Choice(["auto", "naive", "shifted"]),
    help="Add ' ||| ' and the numbers of linked words, from 0, as in 0-0 1-2; auto is the model's own method.",
)
@json_option("Print one JSON object for each text, on a line.")
@shared_options
def translate(
    texts: tuple[str, ...],
    input_path: Path | None,
    output_path: Path | None,
    resume: bool,
    max_outage_seconds: float,
    stream: bool | None,
    choice: ModelChoice,
    target_prefix: str | None,
    split: str,
    include_tokens: bool,
    alignments: str | None,
    as_json: bool,
    **decoding: Any,
) -> int:
    """Translates each TEXT; without any, each line of standard input or of a file.

    Lines end at LF or CR LF. As many lines come out as went in, in their order; a line that cannot be translated is
    reported by its number and leaves its place empty.
    """
    if texts and input_path:
        raise click.UsageError("give TEXT or --input, not both")
    if texts and resume:
        raise click.UsageError("--resume goes with --input FILE and --output FILE, not with TEXT")
    if stream and not texts:
        raise click.UsageError("--stream goes with TEXT; lines are shown as they are translated anyway")
    if stream and alignments and not as_json:
        raise click.UsageError(
            "--alignments stand behind a whole translation; leave --stream off, or add --json"
        )
    if include_tokens and not (texts or as_json):
        raise click.UsageError("--tokens shows several lines for a text; with a file add --json")
    options = read_decoding_options(**decoding)
    if options and (options.num_hypotheses or 1) > 1 and not (texts or as_json):
        raise click.UsageError("--num-hypotheses shows several lines for a text; with a file add --json")
    check_texts(texts)
    check_paths(input_path, output_path)
    search = Search(
        **choice,
        options=options,
        include_tokens=include_tokens,
        include_alignments=alignments is not None if alignments in (None, "auto") else alignments,
        split=split,
    )
    if not texts:
        job = Job(
            input_path=input_path,
            output_path=output_path,
            search=search,
            target_prefix=target_prefix,
            as_json=as_json,
            with_links=alignments is not None,
            resume=resume,
            max_outage_seconds=max_outage_seconds,
        )
        return translate_lines(job, shared())
    if stream is None:
        stream = (
            len(texts) == 1
            and not (as_json or alignments)
            and output_path is None
            and is_terminal(sys.stdout)
        )
    with open_output(output_path) as output:
        printer = Printer(output, as_json=as_json, single_lines=False, with_links=alignments is not None)
        if stream:
            _stream_texts(texts, search, target_prefix, printer)
        else:
            _translate_texts(texts, search, target_prefix, printer)
    printer.doubts.warn()
    return 0


def _translate_texts(
    texts: tuple[str, ...], search: Search, target_prefix: str | None, printer: Printer
) -> None:
    """Translates all texts together."""
    prefixes = None if target_prefix is None else [target_prefix] * len(texts)
    with shared().translator() as translator:
        translations = translator.translate(list(texts), target_prefix=prefixes, **search)
        for number, (text, translation) in enumerate(zip(texts, translations, strict=True), 1):
            printer.write(number, text, translation)


def _stream_texts(
    texts: tuple[str, ...], search: Search, target_prefix: str | None, printer: Printer
) -> None:
    """Translates one text after the other, and writes each piece when it is there."""
    with shared().translator() as translator:
        for number, text in enumerate(texts, 1):
            with translator.stream(text, target_prefix=target_prefix, **search) as stream:
                if printer.as_json:
                    for piece in stream:
                        print_json({"delta": piece}, printer.stream)
                    print_json({"source": text, **as_document(stream.result)}, printer.stream)
                else:
                    _write_pieces(stream, printer.stream)
                    printer.write_rest(stream.result)
            printer.doubts.note(number, stream.result)


def _write_pieces(pieces: Iterable[str], output: BinaryIO) -> None:
    """Writes the pieces on a line, which ends wherever they do."""
    begun = False
    try:
        for piece in pieces:
            output.write(piece.encode())
            output.flush()
            begun = True
    except BrokenPipeError:
        raise
    except BaseException:
        if begun:
            output.write(b"\n")
            output.flush()
        raise
    output.write(b"\n")
    output.flush()
