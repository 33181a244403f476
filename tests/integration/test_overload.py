"""Far more callers than there is room for: some are served, the others are told so at once, and then all is as before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import (
    ListModelsRequest,
    StreamTranslateTextRequest,
    TranslateTextRequest,
    TranslationServiceStub,
)
from dragoman_client.channel import channel_options
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from tests.integration.holdings import engine_of, held, until_nothing_is_held
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until

MAX_ROWS, MAX_WAITING = 4, 8


@asynccontextmanager
async def full_server(
    model: LoadedModel, gate: threading.Event | None = None
) -> AsyncIterator[RunningServer]:
    """Serves with a row that runs and a queue that is full; neither changes until the gate opens or the block ends."""
    gate = gate or threading.Event()
    async with serving(model, max_batch_size=1, max_queue_size=2) as server:
        run = engine_of(server)._batch.run

        def wait_and_run(plan: Plan) -> BatchOutput:
            gate.wait(60)
            return run(plan)

        engine_of(server)._batch.run = wait_and_run  # type: ignore[method-assign]
        calls = []
        for count in range(3):
            calls.append(asyncio.create_task(outcome(server, TranslateTextRequest(texts=SENTENCES[:1]))))
            await until(lambda count=count: len(engine_of(server)._scheduler._calls) > count)
            await until(lambda: held(server)["rows"] == 1)
        try:
            yield server
        finally:
            gate.set()
            await asyncio.gather(*calls)


async def test_while_nothing_fits_calls_are_refused_unread(model: LoadedModel):
    async with full_server(model) as server:
        call = server.channel.unary_unary("/dragoman.v1.TranslationService/TranslateText")
        for body in (b"no message at all", b"x" * 3_000_000):
            error = await refusal(call(body, metadata=(("x-request-id", "id-7"),)))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the queue is full: 2 sentences wait, at most 2 may" in error.details()
            trailers = dict(list(error.trailing_metadata()))
            assert trailers["x-request-id"] == "id-7"
            assert int(trailers["grpc-retry-pushback-ms"]) > 0
        labels = {"method": "TranslateText", "model": "en-de", "code": "RESOURCE_EXHAUSTED"}
        assert server.value("dragoman_requests_total", **labels) == 2
        assert server.value("dragoman_request_seconds_count", method="TranslateText", model="en-de") == 2
        assert server.value("dragoman_refused_total", reason="QUEUE_FULL") == 2


async def test_a_refused_client_comes_back_and_is_served(model: LoadedModel):
    gate = threading.Event()
    async with full_server(model, gate) as server:
        address = server.app.grpc_address
        async with grpc.aio.insecure_channel(address, options=channel_options(address)) as channel:
            call = TranslationServiceStub(channel).TranslateText(TranslateTextRequest(texts=["a"]))
            waiting = asyncio.ensure_future(call)
            await until(lambda: server.value("dragoman_refused_total", reason="QUEUE_FULL") == 1)
            gate.set()
            assert len((await waiting).translations) == 1


async def test_a_call_that_has_waited_for_as_long_as_it_may_is_told_to_come_back(model: LoadedModel):
    gate = threading.Event()
    async with serving(model, max_batch_size=1, max_queue_seconds=0.05) as server:
        engine = engine_of(server)
        run = engine._batch.run

        def wait_and_run(plan: Plan) -> BatchOutput:
            gate.wait(60)
            return run(plan)

        engine._batch.run = wait_and_run  # type: ignore[method-assign]
        running = asyncio.create_task(outcome(server, TranslateTextRequest(texts=SENTENCES[:1])))
        await until(lambda: held(server)["rows"] == 1)
        waiting = asyncio.create_task(refusal(server.stub.TranslateText(TranslateTextRequest(texts=["a"]))))
        await until(lambda: held(server)["waiting"] == 1)
        came = engine.clock()
        await until(lambda: engine.clock() > came + 0.05)
        gate.set()
        error = await waiting
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "waited for 0.05 s, and none may for longer (--max-queue-seconds)" in error.details()
        assert "grpc-retry-pushback-ms" in dict(list(error.trailing_metadata()))
        assert len((await running).translations) == 1
        assert server.value("dragoman_refused_total", reason="QUEUE_FULL") == 1
        await until_nothing_is_held(server)


async def test_a_refused_stream_says_the_same(model: LoadedModel):
    async with full_server(model) as server:
        call = server.stub.StreamTranslateText(StreamTranslateTextRequest(text="a"))
        error = await refusal(call.read())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "grpc-retry-pushback-ms" in dict(list(error.trailing_metadata()))


async def test_what_needs_no_queue_is_served_while_it_is_full(model: LoadedModel):
    async with full_server(model) as server:
        assert len((await server.stub.ListModels(ListModelsRequest())).models) == 1
        check = health_pb2_grpc.HealthStub(server.channel).Check(health_pb2.HealthCheckRequest())
        assert (await check).status == health_pb2.HealthCheckResponse.SERVING


async def test_a_server_that_drains_says_that_and_not_that_it_is_full(model: LoadedModel):
    async with full_server(model) as server:
        server.app.interceptor.is_draining = True
        error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=["a"])))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        server.app.interceptor.is_draining = False


async def outcome(server: RunningServer, request: TranslateTextRequest) -> Any:
    try:
        return await server.stub.TranslateText(request)
    except grpc.aio.AioRpcError as error:
        return error


async def test_under_ten_times_the_load_calls_are_served_or_told_when_to_come_back(model: LoadedModel):
    async with serving(model, max_batch_size=MAX_ROWS, max_queue_size=MAX_WAITING) as server:
        request = TranslateTextRequest(texts=SENTENCES[:1], options={"min_decoding_length": 30})
        expected = await server.stub.TranslateText(request)
        most: dict[str, int] = {}
        calls = [asyncio.create_task(outcome(server, request)) for _ in range(200)]
        while not all(call.done() for call in calls):
            for name, count in held(server).items():
                most[name] = max(count, most.get(name, 0))
            await asyncio.sleep(0)
        outcomes = [call.result() for call in calls]
        served = [answer for answer in outcomes if not isinstance(answer, grpc.aio.AioRpcError)]
        refused = [error for error in outcomes if isinstance(error, grpc.aio.AioRpcError)]
        assert len(served) >= MAX_WAITING
        assert len(refused) > 50
        assert most["rows"] <= MAX_ROWS
        assert most["waiting"] + most["places"] <= 2 * MAX_WAITING
        assert most["waiting"] <= MAX_WAITING
        assert {answer.translations[0].text for answer in served} == {expected.translations[0].text}
        for error in refused:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            trailers = dict(list(error.trailing_metadata()))
            status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
            retry = error_details_pb2.RetryInfo()
            assert any(detail.Unpack(retry) for detail in status.details)
            assert retry.retry_delay.ToMilliseconds() == int(trailers["grpc-retry-pushback-ms"]) > 0
        await until_nothing_is_held(server)
        again = await server.stub.TranslateText(request)
        assert again.translations[0].text == expected.translations[0].text
