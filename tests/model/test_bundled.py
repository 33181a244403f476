"""The bundled model, on what people type: everyday sentences, spelt as they come."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.plan import FinishReason
from dragoman_model.training.robustness import loops
from dragoman_model.translation import TextTranslation
from dragoman_model.translator import Translator

EVERYDAY = (
    "Good morning",
    "Hello!",
    "thanks a lot",
    "See you tomorrow",
    "How are you today?",
    "what time is it",
    "Where is the nearest train station?",
    "Could you please help me?",
    "I would like a cup of coffee with milk, please.",
    "My sister lives in a small village near the sea.",
    "The train leaves at 7:45.",
    "I was born in 1987.",
    "The ticket costs 23 euros.",
    "We need 3 eggs and 250 grams of flour.",
    "Call me at 5 o'clock.",
    "There are 365 days in a year.",
    "Room 412 is on the 4th floor.",
    "Visit https://example.com for more information.",
    "My address is lena@example.com.",
    "It is raining. Take an umbrella with you.",
    "I am tired. I want to go home now.",
    "Stop! The bridge is closed.",
    "PLEASE CLOSE THE DOOR",
    "I LOVE YOU",
    "WHERE IS MY PHONE?",
    "do you speak english?",
    "i don't know what to say",
    "I don’t understand this word.",
    "“Come here,” she said.",
    "A girl is reading a book in the garden.",
    "The children are playing in the park with their new ball.",
    "If it rains tomorrow, we will stay at home and watch a film.",
    "He has never been to Germany, but he speaks German very well.",
    "She works at a hospital",
    "Can I pay by card?",
    "This soup is too hot for me.",
    "Nobody knows why the old shop closed last week.",
    "Don't forget to feed the cat!",
    "Happy birthday to you 🎂",
    "Everything will be fine.",
)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    # In int8 a close decision may fall otherwise on another processor.
    return load_model(BUNDLED_MODEL, device="cpu", precision="float32")


@pytest.fixture(scope="module")
def translations(model: LoadedModel) -> dict[str, TextTranslation]:
    return dict(zip(EVERYDAY, Translator(model).translate(EVERYDAY), strict=True))


@pytest.mark.parametrize("source", EVERYDAY)
def test_an_everyday_sentence_comes_out_sane(source: str, translations: dict[str, TextTranslation]) -> None:
    translation = translations[source]
    assert translation.text.strip()
    assert translation.text.casefold() != source.casefold()
    assert not loops(translation.text)
    assert translation.finish_reason is FinishReason.EOS
    assert Counter(re.findall(r"\d+", translation.text)) == Counter(re.findall(r"\d+", source))


def test_capitals_stay_capitals(translations: dict[str, TextTranslation]) -> None:
    for source in EVERYDAY:
        if source.isupper():
            assert translations[source].text.isupper()


def test_the_model_is_small_enough_to_ship(model: LoadedModel) -> None:
    assert 5_000_000 <= model.parameter_count <= 10_000_000
    assert sum(path.stat().st_size for path in BUNDLED_MODEL.iterdir()) <= 20_000_000


def test_the_model_card_says_what_a_user_must_know() -> None:
    card = (BUNDLED_MODEL / "README.md").read_text(encoding="utf-8")
    for part in (
        "manythings.org/anki",
        "tatoeba.org",
        "CC BY 2.0",
        "BLEU",
        "nrefs:1|case:mixed",
        "dragoman-model train",
    ):
        assert part in card, part
