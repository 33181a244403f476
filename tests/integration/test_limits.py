"""Every limit on what one call may ask for: it has a flag, is listed, holds, and is named in the refusal."""

from __future__ import annotations

import dataclasses
from typing import Any

import grpc
import pytest

from dragoman.v1 import Limits, ListModelsRequest, TranslateTextRequest
from dragoman_model.checkpoint import LoadedModel
from dragoman_server.command import command
from dragoman_server.config import ServerConfig
from dragoman_server.limits import CallLimits
from tests.integration.servers import refusal, serving, violations

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


@pytest.mark.parametrize("name", [case[0] for case in CASES])
def test_a_limit_has_a_flag(name: str):
    options = {option for parameter in command.params for option in parameter.opts}
    assert f"--{name.replace('_', '-')}" in options
    assert name in {field.name for field in dataclasses.fields(ServerConfig)}


def test_every_limit_of_a_call_is_among_the_cases_and_in_the_contract():
    fields = {field.name for field in dataclasses.fields(CallLimits)}
    assert fields == {field.name for field in Limits.DESCRIPTOR.fields}
    assert fields < {case[0] for case in CASES}


async def test_the_limits_in_force_are_listed(model: LoadedModel):
    settings = {"max_text_count": 7, "max_text_characters": 99, "max_beam_size": 5, "max_num_hypotheses": 4}
    async with serving(model, max_sentence_rows=6, **settings) as server:
        limits = (await server.stub.ListModels(ListModelsRequest())).limits
        assert limits == Limits(max_sentence_rows=6, **settings)
    async with serving(model, max_batch_size=3) as server:  # no search can be wider than the batch
        limits = (await server.stub.ListModels(ListModelsRequest())).limits
        assert (limits.max_beam_size, limits.max_num_hypotheses, limits.max_sentence_rows) == (3, 3, 3)
