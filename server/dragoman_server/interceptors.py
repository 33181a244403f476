"""Around every call: request id, refusal while draining, status codes, metrics, one line of log.

The only place that knows gRPC's status codes.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from dragoman_server.errors import (
    CallError,
    CancelledError,
    DeadlineError,
    DeadlineUnreachableError,
    DrainingError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    QueueFullError,
    RequestError,
    UnsupportedError,
)
from dragoman_server.logs import CallRecord, current_call, describe_exception, log_event
from dragoman_server.metrics import Metrics
from dragoman_server.request import DEADLINE_SLACK_SECONDS

logger = logging.getLogger(__name__)

DOMAIN = "dragoman"
REQUEST_ID_KEY = "x-request-id"
# Health checks and reflection are left alone: they must answer while the server drains.
SERVICE_PREFIX = "/dragoman.v1."

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
# A status message travels in the trailing metadata, of which gRPC lets 8 KiB through.
_MAX_MESSAGE_LENGTH = 1000


@dataclass(frozen=True)
class Answer:
    """What a caller is told of an error.

    Attributes:
        code: gRPC's status code.
        reason: ErrorInfo.reason, and the label of ``dragoman_refused_total``.
        is_refusal: Whether no model work was done.
        retry_seconds: When another try makes sense, where the error itself doesn't know better; None is never.
    """

    code: grpc.StatusCode
    reason: str
    is_refusal: bool = False
    retry_seconds: float | None = None


ANSWERS: dict[type[CallError], Answer] = {
    InvalidArgumentError: Answer(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", is_refusal=True),
    UnsupportedError: Answer(grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED", is_refusal=True),
    NotFoundError: Answer(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", is_refusal=True),
    # A full queue of short sentences is worked off in about this time.
    QueueFullError: Answer(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", is_refusal=True, retry_seconds=0.5
    ),
    DeadlineUnreachableError: Answer(
        grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_UNREACHABLE", is_refusal=True
    ),
    # By then a load balancer has seen that this server is going.
    DrainingError: Answer(grpc.StatusCode.UNAVAILABLE, "DRAINING", is_refusal=True, retry_seconds=1.0),
    DeadlineError: Answer(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    CancelledError: Answer(grpc.StatusCode.CANCELLED, "CANCELLED"),
    InternalError: Answer(grpc.StatusCode.INTERNAL, "INTERNAL"),
}


class _Malformed:
    """Stands for a request whose bytes are no message."""


Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
# A string, since only the type stubs know it as generic.
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handler: TypeAlias = Callable[[Any, Context], Any]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Gives every call of the service an id, an end in the metrics and the log, and its errors a status."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    async def wait_until_idle(self) -> None:
        """Returns when no call is running."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[MethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> MethodHandler | None:
        """Wraps the handlers of our own service."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(SERVICE_PREFIX):
            return handler
        name = method.rpartition("/")[2]
        deserialize = _forgiving(handler.request_deserializer)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._wrap_stream(name, handler.unary_stream), deserialize, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            self._wrap_unary(name, handler.unary_unary), deserialize, handler.response_serializer
        )

    def _wrap_unary(self, name: str, handle: Any) -> Handler:
        async def handle_call(request: Message, context: Context) -> Message | None:
            record = self._begin(name, context)
            try:
                self._check(request)
                response: Message = await handle(request, context)
            except BaseException as error:
                await self._end(record, context, error)
                raise
            await self._end(record, context)
            return response

        return handle_call

    def _wrap_stream(self, name: str, handle: Any) -> Handler:
        async def handle_call(request: Message, context: Context) -> AsyncIterator[Message]:
            record = self._begin(name, context)
            try:
                self._check(request)
                async with aclosing(handle(request, context)) as responses:
                    async for response in responses:
                        yield response
            except BaseException as error:
                await self._end(record, context, error)
                raise
            await self._end(record, context)

        return handle_call

    def _begin(self, name: str, context: Context) -> CallRecord:
        record = CallRecord(name, _request_id(context), time.monotonic())
        current_call.set(record)
        context.set_trailing_metadata(((REQUEST_ID_KEY, record.request_id),))
        self._running += 1
        self._idle.clear()
        return record

    def _check(self, request: Message | _Malformed) -> None:
        if self.is_draining:
            raise DrainingError
        if isinstance(request, _Malformed):
            raise InvalidArgumentError(
                "the request can't be read: not a message of this type, or text not in UTF-8"
            )

    async def _end(self, record: CallRecord, context: Context, error: BaseException | None = None) -> None:
        """Records how a call ended and, unless its caller is gone, says so to gRPC by raising."""
        call_error = None if error is None else _as_call_error(error, context)
        answer = None if call_error is None else ANSWERS[type(call_error)]
        code = grpc.StatusCode.OK if answer is None else answer.code
        seconds = time.monotonic() - record.arrived
        self._metrics.requests.labels(record.method, record.model, code.name).inc()
        self._metrics.request_seconds.labels(record.method, record.model).observe(seconds)
        if answer is not None and answer.is_refusal:
            self._metrics.refused.labels(answer.reason).inc()
        log_event(
            logger,
            logging.INFO,
            "call",
            method=record.method,
            model=record.model,
            code=code.name,
            seconds=round(seconds, 6),
            texts=record.num_texts,
            request_id=record.request_id,
        )
        if error is not None and not isinstance(error, CallError | asyncio.CancelledError | GeneratorExit):
            log_event(
                logger,
                logging.ERROR,
                "call failed",
                method=record.method,
                request_id=record.request_id,
                **describe_exception(error),
            )
        self._running -= 1
        if self._running == 0:
            self._idle.set()
        if call_error is not None and answer is not None and isinstance(error, Exception):
            message = str(call_error)[:_MAX_MESSAGE_LENGTH]
            await context.abort(answer.code, message, _trailing_metadata(record, call_error, answer, message))


def _as_call_error(error: BaseException, context: Context) -> CallError:
    if isinstance(error, CallError):
        return error
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        # gRPC cancels the handler for both: the caller went away, or the deadline passed.
        remaining = context.time_remaining()
        is_overdue = remaining is not None and remaining <= DEADLINE_SLACK_SECONDS
        return DeadlineError() if is_overdue else CancelledError()
    return InternalError()


def _trailing_metadata(
    record: CallRecord, error: CallError, answer: Answer, message: str
) -> tuple[tuple[str, str | bytes], ...]:
    details: list[Message] = [
        error_details_pb2.ErrorInfo(
            reason=answer.reason, domain=DOMAIN, metadata={"request_id": record.request_id}
        )
    ]
    metadata: list[tuple[str, str | bytes]] = [(REQUEST_ID_KEY, record.request_id)]
    if isinstance(error, RequestError) and error.violations:
        violations = [
            error_details_pb2.BadRequest.FieldViolation(
                field=violation.field, description=violation.description
            )
            for violation in error.violations
        ]
        details.append(error_details_pb2.BadRequest(field_violations=violations))
    retry_seconds = getattr(error, "retry_seconds", None) or answer.retry_seconds
    if retry_seconds is not None:
        # Spread out, so that callers who were refused together don't come back together.
        milliseconds = round(retry_seconds * random.uniform(750, 1250))
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(milliseconds)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        metadata.append(("grpc-retry-pushback-ms", str(milliseconds)))
    status = status_pb2.Status(code=answer.code.value[0], message=message, details=map(_packed, details))
    metadata.append(("grpc-status-details-bin", status.SerializeToString()))
    return tuple(metadata)


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _request_id(context: Context) -> str:
    """Returns the caller's id where it is short and plain enough for a log, else a new one."""
    given = next((value for key, value in context.invocation_metadata() or () if key == REQUEST_ID_KEY), None)
    return given if isinstance(given, str) and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _forgiving(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Message | _Malformed]:
    """Lets bytes that are no message through to the handler, where they get a status and a line in the log."""
    assert deserialize is not None

    def deserialize_or_mark(data: bytes) -> Message | _Malformed:
        try:
            message: Message = deserialize(data)
            return message
        except DecodeError:
            return _Malformed()

    return deserialize_or_mark
