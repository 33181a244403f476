"""Everything that ``dragoman_client`` raises for a call that failed.

::

    DragomanError
    ├── InvalidRequestError      the request must change before it can work
    ├── NotFoundError            no such model, or none for the language pair
    ├── OverloadedError          the server has no room now; try again later
    ├── UnavailableError         no server answers, or none that can work now
    ├── DeadlineExceededError    the timeout passed first
    └── ServerError              the server failed, or sent what cannot be read

A misuse of the client itself (a closed translator, an address without a port) is a plain ``RuntimeError`` or
``ValueError``.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from dragoman_client.core import Call


@dataclass(frozen=True)
class FieldViolation:
    """One thing that is wrong with a request.

    Attributes:
        field: Path of the field in the wire contract, such as ``texts[3]`` or ``options.beam_size``.
        description: What is wrong with it and what is allowed.
    """

    field: str
    description: str


class DragomanError(Exception):
    """A call to the server failed. Root of the tree.

    Attributes:
        message: What happened and what to do about it; also the text of the exception.
        code: gRPC's status code.
        reason: The server's machine-readable reason, such as ``QUEUE_FULL``; None where it gave none.
        field_violations: What is wrong with the request; empty where that is not the trouble.
        retry_after_seconds: How long to wait before a retry; None where the server does not say.
        request_id: What to look for in the server's log.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str | None = None,
        field_violations: tuple[FieldViolation, ...] = (),
        retry_after_seconds: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.field_violations = field_violations
        self.retry_after_seconds = retry_after_seconds
        self.request_id = request_id


class InvalidRequestError(DragomanError):
    """The server refuses the request as it is: a bad text, an unknown option, a missing permission."""


class NotFoundError(DragomanError):
    """The server has no such model, or none for the language pair; the message lists those it has."""


class OverloadedError(DragomanError):
    """The server has no room for the request now; ``retry_after_seconds`` says when to try again."""


class UnavailableError(DragomanError):
    """No server answers at the address, or one that is shutting down or whose engine hangs or is gone."""


class DeadlineExceededError(DragomanError):
    """The timeout passed before the answer came."""


class ServerError(DragomanError):
    """The server failed, or what it sent does not follow the wire contract."""


ERROR_OF_CODE: dict[grpc.StatusCode, type[DragomanError]] = {
    grpc.StatusCode.CANCELLED: ServerError,
    grpc.StatusCode.UNKNOWN: ServerError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: ServerError,
    grpc.StatusCode.PERMISSION_DENIED: InvalidRequestError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequestError,
    grpc.StatusCode.ABORTED: ServerError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequestError,
    grpc.StatusCode.INTERNAL: ServerError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DATA_LOSS: ServerError,
    grpc.StatusCode.UNAUTHENTICATED: InvalidRequestError,
}
"""Every status code but OK, and what it is raised as."""


class _Details(NamedTuple):
    """What the server attached to a status."""

    reason: str | None = None
    field_violations: tuple[FieldViolation, ...] = ()
    retry_after_seconds: float | None = None


def error_from_call(
    call: Any, *, address: str, timeout: float | None, request_id: str | None, text_offset: int = 0
) -> DragomanError:
    """Returns the error that a failed call is raised as.

    Args:
        call: gRPC's error, of the blocking or of the asyncio API: both have ``code``, ``details`` and
            ``trailing_metadata``.
        address: Where the server was looked for.
        timeout: Deadline of the call in seconds; None where it had none.
        request_id: Sent with the call; taken where the server does not send one back.
        text_offset: Where the call's first text stands among the texts that the caller gave.
    """
    code: grpc.StatusCode = call.code() or grpc.StatusCode.UNKNOWN
    trailers = dict(tuple(call.trailing_metadata() or ()))  # asyncio's has keys() of its own kind
    details = _read_details(trailers.get("grpc-status-details-bin"))
    text = call.details() or ""
    return _make_error(
        code,
        text,
        details,
        message=_message(code, text, details, address, timeout),
        request_id=_as_text(trailers.get("x-request-id")) or request_id,
        text_offset=text_offset,
    )


def error_from_status(status: status_pb2.Status, *, request_id: str | None) -> DragomanError:
    """Returns the error of one text of a bulk call that goes on.

    Args:
        status: What the server sent in the translation's place.
        request_id: Sent with the call.
    """
    code = _CODE_OF_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    message = status.message or f"the server answered {code.name} without saying why"
    return _make_error(
        code, status.message, _unpack_details(status), message=message, request_id=request_id, text_offset=0
    )


def too_late_error(call: "Call") -> DeadlineExceededError:
    """Returns the error of a call that the client itself gives up, since nothing came for so long."""
    code = grpc.StatusCode.DEADLINE_EXCEEDED
    message = _message(code, "", _Details(), call.address, call.timeout)
    return DeadlineExceededError(message, code=code, request_id=call.request_id)


_CODE_OF_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def _make_error(
    code: grpc.StatusCode,
    text: str,
    details: _Details,
    *,
    message: str,
    request_id: str | None,
    text_offset: int,
) -> DragomanError:
    kind = ERROR_OF_CODE.get(code, ServerError)
    return (InvalidRequestError if _is_too_large(code, text, details) else kind)(
        _shift_text_indices(message, text_offset),
        code=code,
        reason=details.reason,
        field_violations=tuple(
            replace(
                violation,
                field=_shift_text_indices(violation.field, text_offset),
                description=_shift_text_indices(violation.description, text_offset),
            )
            for violation in details.field_violations
        ),
        retry_after_seconds=details.retry_after_seconds,
        request_id=request_id,
    )


def _read_details(serialized: Any) -> _Details:
    """Reads ``google.rpc.Status``; a proxy's broken one counts as none."""
    if not isinstance(serialized, bytes):
        return _Details()
    try:
        return _unpack_details(status_pb2.Status.FromString(serialized))
    except DecodeError:
        return _Details()


def _unpack_details(status: status_pb2.Status) -> _Details:
    packed = status.details
    info = next(_unpack(packed, error_details_pb2.ErrorInfo), None)
    retry = next(_unpack(packed, error_details_pb2.RetryInfo), None)
    return _Details(
        reason=info.reason if info else None,
        field_violations=tuple(
            FieldViolation(violation.field, violation.description)
            for bad_request in _unpack(packed, error_details_pb2.BadRequest)
            for violation in bad_request.field_violations
        ),
        retry_after_seconds=retry.retry_delay.ToTimedelta().total_seconds() if retry else None,
    )


def _unpack(packed: Iterable[Any], kind: Any) -> Iterator[Any]:
    """Yields the details of one kind."""
    for detail in packed:
        if detail.Is(kind.DESCRIPTOR):
            message = kind()
            if detail.Unpack(message):
                yield message


def _message(code: grpc.StatusCode, text: str, details: _Details, address: str, timeout: float | None) -> str:
    """Returns the server's own sentence, or one of ours where it was gRPC that failed the call."""
    if details.reason is None and code is grpc.StatusCode.UNAVAILABLE:
        if "DNS" in text or "name resolution" in text.lower():
            return f"the name in {address} cannot be resolved; check the address"
        if "handshake" in text.lower():
            return f"no TLS with the server at {address}: it speaks none, or shows a certificate that is not trusted"
        if "parsing HTTP/2" in text:
            return (
                f"what answers at {address} speaks no gRPC; give the server's gRPC address, not its HTTP one"
            )
        if text.startswith(("failed to connect", "connections to all backends")):
            return f"no server answers at {address}; start one with `dragoman-server`"
        return f"the server at {address} is unavailable: {text or 'the connection was lost'}"
    if details.reason is None and code is grpc.StatusCode.DEADLINE_EXCEEDED:
        waited = "in time" if timeout is None else f"within {timeout:g} seconds"
        return f"the server at {address} did not answer {waited}; allow more time or send less text"
    if _is_too_large(code, text, details):
        return f"the request or its answer is too large for one call; send less text ({text})"
    if details.reason is None and code is grpc.StatusCode.UNIMPLEMENTED and not details.field_violations:
        return f"the server at {address} does not offer this: {text or 'unknown method'}"
    return text or f"the server at {address} answered {code.name} without saying why"


def _is_too_large(code: grpc.StatusCode, text: str, details: _Details) -> bool:
    """Says whether gRPC refused a message for its size: the code is that of a busy server, but no wait will help."""
    return code is grpc.StatusCode.RESOURCE_EXHAUSTED and details.reason is None and "larger than max" in text


def _shift_text_indices(text: str, offset: int) -> str:
    """Counts ``texts[i]`` and their like from the caller's first text: a long list goes out in several calls."""
    if not offset:
        return text
    return re.sub(
        r"\b(texts|target_prefixes|items)\[(\d+)\]",
        lambda match: f"{match[1]}[{int(match[2]) + offset}]",
        text,
    )


def _as_text(value: str | bytes | None) -> str | None:
    """Returns a metadata value as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
