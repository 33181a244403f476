"""What the texts of a sentence and its translation show."""

from __future__ import annotations

import pytest

from dragoman_model.quality import Thresholds, WarningKind, sentence_warnings, text_warnings
from dragoman_model.text import split_text

LENGTH, COPY, REPETITION = WarningKind.LENGTH_RATIO, WarningKind.COPY, WarningKind.REPETITION


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("How much does this cost?", "Wie viel kostet das?"),
        ("Hi.", "Guten Tag!"),
        ("No, no, no!", "Nein, nein, nein!"),
        ("very very good", "sehr sehr gut"),
        ("Hahahahaha!", "Hahahahaha!"),
        ("I know that you asked her.", "Ich weiß, dass Sie sie gefragt haben."),
        ("Everybody who was anybody was there.", "Jeder, der wer war, war da."),
        ("Tom is arrogant.", "Tom ist arrogant."),
        ("", ""),
    ],
)
def test_good_translation_has_no_warning(source: str, target: str):
    assert sentence_warnings(source, target) == ()


@pytest.mark.parametrize(
    "text",
    ["Berlin", "Tom Jackson", "New York Times", "3.50", "Mr. Smith", "2026-11-30, 14:30", "☃", "Hello", "OK"],
)
def test_name_a_number_or_a_single_word_may_be_its_own_translation(text: str):
    assert sentence_warnings(text, text) == ()


@pytest.mark.parametrize(
    ("source", "target", "times", "looped"),
    [
        ("I am reading.", "Ich lese lese ein Buch.", 2, "lese lese"),
        ("What do you want?", "Was willst du denn denn?", 2, "denn denn"),
        (
            "I live in the town.",
            "Ich wohne in der Stadt, in der Stadt, in der Stadt.",
            2,
            "in der Stadt, in der Stadt,",
        ),
        ("No, no!", "Nein, nein nein nein!", 3, "nein nein nein"),
        ("Cats sing.", "Kakakakakaka", 5, "akakakakak"),
        ("猫が歌う。", "猫猫猫歌う歌う歌う歌う歌う", 5, "歌う歌う歌う歌う歌う"),
    ],
)
def test_loop_is_told_of_with_its_place(source: str, target: str, times: int, looped: str):
    warnings = [warning for warning in sentence_warnings(source, target) if warning.kind is REPETITION]

    (warning,) = warnings
    assert warning.value == times
    assert warning.source is None
    assert target[slice(*warning.target)] == looped
    assert f"{times} times" in warning.message


def test_copied_sentence_is_told_of_with_its_places():
    source, target = "“The cat is sleeping on Tom's bed.”", "„The cat is sleeping on Toms Bett.“"

    (warning,) = sentence_warnings(source, target)

    assert warning.kind is COPY
    assert 0.8 < warning.value < 1
    assert source[slice(*warning.source)] == "The cat is sleeping on"
    assert target[slice(*warning.target)] == "The cat is sleeping on"


def test_copy_of_two_words_is_the_shortest_that_is_told_of():
    (warning,) = sentence_warnings("good morning", "good morning")
    assert (warning.kind, warning.value) == (COPY, 1.0)


def test_copy_in_capitals_is_told_of():
    (warning,) = sentence_warnings("GOOD MORNING, EVERYBODY", "Good morning, everybody")
    assert (warning.kind, warning.value) == (COPY, 1.0)


@pytest.mark.parametrize(("target", "word"), [("Ja.", "short"), ("Ja, das ist wahr. " * 9, "long")])
def test_oddly_short_or_long_translation_is_told_of(target: str, word: str):
    source = "She has been learning the piano for six years now."

    (warning,) = [warning for warning in sentence_warnings(source, target) if warning.kind is LENGTH]

    assert warning.value == pytest.approx((len(target) + 10) / (len(source) + 10))
    assert f"oddly {word}: {len(target)} characters for {len(source)}" in warning.message
    assert (warning.source, warning.target) == (None, None)


def test_thresholds_decide():
    source, target = "I am reading.", "Ich lese lese ein Buch."

    assert sentence_warnings(source, target, Thresholds(min_repeats=3)) == ()
    assert [
        warning.kind for warning in sentence_warnings(source, target, Thresholds(max_length_ratio=1.2))
    ] == [
        REPETITION,
        LENGTH,
    ]


def test_message_holds_nothing_of_the_texts():
    source = "Zanzibar grows hydrangeas."
    for warning in sentence_warnings(source, source * 9):
        assert not {"zanzibar", "grows", "hydrangeas"} & set(warning.message.lower().split())


def test_spans_are_into_the_whole_texts():
    source = "  I am 😀.\nYou sing well. The cat sleeps on it. "
    translations = ["Ich bin bin 😀.", "Du singst gut.", "The cat sleeps on it."]
    split = split_text(source, "en")
    target = split.join(translations)

    repetition, copy = text_warnings(split, translations)

    assert target[slice(*repetition.target)] == "bin bin"
    assert source[slice(*copy.source)] == target[slice(*copy.target)] == "The cat sleeps on it"
