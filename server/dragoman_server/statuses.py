"""What callers are told of errors: the only place that knows gRPC's status codes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from dragoman_server.errors import (
    CallError,
    CancelledError,
    DeadlineError,
    DeadlineUnreachableError,
    DrainingError,
    EngineGoneError,
    EngineHungError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    QueueFullError,
    RequestError,
    UnsupportedError,
)

DOMAIN = "dragoman"

# A status message travels in the trailing metadata, of which gRPC lets 8 KiB through.
_MAX_MESSAGE_LENGTH = 1000

_TYPE_URLS: dict[type[Message], str] = {
    kind: f"type.googleapis.com/{kind.DESCRIPTOR.full_name}"
    for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
}


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
    # By then a load balancer has seen that this server is not to be called; so with the next.
    EngineHungError: Answer(grpc.StatusCode.UNAVAILABLE, "ENGINE_HUNG", is_refusal=True, retry_seconds=1.0),
    # It doesn't come back by itself, and nobody here knows when somebody starts the server anew. Without a time to come back, clients
    # retry after their own, short, backoff: through a load balancer that is another server, and where there is none they soon know.
    EngineGoneError: Answer(grpc.StatusCode.UNAVAILABLE, "ENGINE_GONE", is_refusal=True),
    DrainingError: Answer(grpc.StatusCode.UNAVAILABLE, "DRAINING", is_refusal=True, retry_seconds=1.0),
    DeadlineError: Answer(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    CancelledError: Answer(grpc.StatusCode.CANCELLED, "CANCELLED"),
    InternalError: Answer(grpc.StatusCode.INTERNAL, "INTERNAL"),
}


def status_message(error: CallError, request_id: str) -> status_pb2.Status:
    """Returns what the caller is told of an error, with all details.

    Args:
        error: What ended the call, or an item of it.
        request_id: The call's.
    """
    answer = ANSWERS[type(error)]
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=answer.reason, domain=DOMAIN, metadata={"request_id": request_id})
    ]
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
        seconds, milliseconds = divmod(round(retry_seconds * random.uniform(750, 1250)), 1000)
        delay = duration_pb2.Duration(seconds=seconds, nanos=milliseconds * 1_000_000)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return status_pb2.Status(
        code=answer.code.value[0], message=str(error)[:_MAX_MESSAGE_LENGTH], details=map(_packed, details)
    )


def retry_milliseconds(status: status_pb2.Status) -> int | None:
    """Returns when another try makes sense, as ``status`` says; None is never."""
    for packed in status.details:
        if packed.type_url == _TYPE_URLS[error_details_pb2.RetryInfo]:
            delay = error_details_pb2.RetryInfo.FromString(packed.value).retry_delay
            return int(delay.seconds) * 1000 + int(delay.nanos) // 1_000_000
    return None


def _packed(message: Message) -> any_pb2.Any:
    # As its own Pack does it, which puts the address together each time.
    return any_pb2.Any(type_url=_TYPE_URLS[type(message)], value=message.SerializeToString())
