"""What goes wrong in the server, said without status codes (``interceptors`` gives each its own).

ServerError
├── CallError                  ends one call
│   ├── RequestError           the caller's to mend
│   │   ├── InvalidArgumentError
│   │   ├── UnsupportedError   asks for what this server can't do
│   │   └── NotFoundError      names a model or a language pair that isn't served
│   ├── OverloadError          worth another try, here or elsewhere
│   │   ├── QueueFullError
│   │   ├── DeadlineUnreachableError   the queue is too long for the caller's deadline
│   │   ├── EngineHungError    the model's engine stands still
│   │   ├── EngineGoneError    it broke, or its process ended
│   │   └── DrainingError
│   ├── DeadlineError          the caller's deadline passed
│   ├── CancelledError         the caller went away
│   └── InternalError          our fault
└── StartError                 the server doesn't start
    ├── ConfigError            a bad flag or configuration file
    ├── ModelError             a model that can't be loaded
    └── AddressError           an address that can't be listened on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class ServerError(Exception):
    """Root of the server's errors."""


class CallError(ServerError):
    """Ends one call; the message is for its caller."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from process to process as what they are; the default would call the class with its message.
        return _error, (type(self), self.args, vars(self))


def _error(kind: type[CallError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> CallError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(attributes)
    return error


@dataclass(frozen=True)
class FieldViolation:
    """What is wrong with one field of a request.

    Attributes:
        field: Path of the field, such as ``options.beam_size`` or ``texts[3]``.
        description: What was seen, what is allowed.
    """

    field: str
    description: str


# Violations travel in the trailing metadata, of which gRPC lets 8 KiB through.
MAX_VIOLATIONS = 16


class RequestError(CallError):
    """A request that can't be served as it is; trying again doesn't help.

    Args:
        message: One sentence for the caller; made from the violations where it is empty.
        violations: The fields at fault; those above ``MAX_VIOLATIONS`` are only counted.
    """

    def __init__(self, message: str = "", violations: Sequence[FieldViolation] = ()) -> None:
        self.violations = tuple(violations[:MAX_VIOLATIONS])
        super().__init__(message or _sentence(violations))


def _sentence(violations: Sequence[FieldViolation]) -> str:
    first = "; ".join(f"{violation.field}: {violation.description}" for violation in violations[:3])
    return f"{first}; and {len(violations) - 3} more" if len(violations) > 3 else first


class InvalidArgumentError(RequestError):
    """A value that no server would take."""


class UnsupportedError(RequestError):
    """A sound request for something that this server can't do."""


class NotFoundError(RequestError):
    """A model or language pair that isn't served; the message says what is."""


class OverloadError(CallError):
    """The server can't take this call now."""


class QueueFullError(OverloadError):
    """There is no room for the whole call.

    Args:
        message: What is full.
        retry_seconds: When another try makes sense, as far as measurements say; None where there are none.
    """

    def __init__(self, message: str, *, retry_seconds: float | None = None) -> None:
        self.retry_seconds = retry_seconds
        super().__init__(message)


class DeadlineUnreachableError(OverloadError):
    """The call would wait for its rows until after its deadline.

    Args:
        wait_seconds: How long it would, at the measured speed.
        seconds_left: How long it can.
    """

    def __init__(self, wait_seconds: float, seconds_left: float) -> None:
        super().__init__(
            f"the deadline can't be met: {max(0.0, seconds_left):.2f} s are left, and what waits before this call and its "
            f"own sentences take {wait_seconds:.2f} s at the measured speed; allow more time, or try again later"
        )


class EngineHungError(OverloadError):
    """The model's engine stands still, and nobody knows whether it goes on.

    Args:
        model: Its name.
        silence_seconds: How long it has not begun a step.
    """

    def __init__(self, model: str, silence_seconds: float) -> None:
        super().__init__(
            f"the engine of {model!r} hangs: it has not begun a step for {silence_seconds:.0f} s; "
            "try another server, or try again later"
        )


class EngineGoneError(OverloadError):
    """The model's engine broke or its process ended, and no call to it will be worked on until the server is started anew.

    For calls that come after that. Those that were inside end with `InternalError`: one of them may have done it, and would take
    the next server down, too.

    Args:
        model: Its name.
    """

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the engine of {model!r} is gone; try another server, or this one when it has been started anew"
        )


class DrainingError(OverloadError):
    """The server is shutting down."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")


class DeadlineError(CallError):
    """The call's deadline passed before its last sentence was done."""

    def __init__(self) -> None:
        super().__init__("the deadline passed before the translation was done")


class CancelledError(CallError):
    """The caller cancelled or went away."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


class InternalError(CallError):
    """A failure of ours; the log has more under the call's request id."""

    def __init__(self, message: str = "the server failed; its log says more under this request id") -> None:
        super().__init__(message)


class StartError(ServerError):
    """The server can't start; the message is one line for whoever started it."""


class ConfigError(StartError):
    """A bad flag or configuration file."""


class ModelError(StartError):
    """A model directory that can't be served."""


class AddressError(StartError):
    """An address that can't be listened on."""
