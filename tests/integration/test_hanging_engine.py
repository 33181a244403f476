"""An engine that stands still, in a thread and in a process: the checks turn red, and green when it goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import TranslateTextRequest
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from dragoman_server.engine import Engine
from tests.integration.servers import SENTENCES, serving
from tests.integration.test_engine_process import Server, until
from tests.integration.test_server_process import started
from tests.models import make_tiny_model

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_step_that_does_not_return_turns_the_checks_red_until_it_does(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    run, goes_on = RunningBatch.run, threading.Event()

    def hang(batch: RunningBatch, plan: Plan) -> BatchOutput:
        assert goes_on.wait(30)
        return run(batch, plan)

    monkeypatch.setattr(RunningBatch, "run", hang)
    async with serving(model, hang_seconds=1) as server:
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(
            health_pb2.HealthCheckRequest(service="en-de")
        )
        assert (await watch.read()).status == SERVING
        running = server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))
        async with asyncio.timeout(20):
            assert (await watch.read()).status == NOT_SERVING
            for path in ("/healthz", "/readyz"):
                with pytest.raises(urllib.error.HTTPError, match="503"):
                    await server.get(path)
            goes_on.set()
            assert (await watch.read()).status == SERVING
            assert await server.get("/healthz") == "ok\n"
            assert len((await running).translations) == len(SENTENCES)
        watch.cancel()
    said = [record.message for record in caplog.records if record.message.startswith("engine")]
    assert said == ["engine hangs", "engine goes on"]


async def test_engines_are_all_told_to_stop_before_one_is_waited_for(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    said = []

    def note(name: str) -> None:
        method = getattr(Engine, name)

        def noted(engine: Engine, value: Any) -> None:
            said.append(name)
            method(engine, value)

        monkeypatch.setattr(Engine, name, noted)

    note("stop")
    note("join")
    async with serving(model, dataclasses.replace(model, name="second")):
        pass
    assert said == ["stop", "stop", "join", "join"]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "en-de")


@pytest.fixture
def impatient(model_directory: Path) -> Iterator[Server]:
    with started(model_directory, "--engine", "process", "--hang-seconds", "2") as (process, said):
        yield Server(process, said)


def test_a_process_that_is_stopped_turns_the_checks_red_until_it_goes_on(impatient: Server):
    (engine,) = impatient.engines()
    health = health_pb2_grpc.HealthStub(impatient.channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(service="en-de"), timeout=60)
    until(lambda: impatient.code("/healthz") == 200)
    assert next(watch).status == SERVING
    os.kill(engine, signal.SIGSTOP)  # it has no work, and would do none that came
    assert next(watch).status == NOT_SERVING
    assert (impatient.code("/healthz"), impatient.code("/readyz")) == (503, 503)
    running = impatient.stub.TranslateText.future(TranslateTextRequest(texts=SENTENCES), timeout=60)
    os.kill(engine, signal.SIGCONT)
    assert next(watch).status == SERVING
    assert impatient.code("/healthz") == 200
    assert len(running.result().translations) == len(SENTENCES)
    watch.cancel()
    impatient.process.send_signal(signal.SIGTERM)
    _, log = impatient.process.communicate(timeout=20)
    assert [log.count(line) for line in ("engine hangs model=en-de", "engine goes on model=en-de")] == [1, 1]
