"""A scripted service behind the real interceptor on a real gRPC server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from prometheus_client import CollectorRegistry

from dragoman.v1 import (
    DumpAttentionRequest,
    DumpAttentionResponse,
    TranslateBatchRequest,
    TranslateBatchResponse,
    TranslateTextRequest,
    TranslateTextResponse,
    TranslationServiceServicer,
    TranslationServiceStub,
    add_TranslationServiceServicer_to_server,
)
from dragoman_server import errors, interceptors
from dragoman_server.interceptors import CallInterceptor
from dragoman_server.logs import current_call
from dragoman_server.metrics import Metrics
from dragoman_server.statuses import ANSWERS

Behaviour = Callable[[], Any]


class ScriptedService(TranslationServiceServicer):
    """Does what the test says."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda: None
        self.waiting = asyncio.Event()
        self.ended = asyncio.Event()

    async def TranslateText(self, request: TranslateTextRequest, context: Any) -> TranslateTextResponse:  # noqa: N802
        current_call.get().model = "en-de"
        self.behaviour()
        if request.model == "wait":
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
        return TranslateTextResponse(model="en-de")

    async def DumpAttention(  # noqa: N802
        self, request: DumpAttentionRequest, context: Any
    ) -> AsyncIterator[DumpAttentionResponse]:
        yield DumpAttentionResponse()
        self.behaviour()
        yield DumpAttentionResponse()

    async def TranslateBatch(  # noqa: N802
        self, request_iterator: AsyncIterator[TranslateBatchRequest], context: Any
    ) -> AsyncIterator[TranslateBatchResponse]:
        current_call.get().model = "en-de"
        async for request in request_iterator:
            self.behaviour()
            yield TranslateBatchResponse(model=request.model)


class Stage:
    def __init__(self) -> None:
        self.service = ScriptedService()
        self.registry = CollectorRegistry()
        self.interceptor = CallInterceptor(Metrics(self.registry))

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"dragoman_{name}", labels) or 0.0


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    server = grpc.aio.server(interceptors=[stage.interceptor])
    add_TranslationServiceServicer_to_server(stage.service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stage.channel = channel
        stage.stub = TranslationServiceStub(channel)
        yield stage
    await server.stop(None)


def leaves(root: type[errors.CallError]) -> set[type[errors.CallError]]:
    below = root.__subclasses__()
    return {root} if not below else set().union(*map(leaves, below))


def pairs(metadata: Any) -> dict[str, Any]:
    return {key: value for key, value in metadata}  # noqa: C416 (dict() would look for a mapping)


def status_of(error: grpc.aio.AioRpcError) -> tuple[status_pb2.Status, dict[str, Any]]:
    metadata = pairs(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    kinds = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    details = {}
    for packed in status.details:
        for kind in kinds:
            if packed.Is(kind.DESCRIPTOR):
                details[kind.__name__] = kind.FromString(packed.value)
    return status, details


async def refused(
    stage: Stage, request: TranslateTextRequest | None = None, **more: Any
) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stage.stub.TranslateText(request or TranslateTextRequest(), timeout=10, **more)
    return caught.value


def test_every_leaf_of_the_error_tree_has_its_answer():
    assert set(ANSWERS) == leaves(errors.CallError)


@pytest.mark.parametrize("kind", sorted(ANSWERS, key=lambda kind: kind.__name__))
async def test_each_error_reaches_the_caller_with_status_and_details(
    stage: Stage, kind: type[errors.CallError]
):
    violation = errors.FieldViolation("texts[0]", "too long")
    error = kind(violations=[violation]) if issubclass(kind, errors.RequestError) else kind(*_arguments(kind))

    def fail() -> None:
        raise error

    stage.service.behaviour = fail
    caught = await refused(stage)
    answer = ANSWERS[kind]
    status, details = status_of(caught)
    assert caught.code() is answer.code
    assert status.code == answer.code.value[0]
    assert status.message == caught.details() == str(error)
    assert details["ErrorInfo"].reason == answer.reason
    assert details["ErrorInfo"].domain == "dragoman"
    assert ("RetryInfo" in details) == (answer.retry_seconds is not None)
    assert ("grpc-retry-pushback-ms" in pairs(caught.trailing_metadata())) == (
        answer.retry_seconds is not None
    )
    if issubclass(kind, errors.RequestError):
        (found,) = details["BadRequest"].field_violations
        assert (found.field, found.description) == ("texts[0]", "too long")
    labels = {"method": "TranslateText", "model": "en-de", "code": answer.code.name}
    assert stage.value("requests_total", **labels) == 1
    assert stage.value("refused_total", reason=answer.reason) == answer.is_refusal


def _arguments(kind: type[errors.CallError]) -> tuple[str | float, ...]:
    arguments: dict[type[errors.CallError], tuple[str | float, ...]] = {
        errors.QueueFullError: ("the queue is full",),
        errors.DeadlineUnreachableError: (2.5, 0.5),
    }
    return arguments.get(kind, ())


async def test_the_pushback_is_the_retry_delay(stage: Stage):
    def fail() -> None:
        raise errors.QueueFullError("full")

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    milliseconds = int(pairs(caught.trailing_metadata())["grpc-retry-pushback-ms"])
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == milliseconds
    assert 100 <= milliseconds <= 1000


async def test_an_error_that_knows_when_another_try_makes_sense_is_believed(stage: Stage):
    def fail() -> None:
        raise errors.QueueFullError("full", retry_seconds=12)

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    milliseconds = int(pairs(caught.trailing_metadata())["grpc-retry-pushback-ms"])
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == milliseconds
    assert 9000 <= milliseconds <= 15000


async def test_a_deadline_that_cannot_be_met_says_so_and_counts_as_a_refusal(stage: Stage):
    def fail() -> None:
        raise errors.DeadlineUnreachableError(2.5, 0.5)

    stage.service.behaviour = fail
    caught = await refused(stage)
    _, details = status_of(caught)
    assert caught.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details["ErrorInfo"].reason == "DEADLINE_UNREACHABLE"
    assert "RetryInfo" not in details
    assert stage.value("refused_total", reason="DEADLINE_UNREACHABLE") == 1


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


async def test_an_error_carries_the_request_id_too(stage: Stage):
    def fail() -> None:
        raise errors.NotFoundError("no such model")

    stage.service.behaviour = fail
    caught = await refused(stage, metadata=(("x-request-id", "id-8"),))
    assert pairs(caught.trailing_metadata())["x-request-id"] == "id-8"
    assert status_of(caught)[1]["ErrorInfo"].metadata["request_id"] == "id-8"


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


async def test_a_message_of_any_length_fits_into_the_metadata(stage: Stage):
    violations = [errors.FieldViolation(f"texts[{i}]", "x" * 200) for i in range(300)]

    def fail() -> None:
        raise errors.InvalidArgumentError(violations=violations)

    stage.service.behaviour = fail
    caught = await refused(stage)
    assert caught.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(status_of(caught)[1]["BadRequest"].field_violations) == 16


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
