"""How translations are written: as text or as JSON, with what stands below them."""

import math
from dataclasses import dataclass, field
from typing import BinaryIO

from dragoman_client.commands.documents import as_document, print_json
from dragoman_client.commands.doubts import Doubts
from dragoman_client.pharaoh import SEPARATOR, pharaoh
from dragoman_client.results import ScoredToken, Translation


@dataclass
class Printer:
    """Writes translations.

    Attributes:
        stream: Takes UTF-8, whatever the locale is.
        as_json: Writes objects instead of text.
        single_lines: Each text is a line, and so must be its translation.
        with_links: Writes the word links behind each translation.
        doubts: Those that may be cut or bad.
    """

    stream: BinaryIO
    as_json: bool
    single_lines: bool
    with_links: bool = False
    doubts: Doubts = field(init=False)

    def __post_init__(self) -> None:
        self.doubts = Doubts("line" if self.single_lines else "text")

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
        self.doubts.note(number, translation)

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


def write_tokens(stream: BinaryIO, tokens: tuple[ScoredToken, ...]) -> None:
    """Writes tokens, each after its probability."""
    for token in tokens:
        stream.write(f"  {math.exp(token.log_probability):6.1%}  {token.piece}\n".encode())
