"""A translation sent as it grows, on the real server."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.v1 import FinishReason, StreamTranslateTextRequest, TranslateTextRequest, TranslateTextResponse
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.plan import BatchOutput, Plan
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until, violations
from tests.models import make_tiny_model

MODEL = {"model": "en-de"}
TEXT = "A girl is reading a book. He sings!\n\nWhere is the red house?"


async def stream(server: RunningServer, **fields: Any) -> tuple[list[str], TranslateTextResponse]:
    """Returns the deltas and the result, which came once and last."""
    deltas: list[str] = []
    result = None
    async for response in server.stub.StreamTranslateText(StreamTranslateTextRequest(**fields)):
        assert result is None
        if response.WhichOneof("event") == "delta":
            assert response.delta.text
            deltas.append(response.delta.text)
        else:
            result = response.result
    assert result is not None
    return deltas, result


async def whole(server: RunningServer, text: str, **fields: Any) -> TranslateTextResponse:
    response: TranslateTextResponse = await server.stub.TranslateText(
        TranslateTextRequest(texts=[text], **fields)
    )
    return response


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[LoadedModel]:
    """Random models, two of which often write single bytes."""
    models = []
    for seed in range(4):
        directory = make_tiny_model(tmp_path_factory.mktemp("models") / f"seed-{seed}", seed=seed)
        model = load_model(directory, device="cpu")
        if seed % 2:
            transformer = copy.deepcopy(model.transformer)
            transformer.output_bias.data[5:261] += 14.0
            model = dataclasses.replace(model, transformer=transformer)
        models.append(model)
    return models


texts = st.lists(
    st.sampled_from([*SENTENCES, "😀 Hello", "", " ", "\n\n", "\t", "She reads. ", "\u3000"]), max_size=4
).map(" ".join)
options = st.one_of(
    st.fixed_dictionaries({"beam_size": st.integers(1, 4)}),
    st.fixed_dictionaries({"beam_size": st.just(3), "num_hypotheses": st.integers(1, 3)}),
    st.fixed_dictionaries(
        {"sampling_topk": st.just(0), "num_hypotheses": st.integers(1, 3), "seed": st.just(7)}
    ),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(texts, options, st.integers(1, 24), st.sampled_from(["", "", "das Haus", "Äpfel 😀"])),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_all_deltas_joined_are_the_text(
    models: list[LoadedModel], requests: list[tuple[str, dict[str, Any], int, str]], index: int
):
    async def check(
        server: RunningServer, text: str, options: dict[str, Any], length: int, prefix: str
    ) -> None:
        options = {**options, "max_decoding_length": length + 20 * bool(prefix)}
        deltas, result = await stream(server, text=text, options=options, target_prefix=prefix)
        (translation,) = result.translations
        assert "".join(deltas) == translation.text
        expected = await whole(server, text, options=options, target_prefixes=[prefix])
        assert translation.text == expected.translations[0].text
        assert [one.text for one in translation.alternatives] == [
            one.text for one in expected.translations[0].alternatives
        ]

    async def run() -> None:
        async with serving(models[index], http="") as server:
            await asyncio.gather(*(check(server, *request) for request in requests))

    asyncio.run(run())


async def test_the_result_is_that_of_the_whole_text(server: RunningServer):
    deltas, result = await stream(server, text=TEXT, output={"include_tokens": True})
    expected = await whole(server, TEXT, output={"include_tokens": True})
    assert (result.model, result.model_digest) == (expected.model, expected.model_digest)
    (ours,), (theirs,) = result.translations, expected.translations
    assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    assert [token.piece for token in ours.tokens] == [token.piece for token in theirs.tokens]
    assert (ours.text, ours.sentence_count, ours.finish_reason) == (theirs.text, 3, theirs.finish_reason)
    assert "".join(deltas) == theirs.text


async def test_greedy_pieces_are_sent_while_more_are_made(model: LoadedModel):
    async with serving(model) as server:
        request = StreamTranslateTextRequest(text="He sings!", options={"min_decoding_length": 240})
        call = server.stub.StreamTranslateText(request)
        first = await call.read()
        assert first.delta.text
        assert server.value("dragoman_sentences_total", finish_reason="length", **MODEL) == 0
        assert server.value("dragoman_sentences_total", finish_reason="eos", **MODEL) == 0
        deltas = [first.delta.text]
        while (response := await call.read()).WhichOneof("event") == "delta":
            deltas.append(response.delta.text)
        assert len(deltas) > 20
        assert server.value("dragoman_time_to_first_token_seconds_count", **MODEL) == 1


@pytest.mark.parametrize("text", ["", " \n\u3000"])
async def test_a_blank_text_comes_back_as_it_is(server: RunningServer, text: str):
    deltas, result = await stream(server, text=text)
    assert deltas == ([text] if text else [])
    assert result.translations[0].text == text
    assert result.translations[0].finish_reason == FinishReason.FINISH_REASON_BLANK
    assert server.value("dragoman_sentences_total", finish_reason="blank", **MODEL) == 1
    assert server.value("dragoman_step_rows_count", **MODEL) == 0


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"text": "a" * 2001}, "INVALID_ARGUMENT", "text"),
        ({"text": "b c " * 300}, "INVALID_ARGUMENT", "text"),
        ({"text": "a", "target_prefix": "a" * 2001}, "INVALID_ARGUMENT", "target_prefix"),
        ({"text": "a", "target_prefix": "Das " * 99, "options": {"max_decoding_length": 9}},
         "INVALID_ARGUMENT", "target_prefix"),
        ({"text": "a", "options": {"beam_size": 9}}, "INVALID_ARGUMENT", "options.beam_size"),
        ({"text": "a", "options": {"max_decoding_length": 256}}, "INVALID_ARGUMENT",
         "options.max_decoding_length"),
        ({"text": "a", "output": {"alignment_method": 2}}, "INVALID_ARGUMENT", "output.alignment_method"),
        ({"text": "a", "model": "de-en"}, "NOT_FOUND", "model"),
    ],
)  # fmt: skip
async def test_bad_input_gets_its_answer(
    server: RunningServer, fields: dict[str, Any], code: str, field: str
):
    error = await refusal(stream(server, **fields))
    assert error.code().name == code
    assert list(violations(error)) == [field]


async def test_a_caller_that_goes_away_frees_its_rows_and_is_counted(server: RunningServer):
    request = StreamTranslateTextRequest(
        text=" ".join(["He sings!"] * 8), options={"min_decoding_length": 250, "beam_size": 4}
    )
    call = server.stub.StreamTranslateText(request)
    await until(lambda: server.value("dragoman_running_rows", **MODEL) > 0)
    call.cancel()
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    await whole(server, "a", options={"max_decoding_length": 1})
    assert server.value("dragoman_running_rows", **MODEL) == 0
    assert server.value("dragoman_sentences_total", finish_reason="cancelled", **MODEL) == 8
    labels = {"method": "StreamTranslateText", "model": "en-de", "code": "CANCELLED"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_a_deadline_ends_the_stream(server: RunningServer):
    request = StreamTranslateTextRequest(
        text=" ".join(["He sings!"] * 64), options={"min_decoding_length": 250}
    )
    call = server.stub.StreamTranslateText(request, timeout=0.2)

    async def read() -> None:
        async for _ in call:
            pass

    assert (await refusal(read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    labels = {"method": "StreamTranslateText", "model": "en-de", "code": "DEADLINE_EXCEEDED"}
    assert server.value("dragoman_requests_total", **labels) == 1
    await whole(server, "a", options={"max_decoding_length": 1})
    assert server.value("dragoman_running_rows", **MODEL) == 0


async def test_a_step_that_fails_ends_the_stream_with_its_status(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    run, num_steps = RunningBatch.run, 0

    def fail_later(batch: RunningBatch, plan: Plan) -> BatchOutput:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 5:
            raise RuntimeError("out of memory")
        return run(batch, plan)

    monkeypatch.setattr(RunningBatch, "run", fail_later)
    error = await refusal(stream(server, text="He sings!", options={"min_decoding_length": 50}))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "memory" not in (error.details() or "")
    deltas, result = await stream(server, text="He sings!")
    assert "".join(deltas) == result.translations[0].text


async def test_the_request_id_is_echoed(server: RunningServer):
    call = server.stub.StreamTranslateText(
        StreamTranslateTextRequest(text="He sings!"), metadata=(("x-request-id", "id-5"),)
    )
    async for _ in call:
        pass
    assert dict(list(await call.trailing_metadata()))["x-request-id"] == "id-5"
