"""How translations are written: as text or as JSON, with what stands below them, and what is said of bad ones."""

import math
from dataclasses import dataclass, field
from typing import BinaryIO

import click

from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.pharaoh import SEPARATOR, pharaoh
from dragoman_client.results import FinishReason, ScoredToken, Translation, WarningKind

MAX_NUMBERS_NAMED = 10

_SUSPICIONS = {
    WarningKind.UNCOVERED_SOURCE: "may leave out a part of the source",
    WarningKind.REPETITION: "may have repetitions",
    WarningKind.COPY: "may be copied from the source",
    WarningKind.LENGTH_RATIO: "may be too long or too short",
    WarningKind.UNSPECIFIED: "may be bad",
}


@dataclass
class Numbers:
    """Numbers of lines or texts to tell of: how many there are, and the first few of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Takes one more."""
        self.count += 1
        if self.count <= MAX_NUMBERS_NAMED:
            self.first.append(number)

    def __str__(self) -> str:
        return ", ".join(map(str, self.first)) + (", …" if self.count > len(self.first) else "")


@dataclass
class Printer:
    """Writes translations, and remembers those that may be cut or bad.

    Attributes:
        stream: Takes UTF-8, whatever the locale is.
        as_json: Writes objects instead of text.
        single_lines: Each text is a line, and so must be its translation.
        with_links: Writes the word links behind each translation.
        cut: The texts whose translations reached their length limit.
        suspect: For each kind of warning the texts whose translations have one.
    """

    stream: BinaryIO
    as_json: bool
    single_lines: bool
    with_links: bool = False
    cut: Numbers = field(default_factory=Numbers)
    suspect: dict[WarningKind, Numbers] = field(default_factory=dict)

    def write(self, number: int, source: str, translation: Translation) -> None:
        """Writes the translation of one text, counted from 1."""
        if self.as_json:
            print_json({"source": source, **as_document(translation)}, self.stream)
        else:
            text = translation.text
            if self.single_lines:
                text = text.replace("\n", " ")  # a model that falls back to bytes can make any
            if self.with_links:
                text += SEPARATOR + pharaoh(source, translation)
            self.stream.write(text.encode() + b"\n")
            self.write_rest(translation)
        self.note(number, translation)

    def write_rest(self, translation: Translation) -> None:
        """Writes what stands below a translation: alternatives and tokens, where they were asked for."""
        for alternative in translation.alternatives:
            line = alternative.text.replace("\n", " ")
            self.stream.write(f"  {alternative.normalized_score:8.4f}  {line}\n".encode())
        write_tokens(self.stream, translation.tokens)
        self.stream.flush()

    def write_failure(self, source: str | None, code: str, reason: str) -> None:
        """Fills the place of a text that could not be translated: an empty line, or an object that says why."""
        if self.as_json:
            print_json({"source": source, "error": {"code": code, "message": reason}}, self.stream)
        else:
            self.stream.write(b"\n")
            self.stream.flush()

    def note(self, number: int, translation: Translation) -> None:
        """Remembers a translation that may be cut or bad."""
        if translation.finish_reason is FinishReason.LENGTH:
            self.cut.add(number)
        for kind in dict.fromkeys(warning.kind for warning in translation.warnings):
            self.suspect.setdefault(kind, Numbers()).add(number)

    def warn(self) -> None:
        """Says on standard error which translations may be cut or bad."""
        self._warn_of(self.cut, "reached the length limit and may be cut")
        for kind in sorted(self.suspect, key=list(WarningKind).index):
            self._warn_of(self.suspect[kind], _SUSPICIONS[kind])

    def _warn_of(self, numbers: Numbers, what: str) -> None:
        if numbers.count:
            noun = "line" if self.single_lines else "text"
            click.echo(f"Warning: {numbers.count:,} of the translations {what}: {noun} {numbers}", err=True)


def write_tokens(stream: BinaryIO, tokens: tuple[ScoredToken, ...]) -> None:
    """Writes tokens, each after its probability."""
    for token in tokens:
        stream.write(f"  {math.exp(token.log_probability):6.1%}  {token.piece}\n".encode())
