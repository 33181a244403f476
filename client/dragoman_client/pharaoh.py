"""Word links as Pharaoh text, ``0-0 1-2``, which other programs of the field read."""

import re
from bisect import bisect_left, bisect_right

from dragoman_client.results import TextSpan, Translation

SEPARATOR = " ||| "
"""Stands between a translation and its links."""

_WORD = re.compile(r"\S+")


def pharaoh(source: str, translation: Translation) -> str:
    """Returns a translation's word links as pairs ``i-j`` of a source word and a word of the translation.

    Words are what white space bounds, counted from 0 through the whole text. A word that stands for nothing in the source has
    no pair.

    Args:
        source: The text that was translated.
        translation: Its translation, made with ``include_alignments``.
    """
    source_words, target_words = _Words(source), _Words(translation.text)
    pairs = {
        (i, j)
        for link in translation.word_links
        if link.source is not None
        for i in source_words.within(link.source)
        for j in target_words.within(link.target)
    }
    return " ".join(f"{i}-{j}" for i, j in sorted(pairs))


class _Words:
    """Where the words of a text stand."""

    def __init__(self, text: str) -> None:
        found = [match.span() for match in _WORD.finditer(text)]
        self._starts = [start for start, _ in found]
        self._ends = [end for _, end in found]

    def within(self, span: TextSpan) -> range:
        """Returns the numbers of the words in which a part of the span stands."""
        return range(bisect_right(self._ends, span.start), bisect_left(self._starts, span.end))
