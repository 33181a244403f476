"""Translations given in their own tokens have their own scores, on the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.v1 import (
    FinishReason,
    Hypothesis,
    ScoreTextRequest,
    TextSplit,
    TranslateTextRequest,
    Translation,
)
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from tests.integration.servers import NASTY_LINES, SENTENCES, RunningServer, refusal, serving, violations
from tests.model.made_up import made_up_pairs
from tests.models import make_tiny_model

TEXTS = [
    *SENTENCES,
    *(line for line in NASTY_LINES if len(line) < 100),
    *(p.source for p in made_up_pairs()[::9]),
]

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "alternatives": {"options": {"beam_size": 4, "num_hypotheses": 4}},
    "samples": {"options": {"sampling_topk": 0, "num_hypotheses": 3, "seed": 3, "sampling_temperature": 1.4}},
    "cut": {"options": {"max_decoding_length": 3}},
    "cut beams": {"options": {"beam_size": 3, "num_hypotheses": 3, "max_decoding_length": 2}},
    "prefix": {},
    "constraints": {"options": {"repetition_penalty": 2.0, "no_repeat_ngram_size": 2, "min_decoding_length": 9}},
    "one token": {"options": {"max_decoding_length": 1}},
}  # fmt: skip


def pieces_of(translation: Translation | Hypothesis) -> list[str]:
    return [token.piece for token in translation.tokens]


async def translations(
    server: RunningServer, texts: list[str], search: str
) -> list[tuple[str, Translation | Hypothesis]]:
    """Returns each translation of each text, and the text; blank ones have none."""
    response = await server.stub.TranslateText(
        TranslateTextRequest(
            texts=texts,
            split=TextSplit.TEXT_SPLIT_NONE,
            output={"include_tokens": True},
            target_prefixes=["Das 猫 <s>"] * len(texts) if search == "prefix" else [],
            **SEARCHES[search],
        )
    )

    def found() -> Iterator[tuple[str, Translation | Hypothesis]]:
        for text, one in zip(texts, response.translations, strict=True):
            if one.HasField("score"):
                yield from ((text, each) for each in one.alternatives or [one])

    return list(found())


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["tiny", "bundled"])
async def test_every_translation_has_its_own_score_again(tmp_path: Path, kind: str, precision: str):
    directory = BUNDLED_MODEL if kind == "bundled" else make_tiny_model(tmp_path / "en-de")
    loaded = load_model(directory, device="cpu", precision=precision)
    texts = TEXTS[::3] if kind == "bundled" else TEXTS
    reasons = set()
    async with serving(loaded, http="") as server:
        for search in SEARCHES:
            made = await translations(server, texts, search)
            items = [{"text": text, "pieces": pieces_of(one)} for text, one in made]
            calls = [
                server.stub.ScoreText(ScoreTextRequest(items=items[start : start + 100]))
                for start in range(0, len(items), 100)
            ]
            scores = [score for response in await asyncio.gather(*calls) for score in response.scores]
            for (_, one), score in zip(made, scores, strict=True):
                assert score.score == pytest.approx(one.score, abs=1e-4)
                assert score.normalized_score == pytest.approx(one.normalized_score, abs=1e-4)
                assert pieces_of(score) == pieces_of(one)
                for ours, theirs in zip(score.tokens, one.tokens, strict=True):
                    assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
                    assert ours.span == theirs.span
                reasons.add(one.finish_reason)
    assert reasons == {FinishReason.FINISH_REASON_EOS, FinishReason.FINISH_REASON_LENGTH}


async def test_an_empty_translation_is_its_end_alone(server: RunningServer):
    text = "He sings!"
    response = await server.stub.ScoreText(
        ScoreTextRequest(items=[{"text": text, "pieces": ["</s>"]}, {"text": text, "translation": ""}])
    )
    in_pieces, as_text = response.scores
    assert in_pieces == as_text
    assert pieces_of(in_pieces) == ["</s>"]


async def test_a_text_may_have_the_pieces_that_the_tokenizer_would_not_take(
    server: RunningServer, model: LoadedModel
):
    text, translation = "He sings!", "Die Katze"
    letters = ["▁", "D", "i", "e", "▁", "K", "a", "t", "z", "e", "</s>"]
    as_cut = [piece.text for piece in model.tokenizer.given_target_pieces(translation)]
    response = await server.stub.ScoreText(
        ScoreTextRequest(
            items=[
                {"text": text, "pieces": letters},
                {"text": text, "pieces": as_cut},
                {"text": text, "translation": translation},
            ]
        )
    )
    spelt, cut, given = response.scores
    assert pieces_of(spelt) == letters
    spans = [translation[token.span.start : token.span.end] for token in spelt.tokens]
    assert spans == ["", "D", "i", "e", "", "K", "a", "t", "z", "e", ""]
    assert cut == given
    assert abs(spelt.score - given.score) > 0.1


async def test_the_most_pieces_can_be_scored(server: RunningServer):
    pieces = ["▁D"] * 255
    response = await server.stub.ScoreText(
        ScoreTextRequest(
            items=[
                {"text": "He sings!", "pieces": pieces},
                {"text": "He sings!", "pieces": [*pieces, "</s>"]},
            ]
        )
    )
    assert [len(score.tokens) for score in response.scores] == [255, 256]


@pytest.mark.parametrize(
    ("item", "field", "words"),
    [
        ({"translation": "Er", "pieces": ["▁Er", "</s>"]}, "items[1].pieces", "one of the two"),
        ({"pieces": ["▁D", "nowhere to be found", "</s>"]}, "items[1].pieces[1]", "'nowhere to be found'"),
        ({"pieces": ["</s>", "▁D", "</s>"]}, "items[1].pieces[0]", "may only be the last"),
        ({"pieces": ["▁D", "<pad>"]}, "items[1].pieces[1]", "'<pad>'"),
        ({"pieces": ["<s>", "▁D", "</s>"]}, "items[1].pieces[0]", "'<s>'"),
        ({"pieces": ["▁D"] * 257}, "items[1].pieces", "256"),
        ({"pieces": ["x" * 1000, "y" * 1001]}, "items[1].pieces", "2000"),
    ],
)  # fmt: skip
async def test_pieces_that_no_translation_has_are_refused(
    server: RunningServer, item: dict[str, Any], field: str, words: str
):
    items = [{"text": "He sings!", "translation": "Er singt!"}, {"text": "He sings!", **item}]
    error = await refusal(server.stub.ScoreText(ScoreTextRequest(items=items)))
    assert error.code().name == "INVALID_ARGUMENT"
    ((found, description),) = violations(error).items()
    assert found == field
    assert words in description
