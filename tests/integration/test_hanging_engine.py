"""An engine that stands still, in a thread and in a process, or is gone: the checks turn red and new calls are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import threading
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import (
    BatchItem,
    DumpAttentionRequest,
    ListModelsRequest,
    ScoreTextRequest,
    StreamTranslateTextRequest,
    TranslateBatchRequest,
    TranslateTextRequest,
)
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from dragoman_server.engine import Engine
from tests.integration import processes
from tests.integration.holdings import held
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until
from tests.models import make_tiny_model
from tests.server.scripted_calls import pairs, status_of

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, no step returns."""
    run, goes_on = RunningBatch.run, threading.Event()

    def hang(batch: RunningBatch, plan: Plan) -> BatchOutput:
        assert goes_on.wait(30)
        return run(batch, plan)

    monkeypatch.setattr(RunningBatch, "run", hang)
    return goes_on


async def test_a_step_that_does_not_return_turns_the_checks_red_until_it_does(
    model: LoadedModel, goes_on: threading.Event, caplog: pytest.LogCaptureFixture
):
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


async def test_calls_that_come_while_an_engine_hangs_are_refused_at_once_and_those_inside_wait(
    model: LoadedModel, goes_on: threading.Event
):
    async with serving(model, hang_seconds=1) as server, asyncio.timeout(30):
        watch = health_pb2_grpc.HealthStub(server.channel).Watch(
            health_pb2.HealthCheckRequest(service="en-de")
        )
        assert (await watch.read()).status == SERVING
        assert state_of_engine(server) == "running"
        before = server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))
        bulk = server.stub.TranslateBatch()
        await bulk.write(TranslateBatchRequest(items=[BatchItem(id="before", text="a")]))
        await until(lambda: held(server)["calls"] == 2)
        assert (await watch.read()).status == NOT_SERVING
        assert state_of_engine(server) == "hung"

        for name, call in calls(server).items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call()
            status, details = status_of(caught.value)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, name
            assert details["ErrorInfo"].reason == "ENGINE_HUNG"
            assert status.message.startswith("the engine of 'en-de' hangs: it has not begun a step for ")
            assert details["RetryInfo"].retry_delay.ToMilliseconds() == int(
                pairs(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]
            )
            labels = {"method": name, "model": "en-de", "code": "UNAVAILABLE"}
            assert server.value("dragoman_requests_total", **labels) == 1
        assert server.value("dragoman_refused_total", reason="ENGINE_HUNG") == 5
        unread = server.channel.unary_unary("/dragoman.v1.TranslationService/ScoreText")
        assert (await refusal(unread(b"no message at all"))).code() is grpc.StatusCode.UNAVAILABLE
        assert (await server.stub.ListModels(ListModelsRequest())).models
        await bulk.write(TranslateBatchRequest(items=[BatchItem(id="meanwhile", text="b")]))
        await bulk.done_writing()

        goes_on.set()
        assert (await watch.read()).status == SERVING
        assert state_of_engine(server) == "running"
        assert len((await before).translations) == len(SENTENCES)
        results = [result async for response in bulk for result in response.results]
        assert {result.id: result.WhichOneof("outcome") for result in results} == {
            "before": "translation",
            "meanwhile": "translation",
        }
        for call in calls(server).values():
            await call()
        watch.cancel()


async def test_calls_that_come_when_an_engine_is_gone_are_refused_at_once(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    break_engines(monkeypatch)
    inside = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES)))
    assert inside.code() is grpc.StatusCode.INTERNAL  # it may have been what broke it
    await until(lambda: state_of_engine(server) == "gone")

    for name, call in calls(server).items():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call()
        status, details = status_of(caught.value)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, name
        assert details["ErrorInfo"].reason == "ENGINE_GONE"
        assert status.message.startswith("the engine of 'en-de' is gone; try another server")
        assert "RetryInfo" not in details
        assert "grpc-retry-pushback-ms" not in pairs(caught.value.trailing_metadata())
        labels = {"method": name, "model": "en-de", "code": "UNAVAILABLE"}
        assert server.value("dragoman_requests_total", **labels) == 1
    assert server.value("dragoman_refused_total", reason="ENGINE_GONE") == 5
    unread = server.channel.unary_unary("/dragoman.v1.TranslationService/ScoreText")
    assert (await refusal(unread(b"no message at all"))).code() is grpc.StatusCode.UNAVAILABLE
    assert (await server.stub.ListModels(ListModelsRequest())).models


async def test_a_model_whose_engine_is_gone_keeps_nobody_from_another(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    async with serving(model, dataclasses.replace(model, name="second"), max_queue_size=1) as server:
        gone, other = server.app._catalogue.models
        with monkeypatch.context() as broken:
            break_engines(broken)
            await refusal(server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES[:1])))
            await until(lambda: not gone.engine.is_alive)
        for name, code in (("en-de", grpc.StatusCode.UNAVAILABLE), ("second", grpc.StatusCode.OK)):
            request = TranslateTextRequest(texts=SENTENCES[:1], model=name)
            call = server.stub.TranslateText(request)
            assert await call.code() is code
        with other.engine.room.hold(1):
            said = {
                name: (
                    await refusal(
                        server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES[:1], model=name))
                    )
                ).details()
                for name in ("en-de", "second")
            }
        assert "is gone" in said["en-de"]
        assert "queue is full" in said["second"]


def break_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the next step of any engine end its loop."""

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(RunningBatch, "run", broken)
    monkeypatch.setattr(RunningBatch, "clear", broken)


def state_of_engine(server: RunningServer) -> str:
    (state,) = (
        state
        for state in ("running", "hung", "gone")
        if server.value("dragoman_engine_state", model="en-de", state=state)
    )
    return state


def calls(server: RunningServer) -> dict[str, Callable[[], Awaitable[object]]]:
    """Returns a call of each kind that an engine works for."""
    text, stub = SENTENCES[0], server.stub

    async def read(stream: AsyncIterator[object]) -> list[object]:
        return [response async for response in stream]

    batch = TranslateBatchRequest(items=[BatchItem(id="0", text=text)])
    scored = ScoreTextRequest(items=[{"text": text, "translation": "a"}])
    return {
        "TranslateText": lambda: stub.TranslateText(TranslateTextRequest(texts=[text])),
        "StreamTranslateText": lambda: read(stub.StreamTranslateText(StreamTranslateTextRequest(text=text))),
        "TranslateBatch": lambda: read(stub.TranslateBatch(iter([batch]))),
        "ScoreText": lambda: stub.ScoreText(scored),
        "DumpAttention": lambda: read(stub.DumpAttention(DumpAttentionRequest(text=text))),
    }


async def test_a_model_whose_engine_hangs_keeps_nobody_from_another(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    async with serving(model, dataclasses.replace(model, name="second")) as server:
        hung, _ = server.app._catalogue.models
        monkeypatch.setattr(hung.engine.heartbeat, "is_missed", True)
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES)))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        answer = await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES, model="second"))
        assert answer.model == "second"


async def test_callers_hear_of_the_engine_of_their_own_model(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    async with serving(model, dataclasses.replace(model, name="second"), max_queue_size=1) as server:
        hung, other = server.app._catalogue.models
        request = TranslateTextRequest(texts=SENTENCES[:1])
        monkeypatch.setattr(hung.engine.heartbeat, "is_missed", True)
        with other.engine.room.hold(1):
            assert (
                "the engine of 'en-de' hangs" in (await refusal(server.stub.TranslateText(request))).details()
            )
            request.model = "second"
            assert "queue is full" in (await refusal(server.stub.TranslateText(request))).details()
            monkeypatch.setattr(other.engine.heartbeat, "is_missed", True)
            for name in ("en-de", "second"):
                request.model = name
                error = await refusal(server.stub.TranslateText(request))
                assert f"the engine of {name!r} hangs" in error.details()


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
def impatient(model_directory: Path) -> Iterator[processes.Server]:
    with processes.started(model_directory, "--engine", "process", "--hang-seconds", "2") as (process, said):
        yield processes.Server(process, said)


def test_a_process_that_is_stopped_turns_the_checks_red_until_it_goes_on(impatient: processes.Server):
    (engine,) = impatient.engines()
    health = health_pb2_grpc.HealthStub(impatient.channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(service="en-de"), timeout=60)
    processes.until(lambda: impatient.code("/healthz") == 200)
    assert next(watch).status == SERVING
    request = TranslateTextRequest(texts=SENTENCES)
    os.kill(engine, signal.SIGSTOP)
    running = impatient.stub.TranslateText.future(request, timeout=60)
    assert next(watch).status == NOT_SERVING
    assert (impatient.code("/healthz"), impatient.code("/readyz")) == (503, 503)
    assert impatient.value("dragoman_engine_state", 'state="hung"') == 1
    refused = impatient.stub.TranslateText.future(request, timeout=60)
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert not running.done()
    os.kill(engine, signal.SIGCONT)
    assert next(watch).status == SERVING
    assert impatient.code("/healthz") == 200
    assert len(running.result().translations) == len(SENTENCES)
    assert len(impatient.stub.TranslateText(request, timeout=60).translations) == len(SENTENCES)
    assert impatient.value("dragoman_engine_state", 'state="running"') == 1
    watch.cancel()
    impatient.process.send_signal(signal.SIGTERM)
    _, log = impatient.process.communicate(timeout=20)
    assert [log.count(line) for line in ("engine hangs model=en-de", "engine goes on model=en-de")] == [1, 1]
