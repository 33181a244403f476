"""``dragoman score``."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from dragoman_client.commands.arguments import check_texts
from dragoman_client.commands.choices import ModelChoice, json_option, model_options, tokens_option
from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.doubts import Numbers
from dragoman_client.commands.printing import write_tokens
from dragoman_client.commands.shared import option, shared, shared_options
from dragoman_client.errors import InvalidRequestError
from dragoman_client.lines import Line, LineReader
from dragoman_client.results import Score
from dragoman_client.translator import Translator

MAX_PAIRS_PER_GROUP = 64
"""As many rows as a server decodes at once by default: small enough that results keep coming."""


@click.command()
@click.argument("source", metavar="SOURCE", required=False)
@click.argument("translation", metavar="TRANSLATION", required=False)
@option(
    "--sources",
    "sources_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Score a file instead, a text on each line; - is standard input …",
)
@option(
    "--translations",
    "translations_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="… whose translation stands on the same line of this one.",
)
@model_options
@tokens_option
@json_option("Print one JSON object for each pair, on a line.")
@shared_options
def score(
    source: str | None,
    translation: str | None,
    sources_path: Path | None,
    translations_path: Path | None,
    choice: ModelChoice,
    include_tokens: bool,
    as_json: bool,
) -> int:
    """Says how probable TRANSLATION is for SOURCE, or each line of one file for that of another.

    Prints the sum of the target tokens' log-probabilities (natural), end-of-sentence included, and after a tab the
    same for each token. Both texts are taken as one sentence. A pair of blank lines, as translate writes them, has no
    score and leaves its place empty; so does a pair that is refused, which is reported by its number.
    """
    with ExitStack() as stack:
        translator = stack.enter_context(shared().translator())
        scoring = _Scoring(
            translator, choice, sys.stdout.buffer, include_tokens=include_tokens, as_json=as_json
        )
        if source is not None and translation is not None and not (sources_path or translations_path):
            check_texts((source,), "SOURCE")
            check_texts((translation,), "TRANSLATION")
            scoring.write(source, translation, translator.score([(source, translation)], **choice)[0])
            return 0
        if source is not None or not (sources_path and translations_path):
            raise click.UsageError("give SOURCE and TRANSLATION, or --sources and --translations")
        if include_tokens and not as_json:
            raise click.UsageError("--tokens shows several lines for a pair; with files add --json")
        if str(sources_path) == str(translations_path) == "-":
            raise click.UsageError("only one of --sources and --translations can be standard input")
        sources, translations = (
            sys.stdin.buffer if str(path) == "-" else stack.enter_context(path.open("rb"))
            for path in (sources_path, translations_path)
        )
        for group in _groups(sources, translations):
            scoring.score(group)
    return scoring.end()


_Pair = tuple[Line, Line]


class _Scoring:
    """Scores of the lines of two files.

    Args:
        translator: The client.
        choice: Of the model.
        output: Takes the scores.
        include_tokens: Writes tokens, too.
        as_json: Writes objects instead of numbers.
    """

    def __init__(
        self,
        translator: Translator,
        choice: ModelChoice,
        output: BinaryIO,
        *,
        include_tokens: bool,
        as_json: bool,
    ) -> None:
        self._translator = translator
        self._choice = choice
        self._output = output
        self._include_tokens = include_tokens
        self._as_json = as_json
        self._num_pairs = 0
        self._failed = Numbers()

    def score(self, pairs: list[_Pair]) -> None:
        """Scores some pairs and writes a line for each."""
        blank = {index for index, pair in enumerate(pairs) if all(map(_is_blank, pair))}
        others = [index for index in range(len(pairs)) if index not in blank]
        refused = {index: reason for index in others if (reason := _unscorable(*pairs[index]))}
        scores: dict[int, Score] = {}
        while left := [index for index in others if index not in refused and index not in scores]:
            texts = [(pairs[index][0].text, pairs[index][1].text) for index in left]
            try:
                scores = dict(zip(left, self._translator.score(texts, **self._choice), strict=True))
            except InvalidRequestError as error:
                named = _refused_items(error)
                if not named:
                    raise
                refused |= {left[item]: reason for item, reason in named.items()}
        for index, (source, translation) in enumerate(pairs):
            self._num_pairs += 1
            if index in scores:
                self.write(source.text, translation.text, scores[index])
            elif index in blank:
                self._pass(source, translation)
            else:
                self._refuse(source, translation, refused[index])

    def write(self, source: str, translation: str, score: Score) -> None:
        """Writes the score of one pair."""
        if self._as_json:
            document = as_document(score)
            if not self._include_tokens:
                del document["tokens"]
            print_json({"source": source, "translation": translation, **document}, self._output)
            return
        self._output.write(f"{score.score:.4f}\t{score.normalized_score:.4f}\n".encode())
        if self._include_tokens:
            write_tokens(self._output, score.tokens)
        self._output.flush()

    def end(self) -> int:
        """Says what was refused, and returns the exit code."""
        if not self._failed.count:
            return 0
        click.echo(
            f"Error: {self._failed.count:,} of {self._num_pairs:,} pairs could not be scored; their places are "
            f"{'marked' if self._as_json else 'empty'}: line {self._failed}",
            err=True,
        )
        return 1

    def _pass(self, source: Line, translation: Line) -> None:
        if self._as_json:
            print_json({"source": source.text, "translation": translation.text, "score": None}, self._output)
        else:
            self._output.write(b"\n")
            self._output.flush()

    def _refuse(self, source: Line, translation: Line, reason: str) -> None:
        click.echo(f"line {source.number}: {reason}", err=True)
        self._failed.add(source.number)
        if self._as_json:
            document = {
                "source": None if source.error else source.text,
                "translation": None if translation.error else translation.text,
                "error": {"code": "INVALID_ARGUMENT", "message": reason},
            }
            print_json(document, self._output)
        else:
            self._output.write(b"\n")
            self._output.flush()


def _is_blank(line: Line) -> bool:
    return not line.error and not line.text.strip()


def _unscorable(source: Line, translation: Line) -> str | None:
    """Returns why a pair need not be sent."""
    if source.error or translation.error:
        return f"source: {source.error}" if source.error else f"translation: {translation.error}"
    return "source: blank" if _is_blank(source) else None


def _refused_items(error: InvalidRequestError) -> dict[int, str]:
    """Returns which pairs of a call are refused, and why."""
    found: dict[int, str] = {}
    for violation in error.field_violations:
        if match := re.fullmatch(r"items\[(\d+)\](?:\.(\w+))?", violation.field):
            name = {"text": "source", None: "pair"}.get(match[2], match[2])
            found.setdefault(int(match[1]), f"{name}: {violation.description}")
    return found


def _groups(sources: BinaryIO, translations: BinaryIO) -> Iterator[list[_Pair]]:
    """Yields lines that belong together, some at a time.

    Raises:
        click.ClickException: One file has more lines than the other.
    """
    ours, theirs = LineReader(sources), LineReader(translations)
    of_ours, of_theirs = _each(ours), _each(theirs)
    group: list[_Pair] = []
    while True:
        source, translation = next(of_ours, None), next(of_theirs, None)
        if source is not None and translation is not None:
            group.append((source, translation))
        if group and (len(group) == MAX_PAIRS_PER_GROUP or source is None or translation is None):
            yield group
            group = []
        if source is None and translation is None:
            return
        if source is None or translation is None:
            shorter = "--sources" if source is None else "--translations"
            count = min(ours.num_lines, theirs.num_lines)
            raise click.ClickException(f"{shorter} ends after line {count:,}, before the other file does")


def _each(reader: LineReader) -> Iterator[Line]:
    for part in reader.read():
        yield from part
