"""What a server says of itself: models, health, reflection, metrics, and that it broke."""

from __future__ import annotations

import dataclasses
import math
import urllib.error
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from dragoman.v1 import ListModelsRequest, TranslateTextRequest
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from dragoman_server.app import App
from dragoman_server.config import ServerConfig
from dragoman_server.errors import AddressError
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving


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
    assert limits.max_beam_size == limits.max_num_hypotheses == limits.max_sentence_rows == 8


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
