"""DumpAttention of the real server: its stream, its shapes, its spans."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from dragoman.v1 import (
    AttentionKind,
    DumpAttentionRequest,
    FinishReason,
    ScoreTextRequest,
    TensorType,
    TranslateTextRequest,
)
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.plan import ForcedDecode, Plan
from dragoman_model.translator import Translator
from tests.integration.dumps import dump
from tests.integration.servers import RunningServer, refusal, serving, violations
from tests.models import make_tiny_model


async def test_weights_of_the_translation_made_now(server: RunningServer, model: LoadedModel):
    text = "A girl is reading a book in the garden."
    (found,) = await dump(server, text=text)
    header = found.header
    (tensor,) = header.tensors
    made = (await server.stub.TranslateText(TranslateTextRequest(texts=[text]))).translations[0]
    assert header.translation.text == made.text
    assert header.translation.score == pytest.approx(made.score, abs=1e-4)
    assert (header.sentence_index, header.sentence_count) == (0, 1)
    assert (header.model, header.model_digest) == ("en-de", model.digest)
    assert (tensor.name, tensor.kind, tensor.type) == (
        "cross", AttentionKind.ATTENTION_KIND_CROSS, TensorType.TENSOR_TYPE_FLOAT32,
    )  # fmt: skip
    assert list(tensor.axes) == ["layer", "head", "target", "source"]
    assert (list(tensor.layers), list(tensor.heads)) == ([0], [0, 1])
    assert list(tensor.shape) == [1, 2, made.target_token_count, made.source_token_count]
    assert len(header.target_units) == len(header.input_units) == made.target_token_count
    assert len(header.source_units) == made.source_token_count
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, atol=1e-5)
    assert (found.weights >= 0).all()


async def test_units_say_what_was_read_and_predicted(server: RunningServer):
    (found,) = await dump(server, text="He sings!", translation="Er singt!")
    header = found.header
    assert [unit.special for unit in header.source_units] == [False] * (len(header.source_units) - 1) + [True]
    assert header.target_units[-1].special
    assert header.input_units[0].special
    assert list(header.input_units[1:]) == list(header.target_units[:-1])
    for text, units in (("He sings!", header.source_units), ("Er singt!", header.target_units)):
        covered = "".join(text[unit.span.start : unit.span.end] for unit in units if unit.HasField("span"))
        assert set(text.replace(" ", "")) <= set(covered)


async def test_a_given_translation_is_echoed_with_its_score(server: RunningServer):
    given = "Ein  Mädchen ½"  # normalisation would change both the spaces and the fraction
    (found,) = await dump(server, text="He sings! She reads.", translation=given)
    translation = found.header.translation
    assert translation.text == given
    assert translation.score < 0
    assert translation.normalized_score == pytest.approx(translation.score / translation.target_token_count)
    assert translation.sentence_count == 1
    assert all(unit.span.end <= len(given) for unit in found.header.target_units)
    assert any(given[unit.span.start : unit.span.end] == "½" for unit in found.header.target_units)


@pytest.mark.parametrize("given", ["Ein Mädchen singt.", ""])
async def test_a_given_translation_has_the_score_that_scoring_gives_it(server: RunningServer, given: str):
    text = "A girl sings."
    (found,) = await dump(server, text=text, translation=given)
    items = [{"text": text, "translation": given}]
    (scored,) = (await server.stub.ScoreText(ScoreTextRequest(items=items))).scores
    assert found.header.translation.score == scored.score


@pytest.mark.parametrize("given", [None, "Ein Mädchen", ""])
async def test_weights_are_those_of_the_model_alone(
    server: RunningServer, model: LoadedModel, given: str | None
):
    text = "She reads a book."
    source_ids = tuple(model.tokenizer.encode(text))
    target_ids = (
        Translator(model).decode([source_ids])[0][0].token_ids
        if given is None
        else tuple(model.tokenizer.encode_target(given))
    )
    forced = ForcedDecode(id=0, source_ids=source_ids, target_ids=target_ids)
    (alone,) = RunningBatch(model.transformer).run(Plan(attend=(forced,))).attentions
    (found,) = await dump(server, text=text, **({} if given is None else {"translation": given}))
    np.testing.assert_allclose(found.weights, alone.cross.numpy(), atol=1e-6)
    assert found.header.translation.score == pytest.approx(sum(alone.log_probabilities), abs=1e-4)


async def test_each_sentence_has_its_header_and_spans_into_the_callers_text(
    server: RunningServer, model: LoadedModel
):
    text = "  He sings!\n\nShe reads 😀 a book.  A girl."
    found = await dump(server, text=text)
    assert [one.header.sentence_index for one in found] == [0, 1, 2]
    assert {one.header.sentence_count for one in found} == {3}
    sentences = ["He sings!", "She reads 😀 a book.", "A girl."]
    alone = Translator(model).translate(sentences)
    for one, sentence, translation in zip(found, sentences, alone, strict=True):
        assert one.header.translation.text == translation.text
        assert one.weights.shape[2] == len(one.header.target_units) == translation.target_token_count
        spans = [unit.span for unit in one.header.source_units if unit.HasField("span")]
        assert text[spans[0].start : spans[-1].end] == sentence


async def test_a_long_tensor_comes_in_chunks(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory):
    path = make_tiny_model(
        tmp_path_factory.mktemp("models") / "deep", num_decoder_layers=6, d_model=32, num_heads=8
    )
    async with serving(load_model(path, device="cpu"), http="") as server:
        text = "Where is the red house " * 8
        (found,) = await dump(server, text=text, options={"min_decoding_length": 250})
        assert found.header.tensors[0].size_bytes > 1 << 20
        np.testing.assert_allclose(found.weights.sum(axis=-1), 1, atol=1e-5)


async def test_a_blank_text_has_one_header_and_no_tensor(server: RunningServer):
    (found,) = await dump(server, text=" \n")
    assert found.header.sentence_count == 0
    assert found.header.translation.text == " \n"
    assert found.header.translation.finish_reason == FinishReason.FINISH_REASON_BLANK
    assert not found.header.tensors


async def test_a_translation_cut_at_its_limit_has_a_row_for_each_token_made(server: RunningServer):
    (found,) = await dump(
        server, text="He sings!", options={"min_decoding_length": 3, "max_decoding_length": 3}
    )
    assert found.header.translation.finish_reason == FinishReason.FINISH_REASON_LENGTH
    assert found.weights.shape[2] == 3


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"text": "a", "selection": {"kinds": [9]}}, "INVALID_ARGUMENT", "selection.kinds[0]"),
        ({"text": "a", "selection": {"layers": [1]}}, "INVALID_ARGUMENT", "selection.layers"),
        ({"text": "a", "selection": {"heads": [0, 2]}}, "INVALID_ARGUMENT", "selection.heads"),
        ({"text": "a", "selection": {"top_k": 0}}, "INVALID_ARGUMENT", "selection.top_k"),
        ({"text": "a", "options": {"beam_size": 0}}, "INVALID_ARGUMENT", "options.beam_size"),
        ({"text": "a", "translation": "Baum " * 400}, "INVALID_ARGUMENT", "translation"),
        ({"text": " ", "translation": "b"}, "INVALID_ARGUMENT", "text"),
        ({"text": "\u200b", "translation": "b"}, "INVALID_ARGUMENT", "text"),
        ({"text": "b c " * 400, "split": 2}, "INVALID_ARGUMENT", "text"),
        ({"text": "a" * 20_001}, "INVALID_ARGUMENT", "text"),
        ({"text": "a", "model": "x"}, "NOT_FOUND", "model"),
    ],
)
async def test_bad_input_gets_its_answer(
    server: RunningServer, fields: dict[str, Any], code: str, field: str
):
    error = await refusal(dump(server, **fields))
    assert error.code().name == code
    assert list(violations(error)) == [field]


async def test_only_so_many_dumps_run_at_once(model: LoadedModel):
    async with serving(model, http="", max_attention_calls=1) as server:
        request = DumpAttentionRequest(text="He sings! " * 300)
        first = server.stub.DumpAttention(request, timeout=30)
        assert (await first.read()).HasField("header")
        error = await refusal(dump(server, text="a"))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
        await server.app.interceptor.wait_until_idle()
        assert len(await dump(server, text="He sings!")) == 1
