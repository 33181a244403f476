import asyncio
import socket
import threading

import grpc
import pytest

from dragoman import v1
from dragoman_client import (
    AsyncTranslator,
    DeadlineExceededError,
    InvalidRequestError,
    ServingStatus,
    UnavailableError,
)
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer


async def test_text_gives_a_translation_and_a_list_a_list(server: ScriptedServer) -> None:
    async with AsyncTranslator(server.address) as translator:
        one = await translator.translate("Hello")
        several = await translator.translate(["a", "b"])
        none = await translator.translate([])

    assert one.text == "<Hello>"
    assert [translation.text for translation in several] == ["<a>", "<b>"]
    assert none == []


async def test_calls_of_a_long_list_run_at_the_same_time_and_keep_their_order(server: ScriptedServer) -> None:
    both_are_there = threading.Barrier(2, timeout=10)
    server.script.before_translate = lambda request: both_are_there.wait() and None
    texts = [f"text {number}" for number in range(512)]

    async with AsyncTranslator(server.address) as translator:
        translations = await translator.translate(texts)

    assert [translation.text for translation in translations] == [f"<{text}>" for text in texts]
    assert len(server.script.requests) == 2


async def test_no_more_calls_run_at_a_time_than_asked_for(server: ScriptedServer) -> None:
    lock = threading.Lock()
    running = highest = 0

    def count(text: str) -> str:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        with lock:
            running -= 1
        return text

    server.script.translate = count

    async with AsyncTranslator(server.address, max_concurrent_calls=1) as translator:
        await translator.translate([str(number) for number in range(1024)])

    assert highest == 1
    assert len(server.script.requests) == 4


async def test_failure_of_one_call_fails_the_list_and_names_the_text(server: ScriptedServer) -> None:
    def refuse_second_call(request: v1.TranslateTextRequest) -> None:
        if request.texts[0] == "text 256":
            server.script.failures.append(
                failure(grpc.StatusCode.INVALID_ARGUMENT, "texts[1]: bad", reason="X")
            )

    server.script.before_translate = refuse_second_call

    async with AsyncTranslator(server.address, max_concurrent_calls=1) as translator:
        with pytest.raises(InvalidRequestError, match=r"texts\[257\]: bad"):
            await translator.translate([f"text {number}" for number in range(2000)])

    assert len(server.script.requests) <= 3  # those still to come were cancelled


async def test_server_that_takes_fewer_texts_gets_fewer(server: ScriptedServer) -> None:
    server.script.max_text_count = 10
    texts = [f"text {number}" for number in range(600)]

    async with AsyncTranslator(server.address) as translator:
        translations = await translator.translate(texts)
        scores = await translator.score([(text, "x") for text in texts[:30]])

    assert [translation.text for translation in translations] == [f"<{text}>" for text in texts]
    assert len(scores) == 30


async def test_missing_server_and_passed_deadline_are_the_same_errors(server: ScriptedServer) -> None:
    released = threading.Event()
    server.script.before_translate = lambda request: released.wait(10) and None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with AsyncTranslator(f"127.0.0.1:{taken.getsockname()[1]}") as nowhere:
            with pytest.raises(UnavailableError, match="start one with `dragoman-server`"):
                await nowhere.translate("Hello")
    async with AsyncTranslator(server.address) as translator:
        with pytest.raises(DeadlineExceededError):
            await translator.translate("Hello", timeout=0.05)
    released.set()


async def test_cancelled_caller_cancels_the_call(server: ScriptedServer) -> None:
    arrived, released = threading.Event(), threading.Event()

    def hold(request: v1.TranslateTextRequest) -> None:
        arrived.set()
        released.wait(10)

    server.script.before_translate = hold

    async with AsyncTranslator(server.address) as translator:
        task = asyncio.create_task(translator.translate("Hello"))
        await asyncio.to_thread(arrived.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    released.set()


async def test_attention_models_and_health_are_the_blocking_ones(server: ScriptedServer) -> None:
    async with AsyncTranslator(server.address) as translator:
        [attention] = await translator.attention("Hello there")
        models = await translator.models()

        assert attention.translation.text == "<Hello there>"
        assert [model.name for model in models.models] == ["en-de"]
        assert await translator.health() is ServingStatus.SERVING
        assert await translator.health("none") is ServingStatus.SERVICE_UNKNOWN


async def test_texts_that_can_be_read_only_once_are_all_translated(server: ScriptedServer) -> None:
    async with AsyncTranslator(server.address) as translator:
        translations = await translator.translate(text for text in ("a", "b"))  # type: ignore[call-overload]

    assert [translation.text for translation in translations] == ["<a>", "<b>"]


async def test_closed_translator_says_so(server: ScriptedServer) -> None:
    translator = AsyncTranslator(server.address)
    await translator.translate("Hello")
    await translator.close()

    with pytest.raises(RuntimeError, match="closed"):
        await translator.translate("Hello")


def test_no_calls_at_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="max_concurrent_calls"):
        AsyncTranslator(max_concurrent_calls=0)
