"""What the real server on loopback makes of text, good and bad, with a real, tiny model of random weights."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.v1 import FinishReason, TextSplit, TranslateTextRequest
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.options import DecodingOptions
from dragoman_model.translator import Translator
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, violations


async def test_translations_are_those_of_the_model_alone(server: RunningServer, model: LoadedModel):
    response = await server.stub.TranslateText(
        TranslateTextRequest(texts=SENTENCES, output={"include_tokens": True})
    )
    assert response.model == "en-de"
    assert response.model_digest == model.digest
    for ours, alone in zip(response.translations, Translator(model).translate(SENTENCES), strict=True):
        assert ours.text == alone.text
        assert ours.score == pytest.approx(alone.score, abs=1e-4)
        assert ours.normalized_score == pytest.approx(alone.normalized_score, abs=1e-4)
        assert ours.source_token_count == alone.source_token_count
        assert ours.target_token_count == alone.target_token_count == len(ours.tokens)
        assert math.fsum(token.log_probability for token in ours.tokens) == pytest.approx(
            ours.score, abs=1e-4
        )
        for token in ours.tokens:
            if token.HasField("span"):
                assert 0 <= token.span.start <= token.span.end <= len(ours.text)


async def test_tokens_come_only_when_asked_for(server: RunningServer):
    response = await server.stub.TranslateText(TranslateTextRequest(texts=["He sings!"]))
    assert not response.translations[0].tokens


async def test_finish_reasons_are_those_of_the_sentences(server: RunningServer):
    response = await server.stub.TranslateText(
        TranslateTextRequest(texts=[*SENTENCES, "", " \n\t"], options={"max_decoding_length": 1})
    )
    reasons = [translation.finish_reason for translation in response.translations]
    assert set(reasons[: len(SENTENCES)]) <= {
        FinishReason.FINISH_REASON_EOS,
        FinishReason.FINISH_REASON_LENGTH,
    }
    assert FinishReason.FINISH_REASON_LENGTH in reasons
    assert reasons[len(SENTENCES) :] == [FinishReason.FINISH_REASON_BLANK] * 2


async def test_blank_texts_come_back_at_their_index_without_a_model_call(server: RunningServer):
    blanks = ["", " ", "\r\n\r\n", "\u3000\u2028", " " * 1999]
    response = await server.stub.TranslateText(TranslateTextRequest(texts=blanks))
    assert [translation.text for translation in response.translations] == blanks
    assert not any(translation.HasField("score") for translation in response.translations)
    assert server.value("dragoman_step_rows_count", model="en-de") == 0
    assert server.value("dragoman_sentences_total", model="en-de", finish_reason="blank") == len(blanks)


async def test_texts_of_several_sentences_are_split_and_rejoined(server: RunningServer):
    text = "  He sings!  She reads.\r\n\r\n\tA girl."
    sentences = ["He sings!", "She reads.", "A girl."]
    response = await server.stub.TranslateText(TranslateTextRequest(texts=[text, *sentences]))
    whole, *parts = response.translations
    assert whole.sentence_count == 3
    assert whole.text == f"  {parts[0].text}  {parts[1].text}\r\n\r\n\t{parts[2].text}"
    assert whole.score == pytest.approx(sum(part.score for part in parts), abs=1e-4)
    assert whole.target_token_count == sum(part.target_token_count for part in parts)


async def test_a_text_is_one_sentence_when_asked_for(server: RunningServer):
    response = await server.stub.TranslateText(
        TranslateTextRequest(texts=["He sings! She reads."], split=TextSplit.TEXT_SPLIT_NONE)
    )
    assert response.translations[0].sentence_count == 1


@pytest.mark.parametrize(("least", "most"), [(0, 3), (5, 5), (20, 30), (255, 255)])
async def test_lengths_are_kept_to(server: RunningServer, least: int, most: int):
    response = await server.stub.TranslateText(
        TranslateTextRequest(
            texts=["He sings!"], options={"min_decoding_length": least, "max_decoding_length": most}
        )
    )
    (translation,) = response.translations
    ended = translation.finish_reason == FinishReason.FINISH_REASON_EOS
    assert least <= translation.target_token_count - ended <= most


async def test_a_least_length_above_the_default_limit_is_kept_to(server: RunningServer):
    response = await server.stub.TranslateText(
        TranslateTextRequest(texts=["He sings!"], options={"min_decoding_length": 100})
    )
    assert response.translations[0].target_token_count >= 100


@pytest.mark.parametrize(
    ("request_fields", "code", "field", "words"),
    [
        ({"texts": []}, "INVALID_ARGUMENT", "texts", ["0", "256"]),
        ({"texts": ["a"] * 257}, "INVALID_ARGUMENT", "texts", ["257", "256"]),
        ({"texts": ["a", "b" * 2001]}, "INVALID_ARGUMENT", "texts[1]", ["2001", "2000"]),
        ({"texts": ["a", "He. " + "b c " * 300], "split": 2}, "INVALID_ARGUMENT", "texts[1]", ["sentence 0", "256"]),
        ({"texts": ["a"], "source_language_code": "e!"}, "INVALID_ARGUMENT", "source_language_code", ["e!"]),
        ({"texts": ["a"], "options": {"max_decoding_length": 256}}, "INVALID_ARGUMENT",
         "options.max_decoding_length", ["256", "255"]),
        ({"texts": ["a"], "options": {"min_decoding_length": 256}}, "INVALID_ARGUMENT",
         "options.min_decoding_length", ["256", "255"]),
        ({"texts": ["a"], "options": {"beam_size": 9}}, "INVALID_ARGUMENT", "options.beam_size", ["9", "1 to 8"]),
        ({"texts": ["a"], "options": {"num_hypotheses": 2}}, "INVALID_ARGUMENT", "options.num_hypotheses", ["2"]),
        ({"texts": ["a"], "target_prefixes": ["Das"] * 2}, "INVALID_ARGUMENT", "target_prefixes", ["2", "1 texts"]),
        ({"texts": ["a", "a"], "target_prefixes": ["", "Das " * 99], "options": {"max_decoding_length": 9}},
         "INVALID_ARGUMENT", "target_prefixes[1]", ["at most 8"]),
        ({"texts": ["a"], "output": {"alignment_method": 2}}, "INVALID_ARGUMENT", "output.alignment_method", ["include_alignments"]),
        ({"texts": ["a"], "model": "de-en"}, "NOT_FOUND", "model", ["de-en"]),
        ({"texts": ["a"], "source_language_code": "fr"}, "NOT_FOUND", "source_language_code", ["fr"]),
    ],
)  # fmt: skip
async def test_bad_input_gets_its_answer(
    server: RunningServer, request_fields: dict[str, Any], code: str, field: str, words: list[str]
):
    error = await refusal(server.stub.TranslateText(TranslateTextRequest(**request_fields)))
    assert error.code().name == code
    ((found, description),) = violations(error).items()
    assert found == field
    for word in words:
        assert word in description
    if code == "NOT_FOUND":
        assert "en-de (en to de)" in (error.details() or "")
    assert server.value("dragoman_step_rows_count", model="en-de") == 0


async def test_a_compressed_request_is_refused_before_it_is_unpacked(server: RunningServer):
    call = server.stub.TranslateText(
        TranslateTextRequest(texts=["a" * 1000]), compression=grpc.Compression.Gzip
    )
    error = await refusal(call)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in (error.details() or "")


async def test_a_language_falls_back_to_the_served_one(server: RunningServer):
    request = TranslateTextRequest(
        texts=["He sings!"], source_language_code="en-GB", target_language_code="de-AT"
    )
    assert (await server.stub.TranslateText(request)).model == "en-de"


nasty = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\x00\ufeff\r\n\t \u200d\u0301\u2028😀👩🏽🇩🇪½ß漢שُ"),
        st.sampled_from("abc .!?"),
    ),
    max_size=60,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(nasty, min_size=1, max_size=8))
def test_every_text_gets_a_translation_of_its_own(model: LoadedModel, texts: list[str]):
    async def translate() -> None:
        async with serving(model, http="") as server:
            response = await server.stub.TranslateText(
                TranslateTextRequest(texts=texts, options={"max_decoding_length": 6})
            )
        alone = Translator(model).translate(texts, options=DecodingOptions(max_length=6))
        assert [translation.text for translation in response.translations] == [text.text for text in alone]
        for text, translation in zip(texts, response.translations, strict=True):
            if not text.strip():
                assert translation.finish_reason == FinishReason.FINISH_REASON_BLANK
            if translation.finish_reason == FinishReason.FINISH_REASON_BLANK:
                assert translation.text == text

    asyncio.run(translate())


@pytest.mark.parametrize(
    "text",
    ["😀", "\x00", "\ufeffHi", "a\x00b", "漢字かな交じり", "ש\u05b8לום", "e\u0301" * 50, "x" + " " * 1998],
)
async def test_odd_text_gets_a_translation_or_a_clear_error(server: RunningServer, text: str):
    response = await server.stub.TranslateText(TranslateTextRequest(texts=["He sings!", text, "He sings!"]))
    first, _, last = response.translations
    assert first.text == last.text
