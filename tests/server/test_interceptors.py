"""What stands around every call, on a real gRPC server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc
import pytest

from dragoman.v1 import (
    DumpAttentionRequest,
    DumpAttentionResponse,
    TranslateBatchRequest,
    TranslateBatchResponse,
    TranslateTextRequest,
)
from dragoman_server import errors, interceptors
from dragoman_server.statuses import ANSWERS
from tests.server.scripted_calls import Stage, pairs, refused, scripted, status_of


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with scripted() as stage:
        yield stage


async def test_an_unexpected_exception_is_internal_and_logged_once_without_its_text(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    def fail() -> None:
        raise KeyError("a user's text")

    stage.service.behaviour = fail
    with caplog.at_level(logging.INFO):
        caught = await refused(stage, metadata=(("x-request-id", "id-7"),))
    assert caught.code() is grpc.StatusCode.INTERNAL
    assert "a user's text" not in (caught.details() or "")
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.fields["request_id"] == "id-7"
    assert record.fields["exception"] == "KeyError"
    assert "a user's text" not in caplog.text + str(record.fields)


async def test_a_stream_that_fails_midway_gets_its_status(stage: Stage):
    def fail() -> None:
        raise errors.DeadlineError

    stage.service.behaviour = fail
    call = stage.stub.DumpAttention(DumpAttentionRequest())
    assert await call.read() == DumpAttentionResponse()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("id-1", True), ("4bf92f35:77/b=.@_+", True), ("a" * 129, False), ("two words", False), ("", False)],
)
async def test_a_callers_request_id_is_echoed_where_it_is_plain(stage: Stage, given: str, is_kept: bool):
    call = stage.stub.TranslateText(TranslateTextRequest(), metadata=(("x-request-id", given),))
    await call
    echoed = pairs(await call.trailing_metadata())["x-request-id"]
    assert (echoed == given) is is_kept
    assert 0 < len(echoed) <= 128


async def test_request_ids_made_here_differ(stage: Stage):
    calls = [stage.stub.TranslateText(TranslateTextRequest()) for _ in range(3)]
    ids = {pairs(await call.trailing_metadata())["x-request-id"] for call in calls}
    assert len(ids) == 3


async def test_each_call_is_one_line_of_log(stage: Stage, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        await stage.stub.TranslateText(TranslateTextRequest(), metadata=(("x-request-id", "id-9"),))
    (record,) = [record for record in caplog.records if record.message == "call"]
    assert record.fields["method"] == "TranslateText"
    assert record.fields["model"] == "en-de"
    assert record.fields["code"] == "OK"
    assert record.fields["request_id"] == "id-9"
    assert record.fields["seconds"] >= 0


async def test_bytes_that_are_no_message_are_an_invalid_argument(stage: Stage):
    call = stage.channel.unary_unary("/dragoman.v1.TranslationService/TranslateText")
    for data in (b"\xff\xff\xff", b"\x0a\x02\xc3\x28"):  # garbage; a text in invalid UTF-8
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(data)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    labels = {"method": "TranslateText", "model": "unknown", "code": "INVALID_ARGUMENT"}
    assert stage.value("requests_total", **labels) == 2


async def test_while_draining_new_calls_are_refused_and_running_ones_end(stage: Stage):
    running = stage.stub.TranslateText(TranslateTextRequest(model="wait"))
    await stage.service.waiting.wait()
    stage.interceptor.is_draining = True
    caught = await refused(stage)
    assert caught.code() is grpc.StatusCode.UNAVAILABLE
    assert status_of(caught)[1]["ErrorInfo"].reason == "DRAINING"
    idle = asyncio.create_task(stage.interceptor.wait_until_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    running.cancel()
    await asyncio.wait_for(idle, 10)


async def test_a_caller_that_goes_away_is_counted_as_cancelled(stage: Stage):
    call = stage.stub.TranslateText(TranslateTextRequest(model="wait"))
    await stage.service.waiting.wait()
    call.cancel()
    await asyncio.wait_for(stage.interceptor.wait_until_idle(), 10)
    assert stage.service.ended.is_set()
    labels = {"method": "TranslateText", "model": "en-de", "code": "CANCELLED"}
    assert stage.value("requests_total", **labels) == 1


async def test_a_passed_deadline_is_counted_as_such(stage: Stage):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub.TranslateText(TranslateTextRequest(model="wait"), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(stage.interceptor.wait_until_idle(), 10)
    labels = {"method": "TranslateText", "model": "en-de", "code": "DEADLINE_EXCEEDED"}
    assert stage.value("requests_total", **labels) == 1


@pytest.mark.parametrize(
    ("remaining", "code"),
    [(None, "CANCELLED"), (3.0, "CANCELLED"), (0.02, "DEADLINE_EXCEEDED"), (0.0, "DEADLINE_EXCEEDED")],
)
def test_a_caller_whose_clock_is_a_little_ahead_has_waited_until_its_deadline(
    remaining: float | None, code: str
):
    class Context:
        def time_remaining(self) -> float | None:
            return remaining

    error = interceptors._as_call_error(asyncio.CancelledError(), Context())
    assert ANSWERS[type(error)].code.name == code


async def test_a_stream_of_requests_is_one_call(stage: Stage, caplog: pytest.LogCaptureFixture):
    requests = [TranslateBatchRequest(model=name) for name in ("a", "b", "c")]
    with caplog.at_level(logging.INFO):
        call = stage.stub.TranslateBatch(iter(requests), metadata=(("x-request-id", "id-6"),))
        assert [response.model async for response in call] == ["a", "b", "c"]
    assert pairs(await call.trailing_metadata())["x-request-id"] == "id-6"
    labels = {"method": "TranslateBatch", "model": "en-de", "code": "OK"}
    assert stage.value("requests_total", **labels) == 1
    (record,) = [record for record in caplog.records if record.message == "call"]
    assert record.fields["request_id"] == "id-6"


async def test_bytes_that_are_no_message_end_a_stream_of_requests(stage: Stage):
    method = stage.channel.stream_stream("/dragoman.v1.TranslationService/TranslateBatch")
    call = method(iter([TranslateBatchRequest(model="a").SerializeToString(), b"\xff\xff"]))
    assert TranslateBatchResponse.FromString(await call.read()).model == "a"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_while_draining_no_stream_begins(stage: Stage):
    stage.interceptor.is_draining = True
    call = stage.stub.TranslateBatch(iter([TranslateBatchRequest()]))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert status_of(caught.value)[1]["ErrorInfo"].reason == "DRAINING"


async def test_a_caller_that_reads_nothing_and_leaves_is_counted(stage: Stage):
    """The handler then waits for the connection to take what it has written."""

    async def endless() -> AsyncIterator[TranslateBatchRequest]:
        while True:
            yield TranslateBatchRequest(model="x" * 2**20)

    call = stage.stub.TranslateBatch(endless())
    await call.read()
    call.cancel()
    await asyncio.wait_for(stage.interceptor.wait_until_idle(), 10)
    labels = {"method": "TranslateBatch", "model": "en-de", "code": "CANCELLED"}
    assert stage.value("requests_total", **labels) == 1
