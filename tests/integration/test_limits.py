"""Every limit on what one call may ask for: it has a flag, is listed, holds, and is named in the refusal."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from dragoman.v1 import (
    BatchItem,
    DumpAttentionRequest,
    Limits,
    ListModelsRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_model import batch
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.static_step import StaticModel
from dragoman_server.command import command
from dragoman_server.config import ServerConfig
from dragoman_server.limits import CallLimits
from tests.integration.servers import RunningServer, refusal, serving, violations
from tests.model.tape import TapeRecorder

# The limit, a request that it lets through and one that it doesn't, the field at fault.
CASES: list[tuple[str, int, dict[str, Any], dict[str, Any], str]] = [
    ("max_text_count", 3, {"texts": ["a"] * 3}, {"texts": ["a"] * 4}, "texts"),
    ("max_text_characters", 20, {"texts": ["a" * 20]}, {"texts": ["a" * 21]}, "texts[0]"),
    ("max_beam_size", 3, {"options": {"beam_size": 3}}, {"options": {"beam_size": 4}}, "options.beam_size"),
    (
        "max_num_hypotheses",
        3,
        {"options": {"num_hypotheses": 3, "sampling_topk": 0}},
        {"options": {"num_hypotheses": 4, "sampling_topk": 0}},
        "options.num_hypotheses",
    ),
    (
        "max_sentence_rows",
        3,
        {"options": {"beam_size": 3, "num_hypotheses": 3}},
        {"options": {"num_hypotheses": 4, "sampling_topk": 0}},
        "options.num_hypotheses",
    ),
    ("max_batch_size", 3, {"options": {"beam_size": 3}}, {"options": {"beam_size": 4}}, "options.beam_size"),
    ("max_queue_size", 3, {"texts": ["a\nb\nc"]}, {"texts": ["a\nb", "c\nd"]}, "texts"),
]


@pytest.mark.parametrize(
    ("name", "value", "allowed", "refused", "field"), CASES, ids=[case[0] for case in CASES]
)
async def test_a_limit_holds_and_its_refusal_names_it(
    model: LoadedModel, name: str, value: int, allowed: dict[str, Any], refused: dict[str, Any], field: str
):
    async with serving(model, **{name: value}) as server:
        answer = await server.stub.TranslateText(TranslateTextRequest(**{"texts": ["a"], **allowed}))
        assert len(answer.translations) == len(allowed.get("texts", ["a"]))
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(**{"texts": ["a"], **refused})))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(value) in violations(error)[field]
        assert str(value) in error.details()
        assert server.value("dragoman_row_slots", model="en-de") == (
            value if name == "max_batch_size" else 64
        )


# The limit of calls at once, and one call.
CALLS_AT_ONCE: list[tuple[str, Callable[[RunningServer], Any]]] = [
    (
        "max_bulk_streams",
        lambda server: server.stub.TranslateBatch(
            iter([TranslateBatchRequest(items=[BatchItem(id="a", text="a house")])])
        ),
    ),
    (
        "max_attention_calls",
        lambda server: server.stub.DumpAttention(DumpAttentionRequest(text="a house")),
    ),
]


@pytest.mark.parametrize(("name", "call"), CALLS_AT_ONCE, ids=[case[0] for case in CALLS_AT_ONCE])
async def test_so_many_calls_are_served_at_once_and_the_next_is_told_the_limit(
    model: LoadedModel, name: str, call: Callable[[RunningServer], Any]
):
    async with serving(model, **{name: 1}) as server:
        service = server.app.service
        running = service._bulk_streams if name == "max_bulk_streams" else service._attention_calls
        with running["en-de"]:  # as if one ran
            error = await refusal(call(server).read())
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "at most 1 may" in error.details()
            assert f"--{name.replace('_', '-')}" in error.details()
            assert "grpc-retry-pushback-ms" in dict(list(error.trailing_metadata()))
        assert [response async for response in call(server)]


# Needs a queue; tests/integration/test_overload.py has it.
OF_THE_QUEUE = ["max_queue_seconds"]


async def test_what_computes_is_listed_and_logged(model: LoadedModel, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with serving(model) as server:
        (listed,) = (await server.stub.ListModels(ListModelsRequest())).models
        assert listed.kernels == RunningBatch(model.transformer).kernels != ""
    (loaded,) = [record for record in caplog.records if record.message == "model loaded"]
    assert loaded.fields["kernels"] == listed.kernels


async def test_what_no_longer_computes_is_no_longer_listed(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    recorder = TapeRecorder(fails_at=1)  # the first after the trial
    monkeypatch.setattr(batch, "inference_model", lambda transformer: StaticModel(transformer, recorder))
    async with serving(model) as server:
        listed = []
        for _ in range(2):
            (only,) = (await server.stub.ListModels(ListModelsRequest())).models
            listed.append(only.kernels)
            response = await server.stub.TranslateText(TranslateTextRequest(texts=["He sings!"] * 9))
            assert len({translation.text for translation in response.translations}) == 1
        assert listed == ["PyTorch, CUDA graphs", "PyTorch"]


@pytest.mark.parametrize("name", [*(case[0] for case in (*CASES, *CALLS_AT_ONCE)), *OF_THE_QUEUE])
def test_a_limit_has_a_flag(name: str):
    options = {option for parameter in command.params for option in parameter.opts}
    assert f"--{name.replace('_', '-')}" in options
    assert name in {field.name for field in dataclasses.fields(ServerConfig)}


def test_every_limit_of_a_call_is_among_the_cases_and_in_the_contract():
    fields = {field.name for field in dataclasses.fields(CallLimits)}
    assert fields == {field.name for field in Limits.DESCRIPTOR.fields}
    assert fields == {case[0] for case in (*CASES, *CALLS_AT_ONCE)} | {*OF_THE_QUEUE}


async def test_the_limits_in_force_are_listed(model: LoadedModel):
    settings = {"max_text_count": 7, "max_text_characters": 99, "max_beam_size": 5, "max_num_hypotheses": 4}
    settings |= {"max_batch_size": 9, "max_queue_size": 12, "max_bulk_streams": 3, "max_attention_calls": 2}
    settings |= {"max_queue_seconds": 2.5}
    async with serving(model, max_sentence_rows=6, **settings) as server:
        limits = (await server.stub.ListModels(ListModelsRequest())).limits
        assert limits == Limits(max_sentence_rows=6, **settings)
    async with serving(model, max_batch_size=3) as server:  # no search can be wider than the batch
        limits = (await server.stub.ListModels(ListModelsRequest())).limits
        assert (limits.max_beam_size, limits.max_num_hypotheses, limits.max_sentence_rows) == (3, 3, 3)
