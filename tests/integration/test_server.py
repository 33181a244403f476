"""The real server on loopback, with a real, tiny model of random weights."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import urllib.error
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dragoman.v1 import FinishReason, ListModelsRequest, TextSplit, TranslateTextRequest
from dragoman_model.batch import BatchOutput, Plan, RunningBatch
from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.translator import Translator
from dragoman_server.app import App
from dragoman_server.config import ServerConfig
from dragoman_server.errors import AddressError
from tests.integration.servers import RunningServer, serving, until
from tests.models import make_tiny_model

SENTENCES = [
    "A girl is reading a book in the garden.",
    "He sings!",
    "Where is the red house with the 12 trees?",
    "I don't know",
    "we'll see you at 7:30",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("models") / "en-de"), device="cpu")


@pytest.fixture
async def server(model: LoadedModel) -> AsyncIterator[RunningServer]:
    async with serving(model, max_text_characters=2000) as server:
        yield server


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def violations(error: grpc.aio.AioRpcError) -> dict[str, str]:
    (data,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    for packed in status_pb2.Status.FromString(data).details:
        if packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            found = error_details_pb2.BadRequest.FromString(packed.value).field_violations
            return {violation.field: violation.description for violation in found}
    return {}


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
        ({"texts": ["a"], "options": {"beam_size": 4}}, "UNIMPLEMENTED", "options.beam_size", ["4"]),
        ({"texts": ["a"], "target_prefixes": ["Das"]}, "UNIMPLEMENTED", "target_prefixes", []),
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
        alone = Translator(model).translate(texts, max_length=6)
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


async def test_sentences_of_two_callers_share_steps(server: RunningServer):
    request = TranslateTextRequest(texts=["He sings!"], options={"min_decoding_length": 200})
    await asyncio.gather(*(server.stub.TranslateText(request) for _ in range(2)))
    steps = server.value("dragoman_step_rows_count", model="en-de")
    alone = server.value("dragoman_step_rows_bucket", model="en-de", le="1.0")
    assert steps - alone > 0
    # Both took 200 steps or more; had they not shared, that would be 400 steps in all.
    assert steps < 400


async def test_a_callers_result_does_not_depend_on_its_neighbours(server: RunningServer):
    requests = [TranslateTextRequest(texts=SENTENCES[i:]) for i in range(len(SENTENCES))] * 4
    alone = [await server.stub.TranslateText(request) for request in requests]
    together = await asyncio.gather(*(server.stub.TranslateText(request) for request in requests))
    for one, other in zip(alone, together, strict=True):
        assert [text.text for text in one.translations] == [text.text for text in other.translations]


async def test_a_full_queue_refuses_at_once_with_a_retry_delay(model: LoadedModel):
    async with serving(model, max_batch_size=1, max_queue_size=2) as server:
        long = TranslateTextRequest(texts=["He sings!"], options={"min_decoding_length": 250})
        calls = [server.stub.TranslateText(long) for _ in range(8)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
        assert 1 <= len(refused) <= 6
        for error in refused:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert int(dict(list(error.trailing_metadata()))["grpc-retry-pushback-ms"]) > 0
        assert server.value("dragoman_refused_total", reason="QUEUE_FULL") == len(refused)


async def test_a_call_that_no_queue_could_hold_is_told_so(model: LoadedModel):
    async with serving(model, max_queue_size=3) as server:
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=["a"] * 4)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at most 3 in one call" in violations(error)["texts"]
        # The second text, a sentence above the model's limit, isn't even looked at.
        many, endless = " ".join(SENTENCES[:3] * 2), "b c " * 300
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=[many, endless])))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at most 3 in one call" in violations(error)["texts"]
        await server.stub.TranslateText(TranslateTextRequest(texts=["a"] * 3))


async def test_a_caller_that_goes_away_frees_its_rows(server: RunningServer):
    long = TranslateTextRequest(texts=["He sings!"] * 64, options={"min_decoding_length": 250})
    call = server.stub.TranslateText(long)
    await until(lambda: server.value("dragoman_running_rows", model="en-de") > 0)
    call.cancel()
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    # The next caller's step runs without the rows of the one that left.
    await server.stub.TranslateText(TranslateTextRequest(texts=["a"], options={"max_decoding_length": 1}))
    assert server.value("dragoman_running_rows", model="en-de") == 0
    assert server.value("dragoman_sentences_total", model="en-de", finish_reason="cancelled") == 64
    labels = {"method": "TranslateText", "model": "en-de", "code": "CANCELLED"}
    assert server.value("dragoman_requests_total", **labels) == 1


async def test_a_deadline_ends_the_call(server: RunningServer):
    long = TranslateTextRequest(texts=["He sings!"] * 64, options={"min_decoding_length": 250})
    error = await refusal(server.stub.TranslateText(long, timeout=0.05))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(server.app.interceptor.wait_until_idle(), 10)
    await server.stub.TranslateText(TranslateTextRequest(texts=["a"], options={"max_decoding_length": 1}))
    assert server.value("dragoman_running_rows", model="en-de") == 0


async def test_models_are_listed_page_by_page(model: LoadedModel):
    other = dataclasses.replace(model, name="second")
    async with serving(model, other) as server:
        everything = await server.stub.ListModels(ListModelsRequest())
        assert [listed.name for listed in everything.models] == ["en-de", "second"]
        assert everything.next_page_token == ""
        first = await server.stub.ListModels(ListModelsRequest(page_size=1))
        last = await server.stub.ListModels(ListModelsRequest(page_size=1, page_token=first.next_page_token))
        assert [*first.models, *last.models] == list(everything.models)
        assert last.next_page_token == ""
        response = await server.stub.TranslateText(TranslateTextRequest(texts=["He sings!"], model="second"))
        assert response.model == "second"


async def test_a_listed_model_says_what_is_in_force(server: RunningServer, model: LoadedModel):
    response = await server.stub.ListModels(ListModelsRequest())
    (listed,) = response.models
    pair = listed.language_pairs[0]
    assert (pair.source_language_code, pair.target_language_code) == ("en", "de")
    assert (listed.digest, listed.precision, listed.device) == (model.digest, "float32", "cpu")
    assert listed.parameter_count == model.parameter_count
    assert (listed.encoder_layer_count, listed.decoder_layer_count, listed.head_count) == (2, 1, 2)
    assert (listed.max_source_token_count, listed.max_target_token_count) == (256, 256)
    limits = response.limits
    assert (limits.max_text_count, limits.max_text_characters) == (256, 2000)
    assert limits.max_beam_size == limits.max_num_hypotheses == limits.max_sentence_rows == 1


async def test_two_servers_do_not_share_a_port(server: RunningServer, model: LoadedModel):
    second = App(ServerConfig(listen=server.app.grpc_address, http=""), [model])
    with pytest.raises(AddressError, match=server.app.grpc_address):
        await second.start()


async def test_health_is_told_for_the_server_the_service_and_each_model(server: RunningServer):
    stub = health_pb2_grpc.HealthStub(server.channel)
    for name in ("", "dragoman.v1.TranslationService", "en-de"):
        response = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    error = await refusal(stub.Check(health_pb2.HealthCheckRequest(service="de-en")))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_services_and_describes_ours(server: RunningServer):
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="dragoman.v1.TranslationService"),
    ]
    listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    names = {service.name for service in listed.list_services_response.service}
    assert names >= {"dragoman.v1.TranslationService", "grpc.health.v1.Health"}
    assert described.file_descriptor_response.file_descriptor_proto


async def test_a_scrape_holds_every_metric_with_its_labels_and_buckets(server: RunningServer):
    await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))
    await refusal(server.stub.TranslateText(TranslateTextRequest(texts=["a"], model="made up by a caller")))
    text = await server.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    expected = {
        "dragoman_requests": ("counter", {"method", "model", "code"}),
        "dragoman_request_seconds": ("histogram", {"method", "model"}),
        "dragoman_queue_wait_seconds": ("histogram", {"model"}),
        "dragoman_time_to_first_token_seconds": ("histogram", {"model"}),
        "dragoman_sentences": ("counter", {"model", "finish_reason"}),
        "dragoman_source_tokens": ("counter", {"model"}),
        "dragoman_target_tokens": ("counter", {"model"}),
        "dragoman_waiting_requests": ("gauge", {"model"}),
        "dragoman_queue_slots": ("gauge", {"model"}),
        "dragoman_running_rows": ("gauge", {"model"}),
        "dragoman_row_slots": ("gauge", {"model"}),
        "dragoman_step_rows": ("histogram", {"model"}),
        "dragoman_step_seconds": ("histogram", {"model", "phase"}),
        "dragoman_step_tokens": ("counter", {"model", "phase", "kind"}),
        "dragoman_refused": ("counter", {"reason"}),
        "dragoman_token_log_probability": ("histogram", {"model"}),
        "dragoman_length_ratio": ("histogram", {"model"}),
        "dragoman_model_info": ("gauge", {"model", "digest", "device", "precision"}),
        "dragoman_build_info": ("gauge", {"version", "python", "torch"}),
    }
    for name, (kind, labels) in expected.items():
        family = families[name]
        assert family.type == kind, name
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        assert samples, name
        assert {frozenset(sample.labels) - {"le"} for sample in samples} == {frozenset(labels)}, name
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= set(families)
    assert buckets(families["dragoman_request_seconds"]) == [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.inf,
    ]  # fmt: skip
    assert buckets(families["dragoman_step_rows"]) == [*(2**i for i in range(11)), math.inf]
    assert "made up" not in text
    labels = {sample.labels["model"] for sample in families["dragoman_requests"].samples}
    assert labels == {"en-de", "unknown"}


def buckets(family: Any) -> list[float]:
    return sorted(
        {float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")}
    )


async def test_what_was_translated_is_counted(server: RunningServer):
    response = await server.stub.TranslateText(TranslateTextRequest(texts=[*SENTENCES, ""]))
    translations = response.translations
    model = {"model": "en-de"}
    assert server.value("dragoman_source_tokens_total", **model) == sum(
        t.source_token_count for t in translations
    )
    assert server.value("dragoman_target_tokens_total", **model) == sum(
        t.target_token_count for t in translations
    )
    ended = sum(
        server.value("dragoman_sentences_total", finish_reason=reason, **model)
        for reason in ("eos", "length")
    )
    assert ended == len(SENTENCES)
    assert server.value("dragoman_queue_wait_seconds_count", **model) == len(SENTENCES)
    assert server.value("dragoman_time_to_first_token_seconds_count", **model) == 1


async def test_a_broken_engine_is_told_to_whoever_runs_the_server(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(RunningBatch, "run", broken)
    monkeypatch.setattr(RunningBatch, "clear", broken)
    error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=["He sings!"])))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "device" not in (error.details() or "")
    watch = health_pb2_grpc.HealthStub(server.channel).Watch(health_pb2.HealthCheckRequest(service="en-de"))
    while (await watch.read()).status != health_pb2.HealthCheckResponse.NOT_SERVING:
        pass
    for path in ("/healthz", "/readyz"):
        with pytest.raises(urllib.error.HTTPError, match="503"):
            await server.get(path)


async def test_a_failed_step_fails_its_calls_only(server: RunningServer, monkeypatch: pytest.MonkeyPatch):
    run = RunningBatch.run

    def fail_once(batch: RunningBatch, plan: Plan) -> BatchOutput:
        monkeypatch.setattr(RunningBatch, "run", run)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(RunningBatch, "run", fail_once)
    request = TranslateTextRequest(texts=["He sings!"])
    error = await refusal(server.stub.TranslateText(request))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert len((await server.stub.TranslateText(request)).translations) == 1
    assert server.value("dragoman_sentences_total", model="en-de", finish_reason="error") == 1
    assert server.app.health.is_ready


async def test_draining_ends_what_runs_refuses_what_comes_and_says_so(model: LoadedModel):
    async with serving(model) as server:
        health = health_pb2_grpc.HealthStub(server.channel)
        long = TranslateTextRequest(texts=["He sings!"] * 8, options={"min_decoding_length": 200})
        running = server.stub.TranslateText(long)
        await until(lambda: server.value("dragoman_running_rows", model="en-de") > 0)
        stopping = asyncio.create_task(server.app.stop())
        await until(lambda: not server.app.health.is_ready)
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=["a"])))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(list(error.trailing_metadata()))["grpc-retry-pushback-ms"]
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert len((await running).translations) == 8
        await stopping


async def test_calls_that_outlast_the_grace_period_are_ended(model: LoadedModel):
    async with serving(model, grace_seconds=0) as server:
        long = TranslateTextRequest(texts=["He sings!"] * 200, options={"min_decoding_length": 250})
        running = server.stub.TranslateText(long)
        await until(lambda: server.value("dragoman_running_rows", model="en-de") > 0)
        await asyncio.wait_for(server.app.stop(), 10)
        assert (await refusal(running)).code() is grpc.StatusCode.UNAVAILABLE
