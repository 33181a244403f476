import json

import grpc
import pytest

from dragoman import v1
from dragoman_client import OverloadedError, Translator, UnavailableError, channel
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer

AT_ONCE = (("grpc-retry-pushback-ms", "1"),)
NEVER = (("grpc-retry-pushback-ms", "-1"),)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED]
)
def test_call_that_fails_twice_succeeds_at_the_third_attempt(
    server: ScriptedServer, code: grpc.StatusCode
) -> None:
    server.script.failures = [failure(code, "not now", trailers=AT_ONCE)] * 2

    with Translator(server.address) as translator:
        assert translator.translate("Hello").text == "<Hello>"

    assert len(server.script.requests) == 3
    assert len(set(server.script.request_ids)) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
    ],
)
def test_four_attempts_are_all(server: ScriptedServer, code: grpc.StatusCode, kind: type[Exception]) -> None:
    server.script.failures = [failure(code, "not now", trailers=AT_ONCE)] * 9

    with Translator(server.address) as translator, pytest.raises(kind):
        translator.translate("Hello")

    assert len(server.script.requests) == 4


def test_channel_of_bulk_translations_leaves_it_to_them_to_try_again(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.UNAVAILABLE, "not now", trailers=AT_ONCE)]
    request, metadata = v1.TranslateTextRequest(texts=["Hello"]), (("x-request-id", "a"),)

    with channel.open_bulk_channel(server.address, None) as bulk:
        stub = v1.TranslationServiceStub(bulk)
        with pytest.raises(grpc.RpcError, match="not now"):
            stub.TranslateText(request, metadata=metadata)

    assert len(server.script.requests) == 1


def test_other_failures_are_not_tried_again(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.INTERNAL, "oops")]

    with Translator(server.address) as translator, pytest.raises(Exception, match="oops"):
        translator.translate("Hello")

    assert len(server.script.requests) == 1


def test_server_that_forbids_a_retry_gets_none(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", trailers=NEVER)] * 2

    with Translator(server.address) as translator, pytest.raises(OverloadedError):
        translator.translate("Hello")

    assert len(server.script.requests) == 1


def test_server_in_lasting_trouble_is_spared_the_retries(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.UNAVAILABLE, "down", trailers=AT_ONCE)] * 99
    attempts = []

    with Translator(server.address) as translator:
        for _ in range(6):
            server.script.requests.clear()
            with pytest.raises(UnavailableError):
                translator.translate("Hello")
            attempts.append(len(server.script.requests))

    assert attempts[0] == 4
    assert attempts[-1] == 1


def test_stream_is_tried_again_until_its_first_piece(server: ScriptedServer) -> None:
    server.script.failures = [failure(grpc.StatusCode.UNAVAILABLE, "not now", trailers=AT_ONCE)] * 2

    with Translator(server.address) as translator, translator.stream("one two") as stream:
        assert list(stream) == ["<one", " two>"]

    assert len(server.script.stream_requests) == 3


def test_stream_that_has_begun_is_not_begun_again(server: ScriptedServer) -> None:
    server.script.stream = lambda request: iter(
        [v1.StreamTranslateTextResponse(delta=v1.TextDelta(text="one"))]
    )
    server.script.stream_failure = failure(grpc.StatusCode.UNAVAILABLE, "gone", trailers=AT_ONCE)

    with Translator(server.address) as translator, translator.stream("one two") as stream:
        assert next(stream) == "one"
        with pytest.raises(UnavailableError, match="gone"):
            next(stream)

    assert len(server.script.stream_requests) == 1


def test_retried_methods_are_those_that_grpc_can_begin_again() -> None:
    methods = v1.translation_pb2.DESCRIPTOR.services_by_name["TranslationService"].methods_by_name
    retried = {name["method"] for name in json.loads(channel.SERVICE_CONFIG)["methodConfig"][0]["name"]}

    unary = {name for name, method in methods.items() if not method.server_streaming}
    assert retried == unary | {"StreamTranslateText"}


def test_request_id_is_made_unless_given() -> None:
    made, made_id = channel.with_request_id([("authorization", "x")])
    given, given_id = channel.with_request_id([("x-request-id", "mine")])

    assert made == (("authorization", "x"), ("x-request-id", made_id))
    assert len(made_id) == 32
    assert (given, given_id) == ((("x-request-id", "mine"),), "mine")


@pytest.mark.parametrize("address", ["localhost:50051", "[::1]:1", "10.0.0.1:65535", "unix:/tmp/socket"])
def test_addresses_that_are_taken(address: str) -> None:
    assert channel.check_address(address) == address


@pytest.mark.parametrize(
    "address", ["", ":1", "http://host:1", "localhost", "localhost:", "host:http", "host:65536", "a\udc80:1"]
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|surrogates"):
        channel.check_address(address)


def test_proxy_is_not_asked_for_this_machine() -> None:
    assert ("grpc.enable_http_proxy", 0) in channel.channel_options("127.0.0.1:50051")
    assert ("grpc.enable_http_proxy", 0) not in channel.channel_options("example.com:50051")
