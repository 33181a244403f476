"""A text as the sentences a model can translate, and what stands between them, which comes back verbatim."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sentencex

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text.

    Attributes:
        text: The sentence, without white space around it; never empty.
        start: Where it stands in the text, in code points.
    """

    text: str
    start: int


@dataclass(frozen=True)
class SplitText:
    """A text cut into sentences.

    Attributes:
        sentences: In the text's order; none where the text is blank.
        separators: What stands before the first sentence, between every two, and after the last: one more than there
            are sentences.
    """

    sentences: tuple[Sentence, ...]
    separators: tuple[str, ...]

    def join(self, translations: Sequence[str]) -> str:
        """Returns the text with a translation in each sentence's place.

        Args:
            translations: One for each sentence.
        """
        assert len(translations) == len(self.sentences)
        parts = [self.separators[0]]
        for translation, separator in zip(translations, self.separators[1:]):
            parts += (translation, separator)
        return "".join(parts)


def split_text(text: str, language: str, *, sentences: bool = True) -> SplitText:
    """Returns the sentences of a text; joining them unchanged gives the text again, whatever it holds.

    Args:
        text: Any text.
        language: BCP-47; its abbreviations end no sentence.
        sentences: Cut at line breaks and sentence ends; False: the text is one sentence.
    """
    found: list[Sentence] = []
    separators: list[str] = []
    end = 0  # of the sentence before
    for start, stop in _ranges(text, language) if sentences else [(0, len(text))]:
        sentence = text[start:stop].strip()
        if not sentence:
            continue
        begin = text.index(sentence[0], start)
        separators.append(text[end:begin])
        found.append(Sentence(sentence, begin))
        end = begin + len(sentence)
    return SplitText(tuple(found), (*separators, text[end:]))


def whole_characters(text: str) -> str:
    """Returns the text with each lone surrogate, which UTF-8 can't hold, as U+FFFD; positions stay."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def is_start_of_character(data: bytes) -> bool:
    """Returns whether more bytes may make one character of these in UTF-8; of some that never do, too (U+D800)."""
    lead = data[0]
    length = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 1
    return len(data) < length and all(0x80 <= byte < 0xC0 for byte in data[1:])


def _ranges(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges of the text's sentences, white space included."""
    line_start = 0
    for line in text.splitlines(keepends=True):
        if not line.isspace():  # thousands of empty lines must not cost what sentences do
            for start, stop in _sentence_ranges(line, language):
                yield line_start + start, line_start + stop
        line_start += len(line)


def _sentence_ranges(line: str, language: str) -> list[tuple[int, int]]:
    """Returns the ranges of a line's sentences; a part without a word, "😀" say, belongs to its neighbour."""
    boundaries = sentencex.get_sentence_boundaries(language.partition("-")[0].lower(), whole_characters(line))
    ranges: list[tuple[int, int]] = []
    wordless = False
    start = 0
    for stop in [*(boundary["end_index"] for boundary in boundaries[:-1]), len(line)]:
        has_word = any(map(str.isalnum, line[start:stop]))
        if ranges and (wordless or not has_word):
            ranges[-1] = (ranges[-1][0], stop)
            wordless = wordless and not has_word
        else:
            ranges.append((start, stop))
            wordless = not has_word
        start = stop
    return ranges
