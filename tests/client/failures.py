"""Calls that fail as the server makes them fail: a status with its details, and trailers."""

from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

Failure = tuple[status_pb2.Status, tuple[tuple[str, str], ...]]


def failure(
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str | None = None,
    violations: dict[str, str] | None = None,
    retry_seconds: float | None = None,
    trailers: tuple[tuple[str, str], ...] = (),
) -> Failure:
    """Returns a failure as the server sends it."""
    details: list[Any] = []
    if reason:
        details.append(error_details_pb2.ErrorInfo(reason=reason, domain="dragoman"))
    if violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=name, description=description)
                    for name, description in violations.items()
                ]
            )
        )
    if retry_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(round(retry_seconds * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    packed = []
    for detail in details:
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code.value[0], message=message, details=packed), trailers


def abort(context: Any, failing: Failure) -> None:
    """Ends a call with a failure."""
    status, trailers = failing
    context.set_trailing_metadata(trailers)
    context.abort_with_status(_with_trailers(status, trailers))


def _with_trailers(status: status_pb2.Status, trailers: tuple[tuple[str, str], ...]) -> Any:
    rich = rpc_status.to_status(status)
    return _Status(rich.code, rich.details, (*rich.trailing_metadata, *trailers))


@dataclass(frozen=True)
class _Status(grpc.Status):
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]
