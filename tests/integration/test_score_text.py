"""Given translations and their probability, on the real server."""

from __future__ import annotations

import math
from typing import Any

import pytest
from benchmarks.textbook import log_softmax, uncached_logits

from dragoman.v1 import ScoreTextRequest, TranslateTextRequest
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import BUNDLED_MODEL, LoadedModel, load_model
from dragoman_model.plan import BatchOutput, Plan
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until, violations

PAIRS = [
    ("He sings!", "Er singt!"),
    ("A girl is reading a book in the garden.", "Ein Mädchen liest ein Buch, 😀 im Garten."),
    ("we'll see you at 7:30", "wir"),
    ("Where is the red house?", ""),
]


def items(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"text": text, "translation": translation} for text, translation in pairs]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("precision", ["float32", "int8"])
async def test_scores_are_those_of_the_translations(precision: str, beam_size: int):
    """With the bundled model, since random weights seldom write a text as the tokenizer would cut it."""
    model = load_model(BUNDLED_MODEL, device="cpu", precision=precision)
    async with serving(model, http="") as server:
        made = await server.stub.TranslateText(
            TranslateTextRequest(
                texts=SENTENCES, options={"beam_size": beam_size}, output={"include_tokens": True}
            )
        )
        pairs = [(text, one.text) for text, one in zip(SENTENCES, made.translations, strict=True)]
        scored = await server.stub.ScoreText(ScoreTextRequest(items=items(*pairs)))
    assert (scored.model, scored.model_digest) == (model.name, model.digest)
    for score, translation in zip(scored.scores, made.translations, strict=True):
        assert [token.piece for token in score.tokens] == [token.piece for token in translation.tokens]
        assert score.score == pytest.approx(translation.score, abs=1e-4)
        assert score.normalized_score == pytest.approx(translation.normalized_score, abs=1e-4)
        for ours, theirs in zip(score.tokens, translation.tokens, strict=True):
            assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
            assert ours.span == theirs.span


async def test_any_translation_gets_the_score_that_forcing_it_gives(
    server: RunningServer, model: LoadedModel
):
    response = await server.stub.ScoreText(ScoreTextRequest(items=items(*PAIRS)))
    for score, (text, translation) in zip(response.scores, PAIRS, strict=True):
        target_ids = tuple(model.tokenizer.encode_target(translation))
        assert len(score.tokens) == len(target_ids)
        assert score.score == pytest.approx(sum(forced(model, text, target_ids)), abs=1e-4)
        assert score.normalized_score == pytest.approx(score.score / len(target_ids), rel=1e-6)
        assert math.fsum(token.log_probability for token in score.tokens) == pytest.approx(
            score.score, abs=1e-4
        )
    *spoken, end = response.scores[0].tokens
    assert not end.HasField("span")
    assert "".join(PAIRS[0][1][token.span.start : token.span.end] for token in spoken) == "Ersingt!"


def forced(model: LoadedModel, text: str, target_ids: tuple[int, ...]) -> list[float]:
    """Returns the log-probabilities of a translation's tokens, each from logits that were computed for it alone."""
    logits = uncached_logits(model.transformer, model.tokenizer.encode(text))
    return [
        log_softmax(logits(list(target_ids[:length])))[token_id] for length, token_id in enumerate(target_ids)
    ]


async def test_scoring_counts_as_work_but_not_as_translating(server: RunningServer):
    await server.stub.ScoreText(ScoreTextRequest(items=items(*PAIRS)))
    assert server.value("dragoman_sentences_total", model="en-de", finish_reason="score") == len(PAIRS)
    assert server.value("dragoman_step_rows_count", model="en-de") > 0
    assert server.value("dragoman_target_tokens_total", model="en-de") == 0
    labels = {"method": "ScoreText", "model": "en-de", "code": "OK"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_scores_do_not_depend_on_what_runs_beside_them(server: RunningServer):
    alone = await server.stub.ScoreText(ScoreTextRequest(items=items(*PAIRS)))
    long = TranslateTextRequest(texts=SENTENCES, options={"min_decoding_length": 60, "beam_size": 3})
    running = server.stub.TranslateText(long)
    await until(lambda: server.value("dragoman_running_rows", model="en-de") > 0)
    beside = await server.stub.ScoreText(ScoreTextRequest(items=items(*PAIRS)))
    for one, other in zip(alone.scores, beside.scores, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
    await running


@pytest.mark.parametrize("length", [255, 256])
async def test_the_longest_translation_can_be_scored(server: RunningServer, model: LoadedModel, length: int):
    piece = next(
        word for word in ("das", "ein", "Haus") if len(model.tokenizer.encode_target(f"{word} " * 9)) == 10
    )
    translation = " ".join([piece] * (length - 1))
    response = await server.stub.ScoreText(ScoreTextRequest(items=items(("He sings!", translation))))
    assert len(response.scores[0].tokens) == length


@pytest.mark.parametrize(
    ("fields", "code", "field", "words"),
    [
        ({"items": []}, "INVALID_ARGUMENT", "items", ["0", "256"]),
        ({"items": items(("a", "b")) * 257}, "INVALID_ARGUMENT", "items", ["257", "256"]),
        ({"items": items(("a", "b"), (" \n", "b"))}, "INVALID_ARGUMENT", "items[1].text", ["blank"]),
        ({"items": items(("b c " * 300, "b"))}, "INVALID_ARGUMENT", "items[0].text", ["256"]),
        ({"items": items(("a", "b"), ("b", "x y " * 300))}, "INVALID_ARGUMENT", "items[1].translation", ["256"]),
        ({"items": items(("a", "b")), "model": "de-en"}, "NOT_FOUND", "model", ["de-en"]),
    ],
)  # fmt: skip
async def test_bad_input_gets_its_answer(
    server: RunningServer, fields: dict[str, Any], code: str, field: str, words: list[str]
):
    error = await refusal(server.stub.ScoreText(ScoreTextRequest(**fields)))
    assert error.code().name == code
    ((found, description),) = violations(error).items()
    assert found == field
    for word in words:
        assert word in description


async def test_a_full_queue_refuses_and_a_failed_pass_fails_its_calls_only(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    async with serving(model, max_queue_size=3) as server:
        error = await refusal(server.stub.ScoreText(ScoreTextRequest(items=items(*PAIRS))))
        assert "at most 3 in one call" in violations(error)["items"]
        run = RunningBatch.run

        def fail_once(batch: RunningBatch, plan: Plan) -> BatchOutput:
            monkeypatch.setattr(RunningBatch, "run", run)
            raise RuntimeError("out of memory")

        monkeypatch.setattr(RunningBatch, "run", fail_once)
        request = ScoreTextRequest(items=items(*PAIRS[:2]))
        error = await refusal(server.stub.ScoreText(request))
        assert error.code().name == "INTERNAL"
        assert len((await server.stub.ScoreText(request)).scores) == 2
