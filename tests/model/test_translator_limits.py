"""How long a sentence and its translation may be."""

import copy
import dataclasses

import pytest

from dragoman_model.errors import PrefixTooLongError, SentenceTooLongError
from dragoman_model.lengths import default_max_length, max_length_of
from dragoman_model.options import DecodingOptions
from dragoman_model.plan import FinishReason
from dragoman_model.translation import prepare
from dragoman_model.translator import Translator
from tests.model.made_up import mixed_texts
from tests.models import tiny_config

LENGTH = FinishReason.LENGTH


@pytest.fixture(scope="module")
def translator(tiny_model):
    return Translator(tiny_model)


@pytest.fixture(scope="module")
def endless_model(tiny_model):
    """The tiny model without any inclination to end a sentence."""
    transformer = copy.deepcopy(tiny_model.transformer)
    transformer.output_bias[tiny_model.config.eos_id] = -1000.0
    return dataclasses.replace(tiny_model, transformer=transformer)


def test_a_sentence_over_the_limit_is_refused_with_its_place_length_and_limit(tiny_model, translator):
    long = "cat " * 300
    length = len(tiny_model.tokenizer.encode(long.strip()))
    for call in (lambda text: prepare(tiny_model, text), lambda text: translator.translate(["A dog.", text])):
        with pytest.raises(SentenceTooLongError) as caught:
            call(f"Lena sees you. {long}")
        error = caught.value
        assert (error.sentence_index, error.length, error.limit) == (1, length, 256)
        assert "sentence 2 " in str(error)  # people count from one
        assert str(length) in str(error)
        assert "256" in str(error)


def test_the_limit_itself_is_allowed(tiny_model):
    config = dataclasses.replace(tiny_model.config, max_source_length=7)
    model = dataclasses.replace(tiny_model, config=config)
    texts = [" ".join(["you"] * n) for n in range(1, 12)]
    lengths = [len(tiny_model.tokenizer.encode(text)) for text in texts]
    assert 7 in lengths
    assert max(lengths) > 7
    for text, length in zip(texts, lengths, strict=True):
        if length <= 7:
            assert len(prepare(model, text).source_ids[0]) == length
        else:
            with pytest.raises(SentenceTooLongError):
                prepare(model, text)


@pytest.mark.parametrize(
    ("max_target_length", "source_length", "expected"),
    [(256, 1, 12), (256, 20, 50), (256, 122, 254), (256, 123, 255), (256, 250, 255), (8, 30, 7)],
)
def test_a_translation_may_be_10_tokens_and_twice_its_source_long(max_target_length, source_length, expected):
    config = tiny_config(max_target_length=max_target_length)
    assert default_max_length(config, source_length) == expected


def test_the_default_limit_holds_for_each_sentence(endless_model):
    text = "you"
    translation = Translator(endless_model).translate([text])[0]
    assert translation.finish_reason is LENGTH
    assert translation.target_token_count == 10 + 2 * len(endless_model.tokenizer.encode(text))


@pytest.mark.parametrize("max_length", [1, 4])
def test_a_limit_of_the_callers_holds_for_each_sentence(endless_model, max_length):
    for translation in Translator(endless_model).translate(
        mixed_texts(10), options=DecodingOptions(max_length=max_length)
    ):
        assert translation.target_token_count == max_length * translation.sentence_count
        assert translation.finish_reason is (LENGTH if translation.sentence_count else None)


def test_a_limit_beyond_the_models_is_the_models(endless_model):
    source_ids = tuple(endless_model.tokenizer.encode("you"))
    result = Translator(endless_model).decode([source_ids], options=DecodingOptions(max_length=10_000))[0][0]
    assert result.finish_reason is LENGTH
    assert len(result.token_ids) == endless_model.config.max_target_length - 1


def test_a_minimum_or_a_prefix_raises_the_default_limit():
    config = tiny_config()
    assert max_length_of(config, DecodingOptions(), 5) == 20
    assert max_length_of(config, DecodingOptions(min_length=30), 5) == 30
    assert max_length_of(config, DecodingOptions(), 5, prefix_length=25) == 26
    assert max_length_of(config, DecodingOptions(max_length=4), 5, prefix_length=3) == 4


def test_a_prefix_as_long_as_the_limit_is_refused_with_its_text(translator, tiny_model):
    options = DecodingOptions(max_length=4)
    prefix = "Die Katze sieht das Haus."
    with pytest.raises(PrefixTooLongError, match="at most 3") as caught:
        translator.translate(["Hi.", "The cat."], options=options, target_prefixes=["", prefix])
    assert caught.value.text_index == 1
    assert caught.value.length == len(tiny_model.tokenizer.encode_target(prefix)) - 1
