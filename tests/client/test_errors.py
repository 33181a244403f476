import grpc
import pytest

from dragoman_client import (
    DeadlineExceededError,
    DragomanError,
    FieldViolation,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    ServerError,
    Translator,
    UnavailableError,
    errors,
)
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer

NOT_RETRIED = (("grpc-retry-pushback-ms", "-1"),)


def test_every_status_code_but_ok_has_an_error() -> None:
    assert set(errors.ERROR_OF_CODE) == set(grpc.StatusCode) - {grpc.StatusCode.OK}


def test_every_error_of_the_tree_is_raised_for_some_status_code() -> None:
    assert set(DragomanError.__subclasses__()) == set(errors.ERROR_OF_CODE.values())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequestError),
        (grpc.StatusCode.UNIMPLEMENTED, InvalidRequestError),
        (grpc.StatusCode.UNAUTHENTICATED, InvalidRequestError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError),
        (grpc.StatusCode.INTERNAL, ServerError),
        (grpc.StatusCode.UNKNOWN, ServerError),
    ],
)
def test_status_becomes_the_error_with_the_servers_own_words(
    server: ScriptedServer, code: grpc.StatusCode, kind: type[DragomanError]
) -> None:
    server.script.failures = [failure(code, "what the server says", reason="WHY", trailers=NOT_RETRIED)]

    with Translator(server.address) as translator, pytest.raises(kind) as caught:
        translator.translate("Hello")

    assert type(caught.value) is kind
    assert str(caught.value) == caught.value.message == "what the server says"
    assert caught.value.code is code
    assert caught.value.reason == "WHY"


def test_error_carries_violations_wait_and_request_id(server: ScriptedServer) -> None:
    server.script.failures = [
        failure(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "no room",
            reason="QUEUE_FULL",
            violations={"texts[1]": "too long", "options.beam_size": "only 1"},
            retry_seconds=1.25,
            trailers=(*NOT_RETRIED, ("x-request-id", "from-the-server")),
        )
    ]

    with Translator(server.address) as translator, pytest.raises(OverloadedError) as caught:
        translator.translate("Hello")

    assert caught.value.field_violations == (
        FieldViolation("texts[1]", "too long"),
        FieldViolation("options.beam_size", "only 1"),
    )
    assert caught.value.retry_after_seconds == 1.25
    assert caught.value.request_id == "from-the-server"


def test_error_knows_the_request_id_that_was_sent_when_none_comes_back(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.INTERNAL, "oops")]

    with Translator(server.address) as translator, pytest.raises(ServerError) as caught:
        translator.translate("Hello")

    assert caught.value.request_id == server.script.request_ids[0]


class _Call(grpc.RpcError):
    """An error of gRPC's own making."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailers: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        self._answers = code, details, trailers

    def code(self) -> grpc.StatusCode:
        return self._answers[0]

    def details(self) -> str:
        return self._answers[1]

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return self._answers[2]


@pytest.mark.parametrize(
    ("code", "details", "message"),
    [
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNKNOWN: connection refused",
            "no server answers at host:1; start one with `dragoman-server`",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNAVAILABLE: Ssl handshake failed",
            "no TLS with the server at host:1: it speaks none, or shows a certificate that is not trusted",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:1.2.3.4:1: Failed parsing HTTP/2",
            "what answers at host:1 speaks no gRPC; give the server's gRPC address, not its HTTP one",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "DNS resolution failed for host:1",
            "the name in host:1 cannot be resolved; check the address",
        ),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", "the server at host:1 is unavailable: Socket closed"),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "Deadline Exceeded",
            "the server at host:1 did not answer within 2.5 seconds; allow more time or send less text",
        ),
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "Method not found!",
            "the server at host:1 does not offer this: Method not found!",
        ),
        (grpc.StatusCode.INTERNAL, "", "the server at host:1 answered INTERNAL without saying why"),
    ],
)
def test_failure_of_the_connection_is_said_in_words(
    code: grpc.StatusCode, details: str, message: str
) -> None:
    error = errors.error_from_call(_Call(code, details), address="host:1", timeout=2.5, request_id="id")

    assert str(error) == message


@pytest.mark.parametrize("details", ["SERVER: Received message larger than max (30 vs. 20)",
                                     "CLIENT: Sent message larger than max (30 vs. 20)"])  # fmt: skip
def test_message_too_large_for_grpc_is_the_requests_fault_and_not_a_busy_servers(details: str) -> None:
    call = _Call(grpc.StatusCode.RESOURCE_EXHAUSTED, details)

    error = errors.error_from_call(call, address="host:1", timeout=None, request_id=None)

    assert isinstance(error, errors.InvalidRequestError)
    assert "send less text" in str(error)
    assert details in str(error)


def test_details_that_are_no_message_are_passed_over() -> None:
    call = _Call(grpc.StatusCode.INTERNAL, "broken", (("grpc-status-details-bin", b"\xff\xff\xff"),))

    error = errors.error_from_call(call, address="host:1", timeout=None, request_id=None)

    assert (str(error), error.reason, error.field_violations) == ("broken", None, ())


def test_text_indices_count_from_the_callers_first_text() -> None:
    call = _Call(grpc.StatusCode.INVALID_ARGUMENT, "texts[5]: too long; mytexts[5] stays")

    error = errors.error_from_call(call, address="host:1", timeout=None, request_id=None, text_offset=256)

    assert str(error) == "texts[261]: too long; mytexts[5] stays"
