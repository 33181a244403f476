"""Many callers at once: shared steps, a full queue, callers that leave, deadlines, a server that shuts down."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dragoman.v1 import TranslateTextRequest
from dragoman_model.checkpoint import LoadedModel
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until, violations


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
