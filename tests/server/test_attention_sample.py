"""Which translations are looked at for the metrics, and what comes of those that can't be."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from prometheus_client import CollectorRegistry

from dragoman_model.checkpoint import LoadedModel, load_model
from dragoman_model.plan import AttentionOutput, FinishedSentence, FinishReason, Hypothesis
from dragoman_model.translation import PreparedText, prepare
from dragoman_server.catalogue import ServedModel
from dragoman_server.errors import InternalError
from dragoman_server.logs import CallRecord, current_call
from dragoman_server.metrics import Metrics
from dragoman_server.request import Attend, Call
from dragoman_server.rpcs.attention_sample import MAX_WAITING, AttentionSample
from tests.models import make_tiny_model


@dataclass
class FakeEngine:
    """Answers when it is let to; the errors that are left come first."""

    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    errors: list[Exception] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def clock(self) -> float:
        return 100.0

    async def submit(self, call: Call) -> tuple[AttentionOutput]:
        self.calls.append(call)
        await self.goes_on.wait()
        if self.errors:
            raise self.errors.pop(0)
        (work,) = call.work
        assert isinstance(work, Attend)
        weights = torch.full((len(work.target_ids), len(work.source_ids)), 1 / len(work.source_ids))
        return (AttentionOutput(0, weights.expand(2, 2, -1, -1), (), weights),)


class Stage:
    def __init__(self, model: LoadedModel, share: float = 1.0) -> None:
        current_call.set(CallRecord("TranslateText", "id-1", 100.0))
        self.model = model
        self.registry = CollectorRegistry()
        self.engine = FakeEngine()
        metrics = Metrics(self.registry).of_model("m")
        served = ServedModel(model, cast(Any, self.engine), metrics, attention_sample_share=share)
        self.sample = AttentionSample(served)

    def offer(self, text: str) -> None:
        prepared: PreparedText = prepare(self.model, text)
        target_ids = (7, 8, self.model.config.eos_id)
        hypothesis = Hypothesis(target_ids, (-0.5,) * 3, FinishReason.EOS)
        self.sample.offer(prepared, [FinishedSentence(0, (hypothesis,)) for _ in prepared.source_ids])

    async def look(self) -> None:
        """Lets everything that was taken be looked at."""
        self.engine.goes_on.set()
        if self.sample._looking is not None:
            await asyncio.wait_for(self.sample._looking, 10)

    @property
    def num_looked_at(self) -> float:
        labels = {"model": "m"}
        return self.registry.get_sample_value("dragoman_cross_attention_entropy_nats_count", labels) or 0.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    directory: Path = make_tiny_model(tmp_path_factory.mktemp("models") / "m")
    return load_model(directory, device="cpu")


async def test_sentences_are_looked_at_one_after_another_and_for_nobody_that_waits(model: LoadedModel):
    stage = Stage(model)
    stage.offer("He sings! I don't know.")
    stage.offer("He sings!")
    await asyncio.sleep(0)
    assert len(stage.engine.calls) == 1
    await stage.look()
    assert stage.num_looked_at == len(stage.engine.calls) == 3
    for call in stage.engine.calls:
        (work,) = call.work
        assert isinstance(work, Attend)
        assert work.heads == ()  # the mean of all is what counts, and takes less
        assert (call.is_sample, call.deadline, call.request_id) == (True, None, "id-1")
    stage.offer("He sings!")  # later, when it had nothing to do
    await stage.look()
    assert stage.num_looked_at == 4


async def test_what_comes_while_too_many_wait_is_passed_over(model: LoadedModel):
    stage = Stage(model)
    stage.offer("He sings!")
    await asyncio.sleep(0)  # it is being looked at
    for _ in range(MAX_WAITING + 3):
        stage.offer("He sings!")
    await stage.look()
    assert stage.num_looked_at == 1 + MAX_WAITING


@pytest.mark.parametrize(("error", "num_lines"), [(InternalError(), 0), (ValueError("A user's text"), 1)])
async def test_one_that_fails_is_left_out(
    model: LoadedModel, caplog: pytest.LogCaptureFixture, error: Exception, num_lines: int
):
    stage = Stage(model)
    stage.engine.errors = [error]
    stage.offer("He sings! I don't know.")
    stage.offer("He sings!")
    await stage.look()
    assert stage.num_looked_at == 1
    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [line.message for line in lines] == ["attention sample failed"] * num_lines
    assert not any("A user's text" in str(line.fields) for line in lines)


@pytest.mark.parametrize("share", [0.0, 0.3])
async def test_as_many_are_looked_at_as_chance_says(
    model: LoadedModel, share: float, monkeypatch: pytest.MonkeyPatch
):
    stage = Stage(model, share)
    chances = iter([0.1, 0.3, 0.0, 0.9])
    monkeypatch.setattr("dragoman_server.rpcs.attention_sample.random.random", lambda: next(chances))
    for _ in range(4):
        stage.offer("He sings!")
    stage.offer(" ")  # nothing to look at
    await stage.look()
    assert stage.num_looked_at == (2 if share else 0)
