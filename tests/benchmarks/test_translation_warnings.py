"""Translations broken on purpose, and what is said of warnings about them."""

from __future__ import annotations

import random

import pytest
from broken_translations import (
    Translated,
    copied,
    looped,
    of_other_sources,
    with_words_shuffled,
    without_a_clause,
    without_a_sentence,
)
from translation_warnings import Seen, score

from dragoman_model.quality import WarningKind, sentence_warnings

PAIRS = [
    Translated("I know that he sings well.", "Ich weiß, dass er gut singt."),
    Translated("How much does this cost?", "Wie viel kostet das?"),
    Translated(
        "We waited for an hour and went home.", "Wir haben eine Stunde gewartet und sind nach Hause gegangen."
    ),
    Translated("The old man sat on the bench.", "Der alte Mann saß auf der Bank."),
]


@pytest.mark.parametrize("seed", range(10))
def test_loop_is_found_wherever_it_is(seed: int):
    broken = looped(PAIRS, random.Random(seed))

    assert len(broken) == len(PAIRS)
    for pair, whole in zip(broken, PAIRS, strict=True):
        assert pair.source == whole.source
        assert len(pair.target) > len(whole.target)
        kinds = [warning.kind for warning in sentence_warnings(*pair)]
        assert WarningKind.REPETITION in kinds


def test_copy_is_found():
    for pair in copied(PAIRS):
        assert [warning.kind for warning in sentence_warnings(*pair)] == [WarningKind.COPY]


def test_clause_goes_and_the_other_stays_a_sentence():
    targets = {without_a_clause(PAIRS, random.Random(seed))[0].target for seed in range(20)}
    assert targets == {"Ich weiß.", "Dass er gut singt."}


def test_sentence_goes_from_the_translation_alone():
    first, second = without_a_sentence(PAIRS, random.Random(1))
    assert first.source == "I know that he sings well. How much does this cost?"
    assert first.target in (PAIRS[0].target, PAIRS[1].target)
    assert second.target in (PAIRS[2].target, PAIRS[3].target)


def test_translations_are_those_of_other_sources():
    whole = set(PAIRS)
    shuffled = of_other_sources(PAIRS, random.Random(2))
    assert shuffled
    assert not whole & set(shuffled)


def test_shuffled_words_are_the_same_words():
    (shuffled, *_) = with_words_shuffled([pair.source for pair in PAIRS], random.Random(1))
    assert shuffled != PAIRS[0].source
    assert sorted(shuffled.split()) == sorted(PAIRS[0].source.split())


def test_precision_depends_on_how_many_are_broken():
    def seen(warned: int, count: int) -> list[Seen]:
        kinds = frozenset({WarningKind.COPY})
        return [Seen(kinds if index < warned else frozenset(), None, 0.0) for index in range(count)]

    made = score(
        WarningKind.COPY,
        {"as translated": seen(1, 60), "two as translated": seen(1, 40), "source copied": seen(9, 10)},
    )

    assert made.recall == 0.9
    assert made.false_rate == 0.02
    assert made.precision == pytest.approx(0.9 / 0.92)
    assert made.precision_rare == pytest.approx(0.02 * 0.9 / (0.02 * 0.9 + 0.98 * 0.02))
