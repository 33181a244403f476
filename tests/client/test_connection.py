"""A client beside its translations: its server, its timeout, its metadata, its end."""

import socket
import threading
import time

import pytest
from grpc_health.v1 import health_pb2

from dragoman_client import (
    DeadlineExceededError,
    LanguagePair,
    ServingStatus,
    Translator,
    UnavailableError,
)
from tests.client.scripted_server import ScriptedServer


def test_missing_server_is_an_error_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with Translator(address) as translator, pytest.raises(UnavailableError) as caught:
            translator.translate("Hello")

    assert time.monotonic() - started < 3
    assert str(caught.value) == f"no server answers at {address}; start one with `dragoman-server`"


def test_timeout_of_the_call_counts_and_reaches_the_server(server: ScriptedServer) -> None:
    released = threading.Event()

    with Translator(server.address, timeout=50) as translator:
        translator.translate("Hello")  # first, so that the connection stands
        server.script.before_translate = lambda request: released.wait(10) and None
        with pytest.raises(DeadlineExceededError, match=r"within 0\.2 seconds"):
            translator.translate("Hello", timeout=0.2)
        released.set()

    assert 40 < server.script.deadlines[0] < 55
    assert server.script.deadlines[1] < 0.3  # gRPC rounds up


def test_metadata_travels_with_every_call(server: ScriptedServer) -> None:
    with Translator(server.address, metadata=[("x-request-id", "mine")]) as translator:
        translator.translate("Hello")

    assert server.script.request_ids == ["mine"]


def test_closed_translator_says_so(server: ScriptedServer) -> None:
    translator = Translator(server.address)
    translator.close()

    with pytest.raises(RuntimeError, match="closed"):
        translator.translate("Hello")


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_impossible_timeout_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        Translator(timeout=timeout)
    with Translator() as translator, pytest.raises(ValueError, match="timeout"):
        translator.translate("Hello", timeout=timeout)


@pytest.mark.parametrize("timeout", [float("inf"), 1e30])
def test_timeout_beyond_what_grpc_counts_is_none(server: ScriptedServer, timeout: float) -> None:
    with Translator(server.address, timeout=timeout) as translator:
        assert translator.translate("Hello").text == "<Hello>"
        assert translator.translate("Hello", timeout=timeout).text == "<Hello>"


def test_models_are_listed_with_limits(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        models = translator.models()

    assert len(models) == 1
    assert models.models[0].name == "en-de"
    assert models.models[0].language_pairs == (LanguagePair("en", "de"),)
    assert models.models[0].parameter_count == 7_375_360
    assert models.limits.max_text_count == 256


def test_health_is_of_the_server_or_of_a_model(server: ScriptedServer) -> None:
    server.health.set("en-de", health_pb2.HealthCheckResponse.NOT_SERVING)

    with Translator(server.address) as translator:
        assert translator.health() is ServingStatus.SERVING
        assert translator.health("en-de") is ServingStatus.NOT_SERVING
        assert translator.health("xx-yy") is ServingStatus.SERVICE_UNKNOWN


def test_one_translator_serves_several_threads(server: ScriptedServer) -> None:
    results: list[str] = []
    with Translator(server.address) as translator:

        def translate(text: str) -> None:
            results.append(translator.translate(text).text)

        threads = [threading.Thread(target=translate, args=(f"{n}",)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(results) == sorted(f"<{n}>" for n in range(16))
