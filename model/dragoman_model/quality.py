"""Signs that a translation may be bad: what its text shows, and what the attention between it and its source shows.

Each check is a plain function of one sentence and its translation. What counts as odd stands in `Thresholds`, and nowhere
else; benchmarks/translation_warnings.py chooses the values and measures what they find. docs/warnings.md says what each sign
is worth.
"""

from __future__ import annotations

import difflib
import enum
import functools
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dragoman_model.text import SplitText

Span = tuple[int, int]


class WarningKind(enum.Enum):
    """What is wrong, as far as can be seen.

    Attributes:
        UNCOVERED_SOURCE: Words of the source that the translation hardly looked at.
        REPETITION: The translation says the same thing again and again.
        COPY: The translation is the source.
        LENGTH_RATIO: The translation is oddly long or short.
    """

    UNCOVERED_SOURCE = "uncovered_source"
    REPETITION = "repetition"
    COPY = "copy"
    LENGTH_RATIO = "length_ratio"


@dataclass(frozen=True, kw_only=True)
class QualityWarning:
    """A sign that a translation may be bad.

    Attributes:
        kind: What was seen.
        message: The same in a sentence, without any of the text.
        value: The measured value that crossed its threshold.
        source: Where in the source, as half-open code points; None is nowhere.
        target: Where in the translation, likewise.
    """

    kind: WarningKind
    message: str
    value: float
    source: Span | None = None
    target: Span | None = None

    def moved(self, source_offset: int, target_offset: int) -> QualityWarning:
        """Returns it with its spans moved, as from a sentence into its text."""
        return replace(
            self, source=_moved(self.source, source_offset), target=_moved(self.target, target_offset)
        )


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What counts as odd.

    Attributes:
        min_repeats: Times in a row that words stand, 2 or more.
        min_character_repeats: Times in a row that 2 to 8 characters stand, wherever words begin; 2 or more.
        min_copied_share: Share of the source's words, names and numbers left out, that stand in the translation in their
            order, 0 to 1.
        min_copied_words: So many such words of the source, below which nothing is said of copying.
        min_length_ratio: (characters of the translation + slack) / (characters of the source + slack), at least.
        max_length_ratio: The same, at most.
        length_slack: Characters by which either side may always differ: "Hi." is "Guten Tag!".
        min_coverage: Attention that so many source words in a row draw on average, in words of the translation, at least.
        num_uncovered_words: How many; 1 or more.
    """

    min_repeats: int = 2
    min_character_repeats: int = 5
    min_copied_share: float = 0.75
    min_copied_words: int = 2
    min_length_ratio: float = 0.65
    max_length_ratio: float = 1.8
    length_slack: int = 10
    min_coverage: float = 0.16
    num_uncovered_words: int = 3


THRESHOLDS = Thresholds()

# What loops is shorter, and a longer loop makes the translation oddly long.
_MAX_LOOP_WORDS = 16
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def sentence_warnings(
    source: str, target: str, thresholds: Thresholds = THRESHOLDS
) -> tuple[QualityWarning, ...]:
    """Returns what the texts of a sentence and its translation show: for each kind one warning at most.

    Args:
        source: The sentence.
        target: Its translation.
        thresholds: What counts as odd.
    """
    found = (
        repetition(source, target, thresholds),
        copied_source(source, target, thresholds),
        odd_length(source, target, thresholds),
    )
    return tuple(warning for warning in found if warning is not None)


def text_warnings(split: SplitText, translations: Sequence[str]) -> tuple[QualityWarning, ...]:
    """Returns what the texts of a translation show, sentence by sentence.

    Args:
        split: The source text.
        translations: Of its sentences; `SplitText.join` makes the translation of them.

    Returns:
        Warnings whose spans are into the whole texts.
    """
    warnings: list[QualityWarning] = []
    offset = 0
    for separator, sentence, translation in zip(
        split.separators, split.sentences, translations, strict=False
    ):
        offset += len(separator)
        found = sentence_warnings(sentence.text, translation)
        warnings += [warning.moved(sentence.start, offset) for warning in found]
        offset += len(translation)
    return tuple(warnings)


def repetition(source: str, target: str, thresholds: Thresholds = THRESHOLDS) -> QualityWarning | None:
    """Returns a warning where words, or characters, stand more often in a row than any do in the source.

    Words are what white space bounds, and are the same only with the same capitals and punctuation: "dass Sie sie" and "wer war,
    war da" are German. Of several loops the one that runs most often is told of, of those the first.
    """
    words = _spaced_words(target)
    loop = _longest_loop(words)
    if loop.times >= thresholds.min_repeats and loop.times > _longest_loop(_spaced_words(source)).times:
        what = "A word stands" if loop.size == 1 else f"{loop.size} words stand"
        starts = [found.start() for found in re.finditer(r"\S+", target)]
        last = loop.first + loop.size * loop.times - 1
        return _repeated(what, loop.times, (starts[loop.first], starts[last] + len(words[last])))
    pattern = _character_loop(thresholds.min_character_repeats)
    found = pattern.search(target)
    if found is not None and pattern.search(source) is None:
        size = len(found[1])
        return _repeated(f"{size} characters stand", len(found[0]) // size, found.span())
    return None


def _repeated(what: str, times: int, span: Span) -> QualityWarning:
    message = f"{what} {times} times in a row in the translation."
    return QualityWarning(kind=WarningKind.REPETITION, message=message, value=times, target=span)


def copied_source(source: str, target: str, thresholds: Thresholds = THRESHOLDS) -> QualityWarning | None:
    """Returns a warning where the translation holds most of the source's words in their order, names and numbers aside.

    A name is a word with a capital inside a sentence that isn't all capitals. A text of names, numbers or a single word may
    well be its own translation.
    """
    known = set(map(str.casefold, _WORD.findall(target)))
    # Names and numbers included these are at least as many as count below. Nearly always they are too few, and that is soon seen.
    num_known = sum(word in known for word in map(str.casefold, _WORD.findall(source)))
    if num_known < thresholds.min_copied_share * thresholds.min_copied_words:
        return None
    words = _words_to_translate(source)
    if len(words) < thresholds.min_copied_words:
        return None
    theirs = list(_WORD.finditer(target))
    source_words = [word[0].casefold() for word in words]
    target_words = [word[0].casefold() for word in theirs]
    if sum(word in known for word in source_words) < thresholds.min_copied_share * len(words):
        return None
    # It finds the longest common runs first, which for a copy is all of it.
    matcher = difflib.SequenceMatcher(None, source_words, target_words, autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    share = sum(block.size for block in blocks) / len(words)
    if share < thresholds.min_copied_share:
        return None
    first, last = blocks[0], blocks[-1]
    return QualityWarning(
        kind=WarningKind.COPY,
        message=f"{share:.0%} of the source's words stand in the translation as they were.",
        value=share,
        source=(words[first.a].start(), words[last.a + last.size - 1].end()),
        target=(theirs[first.b].start(), theirs[last.b + last.size - 1].end()),
    )


def odd_length(source: str, target: str, thresholds: Thresholds = THRESHOLDS) -> QualityWarning | None:
    """Returns a warning where the translation is far longer or shorter than its source."""
    slack = thresholds.length_slack
    ratio = (len(target) + slack) / (len(source) + slack)
    if thresholds.min_length_ratio <= ratio <= thresholds.max_length_ratio:
        return None
    word = "short" if ratio < 1 else "long"
    message = f"The translation is oddly {word}: {len(target)} characters for {len(source)} of the source."
    return QualityWarning(kind=WarningKind.LENGTH_RATIO, message=message, value=ratio)


class _Loop(NamedTuple):
    """``size`` words from the one at ``first`` on, ``times`` times in a row."""

    times: int
    first: int = 0
    size: int = 0


def _longest_loop(words: Sequence[str]) -> _Loop:
    """Returns the words that stand most often in a row; once where none are repeated."""
    best = _Loop(1)
    if len(set(words)) == len(words):
        return best
    for size in range(1, min(_MAX_LOOP_WORDS, len(words) // 2) + 1):
        if not any(map(operator.eq, words, words[size:])):
            continue
        run = 0  # words so far that are equal to those ``size`` before
        for index in range(size, len(words)):
            run = run + 1 if words[index] == words[index - size] else 0
            if run // size + 1 > best.times:
                best = _Loop(run // size + 1, index + 1 - size - run, size)
    return best


def _spaced_words(text: str) -> list[str]:
    """Returns the words, as white space bounds them; punctuation at the text's end belongs to none."""
    words = text.split()
    if words:
        last = words[-1]
        end = len(last)
        while end > 1 and not last[end - 1].isalnum():
            end -= 1
        words[-1] = last[:end]
    return words


@functools.cache
def _character_loop(min_repeats: int) -> re.Pattern[str]:
    return re.compile(rf"(\S.{{1,7}}?)\1{{{min_repeats - 1},}}", re.DOTALL)


def _words_to_translate(source: str) -> list[re.Match[str]]:
    """Returns the words of a sentence but for names and numbers."""
    are_capitals_names = source != source.upper()
    return [
        word
        for index, word in enumerate(_WORD.finditer(source))
        if any(map(str.isalpha, word[0])) and not (are_capitals_names and index and word[0][0].isupper())
    ]


def _moved(span: Span | None, offset: int) -> Span | None:
    return None if span is None else (span[0] + offset, span[1] + offset)
