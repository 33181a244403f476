"""How a model stands up to what people type: numbers, loops, long sentences, and other spellings of the same text.

Each figure names its own test; none is used to choose a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman_model.training.augmentation import same_numbers
from dragoman_model.training.corpus import Pair
from dragoman_model.training.evaluate import score_translations

Translate = Callable[[Sequence[str]], Sequence[str]]

LONG_SENTENCE_WORDS = range(15, 20)
NUM_SPELLING_PAIRS = 4000

_FINAL_PUNCTUATION = re.compile(r"\s*[.!?…]+(?=[\"'”“»«)]*\s*$)")
_CHARACTER_LOOP = re.compile(r"(.{2,8})\1{4}", re.DOTALL)
_WORD_LOOP_LENGTH, _WORD_LOOP_TIMES = 3, 3


@dataclass(frozen=True)
class SpellingScore:
    """BLEU when the source is spelt otherwise.

    Attributes:
        spelling: How the source was changed.
        bleu: Against references in the same spelling: without final punctuation, or in capitals. Lower-cased text is scored
            against the references as they are, since German keeps its capitals whatever the English has.
        bleu_as_published: Against the references as they are.
    """

    spelling: str
    bleu: float
    bleu_as_published: float


@dataclass(frozen=True)
class RobustnessReport:
    """The robustness table.

    Attributes:
        num_number_pairs: Pairs whose two sides hold the same digit groups, at least one.
        numbers_kept: Share of those whose translation holds them too, 0 to 1.
        num_loops: Translations that loop (`loops`).
        num_long_pairs: Pairs with 15 to 19 source words.
        long_bleu: BLEU on those.
        num_spelling_pairs: Pairs, the first of the set, for the spellings.
        plain_bleu: BLEU on them as they are.
        spellings: BLEU on them spelt otherwise.
    """

    num_number_pairs: int
    numbers_kept: float
    num_loops: int
    num_long_pairs: int
    long_bleu: float
    num_spelling_pairs: int
    plain_bleu: float
    spellings: tuple[SpellingScore, ...]


def robustness(pairs: Sequence[Pair], translations: Sequence[str], translate: Translate) -> RobustnessReport:
    """Returns the robustness table of a model.

    Args:
        pairs: The test set.
        translations: Of its sources, as they are, in order.
        translate: Translates other spellings of the sources.
    """
    with_numbers = [index for index, pair in enumerate(pairs) if same_numbers(pair)]
    kept = sum(same_numbers(Pair(pairs[index].target, translations[index])) for index in with_numbers)
    long = [index for index, pair in enumerate(pairs) if len(pair.source.split()) in LONG_SENTENCE_WORDS]
    first = pairs[:NUM_SPELLING_PAIRS]
    return RobustnessReport(
        num_number_pairs=len(with_numbers),
        numbers_kept=kept / len(with_numbers) if with_numbers else 1.0,
        num_loops=sum(map(loops, translations)),
        num_long_pairs=len(long),
        long_bleu=_bleu([translations[index] for index in long], [pairs[index].target for index in long]),
        num_spelling_pairs=len(first),
        plain_bleu=_bleu(translations[: len(first)], [pair.target for pair in first]),
        spellings=(
            _spelling(
                "without final punctuation",
                first,
                translate,
                without_final_punctuation,
                without_final_punctuation,
            ),
            _spelling("lower-cased", first, translate, str.lower, str),
            _spelling("ALL CAPS", first, translate, str.upper, str.upper),
        ),
    )


def loops(text: str) -> bool:
    """Returns whether a text holds a word 3-gram 3 times, or 2 to 8 characters 5 times in a row."""
    words = text.split()
    trigrams = Counter(zip(*(words[start:] for start in range(_WORD_LOOP_LENGTH)), strict=False))
    return max(trigrams.values(), default=0) >= _WORD_LOOP_TIMES or _CHARACTER_LOOP.search(text) is not None


def without_final_punctuation(text: str) -> str:
    """Returns a text without its last full stop, question or exclamation mark; closing quotes stay."""
    return _FINAL_PUNCTUATION.sub("", text)


def _spelling(
    spelling: str,
    pairs: Sequence[Pair],
    translate: Translate,
    change_source: Callable[[str], str],
    change_reference: Callable[[str], str],
) -> SpellingScore:
    translations = translate([change_source(pair.source) for pair in pairs])
    references = [pair.target for pair in pairs]
    return SpellingScore(
        spelling,
        _bleu(translations, list(map(change_reference, references))),
        _bleu(translations, references),
    )


def _bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    return score_translations(translations, references).bleu if references else 0.0
