"""Around every call: request id, refusal while draining, status, metrics, one line of log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2

from dragoman_server.ends import CallEnds
from dragoman_server.errors import (
    CallError,
    CancelledError,
    DeadlineError,
    DrainingError,
    InternalError,
    InvalidArgumentError,
)
from dragoman_server.logs import CallRecord, current_call, describe_exception, log_event
from dragoman_server.metrics import Metrics
from dragoman_server.request import DEADLINE_SLACK_SECONDS
from dragoman_server.statuses import ANSWERS, retry_milliseconds, status_message

logger = logging.getLogger(__name__)

REQUEST_ID_KEY = "x-request-id"
# Health checks and reflection are left alone: they must answer while the server drains.
SERVICE_PREFIX = "/dragoman.v1."

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
# Ids made here: the process and a number. A random one each would ask the system for its digits at every call.
_PROCESS = secrets.token_hex(8)
_numbers = itertools.count()


class _Malformed:
    """Stands for a request whose bytes are no message."""


Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
# A string, since only the type stubs know it as generic.
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handler: TypeAlias = Callable[[Any, Context], Any]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Gives every call of the service an id, an end in the metrics and the log, and its errors a status."""

    def __init__(self, metrics: Metrics) -> None:
        self._ends = CallEnds(metrics)
        self._handlers: dict[str, MethodHandler] = {}  # by method, wrapped
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
        method = handler_call_details.method
        if method in self._handlers:
            return self._handlers[method]
        handler = await continuation(handler_call_details)
        if handler is None or not method.startswith(SERVICE_PREFIX):
            return handler
        self._handlers[method] = wrapped = self._wrap(method.rpartition("/")[2], handler)
        return wrapped

    def _wrap(self, name: str, handler: MethodHandler) -> MethodHandler:
        deserialize = _forgiving(handler.request_deserializer)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._wrap_stream(name, handler.stream_stream), deserialize, handler.response_serializer
            )
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
        # Writes instead of yielding, so that a call that is cancelled while its caller reads slowly is told so in here.
        async def handle_call(request: Message | AsyncIterator[Message], context: Context) -> None:
            record = self._begin(name, context)
            try:
                self._check(request)
                given = _checked(request) if isinstance(request, AsyncIterator) else request
                async with aclosing(handle(given, context)) as responses:
                    async for response in responses:
                        await context.write(response)
            except BaseException as error:
                await self._end(record, context, error)
                raise
            await self._end(record, context)

        return handle_call

    def _begin(self, name: str, context: Context) -> CallRecord:
        record = CallRecord(name, request_id_of(context), time.monotonic())
        current_call.set(record)
        context.set_trailing_metadata(((REQUEST_ID_KEY, record.request_id),))
        self._running += 1
        self._idle.clear()
        return record

    def _check(self, request: object) -> None:
        if self.is_draining:
            raise DrainingError
        _check_readable(request)

    async def _end(self, record: CallRecord, context: Context, error: BaseException | None = None) -> None:
        """Records how a call ended and, unless its caller is gone, says so to gRPC by raising."""
        call_error = None if error is None else _as_call_error(error, context)
        answer = None if call_error is None else ANSWERS[type(call_error)]
        code = grpc.StatusCode.OK if answer is None else answer.code
        refused_for = answer.reason if answer is not None and answer.is_refusal else None
        self._ends.record(record, code.name, refused_for)
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
            status = status_message(call_error, record.request_id)
            await context.abort(answer.code, status.message, trailing_metadata(record.request_id, status))


def _check_readable(request: object) -> None:
    if isinstance(request, _Malformed):
        raise InvalidArgumentError(
            "the request can't be read: not a message of this type, or text not in UTF-8"
        )


async def _checked(requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
    async for request in requests:
        _check_readable(request)
        yield request


def _as_call_error(error: BaseException, context: Context) -> CallError:
    if isinstance(error, CallError):
        return error
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        # gRPC cancels the handler for both: the caller went away, or the deadline passed.
        remaining = context.time_remaining()
        is_overdue = remaining is not None and remaining <= DEADLINE_SLACK_SECONDS
        return DeadlineError() if is_overdue else CancelledError()
    return InternalError()


def trailing_metadata(request_id: str, status: status_pb2.Status) -> tuple[tuple[str, str | bytes], ...]:
    """Returns what goes with a status that isn't OK."""
    metadata: list[tuple[str, str | bytes]] = [(REQUEST_ID_KEY, request_id)]
    milliseconds = retry_milliseconds(status)
    if milliseconds is not None:
        metadata.append(("grpc-retry-pushback-ms", str(milliseconds)))
    metadata.append(("grpc-status-details-bin", status.SerializeToString()))
    return tuple(metadata)


def request_id_of(context: Context) -> str:
    """Returns the caller's id where it is short and plain enough for a log, else a new one."""
    given = next((value for key, value in context.invocation_metadata() or () if key == REQUEST_ID_KEY), None)
    return given if isinstance(given, str) and _REQUEST_ID.fullmatch(given) else new_request_id()


def new_request_id() -> str:
    """Returns an id for a call whose caller gave none."""
    return f"{_PROCESS}{next(_numbers):016x}"


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
