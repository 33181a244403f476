import asyncio
import threading
from collections.abc import Iterator

import grpc
import pytest

from dragoman import v1
from dragoman_client import (
    AsyncTranslator,
    DeadlineExceededError,
    DecodingOptions,
    InvalidRequestError,
    OverloadedError,
    ServerError,
    Translator,
)
from tests.client.failures import failure
from tests.client.scripted_server import DIGEST, ScriptedServer

Responses = Iterator[v1.StreamTranslateTextResponse]


def delta(text: str) -> v1.StreamTranslateTextResponse:
    return v1.StreamTranslateTextResponse(delta=v1.TextDelta(text=text))


def result(*texts: str) -> v1.StreamTranslateTextResponse:
    translations = [v1.Translation(text=text) for text in texts]
    return v1.StreamTranslateTextResponse(result=v1.TranslateTextResponse(translations=translations))


def test_pieces_come_in_order_and_then_the_whole_translation(server: ScriptedServer) -> None:
    with Translator(server.address) as translator, translator.stream("one two three") as stream:
        pieces = list(stream)

        assert pieces == ["<one", " two", " three>"]
        assert stream.result.text == "<one two three>"
        assert (stream.result.score, stream.result.model, stream.result.model_digest) == (
            -1.5,
            "en-de",
            DIGEST,
        )
        assert list(stream) == []


async def test_asynchronous_pieces_are_the_same(server: ScriptedServer) -> None:
    async with AsyncTranslator(server.address) as translator, translator.stream("one two three") as stream:
        pieces = [piece async for piece in stream]

        assert pieces == ["<one", " two", " three>"]
        assert stream.result.text == "<one two three>"
        assert [piece async for piece in stream] == []


def test_a_piece_can_be_read_before_the_next_is_there(server: ScriptedServer) -> None:
    read = threading.Event()

    def wait_for_reader(request: v1.StreamTranslateTextRequest) -> Responses:
        yield delta("a")
        assert read.wait(10)
        yield delta("b")
        yield result("ab")

    server.script.stream = wait_for_reader
    with Translator(server.address) as translator, translator.stream("x") as stream:
        assert next(stream) == "a"
        with pytest.raises(RuntimeError, match="not been read to its end"):
            stream.result  # noqa: B018 - reading it is what fails
        read.set()
        assert list(stream) == ["b"]


def test_arguments_travel(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        stream = translator.stream(
            "Hi",
            source_language="en",
            target_language="de",
            model="en-de",
            options=DecodingOptions(beam_size=2),
            target_prefix="Das",
            include_tokens=True,
            split="none",
        )
        list(stream)

    [request] = server.script.stream_requests
    assert (request.text, request.model, request.target_prefix) == ("Hi", "en-de", "Das")
    assert (request.source_language_code, request.target_language_code) == ("en", "de")
    assert request.options == v1.DecodingOptions(beam_size=2)
    assert request.split == v1.TextSplit.TEXT_SPLIT_NONE
    assert request.output.include_tokens
    assert len(stream.result.tokens) == 2


def hold(released: threading.Event) -> Responses:
    yield delta("a")
    released.wait(10)


@pytest.mark.parametrize("how", ["close", "with", "break"])
def test_stream_that_is_ended_early_cancels_the_call(server: ScriptedServer, how: str) -> None:
    released = threading.Event()
    server.script.stream = lambda request: hold(released)
    with Translator(server.address) as translator:
        stream = translator.stream("x")
        assert next(stream) == "a"
        if how == "close":
            stream.close()
            assert list(stream) == []
        elif how == "with":
            with stream:
                pass
        else:
            del stream
        assert server.script.stream_ended.wait(10)
    released.set()


async def test_asynchronous_stream_that_is_ended_early_cancels_the_call(server: ScriptedServer) -> None:
    released = threading.Event()
    server.script.stream = lambda request: hold(released)
    async with AsyncTranslator(server.address) as translator:
        async with translator.stream("x") as stream:
            assert await anext(stream) == "a"
        assert await asyncio.to_thread(server.script.stream_ended.wait, 10)
        assert [piece async for piece in stream] == []
    released.set()


async def test_stream_can_be_closed_while_another_task_reads_it(server: ScriptedServer) -> None:
    released = threading.Event()
    server.script.stream = lambda request: hold(released)
    async with AsyncTranslator(server.address) as translator:
        stream = translator.stream("x")
        assert await anext(stream) == "a"
        reading = asyncio.create_task(anext(stream, "ended"))
        await asyncio.sleep(0)
        await stream.close()
        assert await reading == "ended"
    released.set()


async def test_cancelled_reader_is_cancelled_and_so_is_the_call(server: ScriptedServer) -> None:
    released = threading.Event()
    server.script.stream = lambda request: hold(released)
    async with AsyncTranslator(server.address) as translator:
        stream = translator.stream("x")
        assert await anext(stream) == "a"
        reading = asyncio.create_task(anext(stream, "ended"))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await asyncio.to_thread(server.script.stream_ended.wait, 10)
    released.set()


def test_failure_comes_as_an_error_of_the_tree(server: ScriptedServer) -> None:
    never = (("grpc-retry-pushback-ms", "-1"),)
    server.script.failures = [
        failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", reason="QUEUE_FULL", trailers=never)
    ]
    with Translator(server.address) as translator:
        stream = translator.stream("x")
        with pytest.raises(OverloadedError, match="full"):
            next(stream)


def test_deadline_is_of_the_whole_stream(server: ScriptedServer) -> None:
    released = threading.Event()
    server.script.stream = lambda request: hold(released)
    with Translator(server.address, timeout=50) as translator:
        stream = translator.stream("x", timeout=0.2)
        with pytest.raises(DeadlineExceededError, match=r"within 0\.2 seconds"):
            list(stream)
    released.set()

    assert server.script.deadlines[0] < 0.3


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([delta("a")], "ended the stream before"),
        ([], "ended the stream before"),
        ([result()], "0 translations of one text"),
        ([result("a", "b")], "2 translations of one text"),
        ([result("a"), delta("b")], "something after"),
    ],
)
async def test_stream_that_breaks_the_contract_is_the_servers_fault(
    server: ScriptedServer, responses: list[v1.StreamTranslateTextResponse], message: str
) -> None:
    server.script.stream = lambda request: iter(responses)

    with Translator(server.address) as translator, pytest.raises(ServerError, match=message):
        list(translator.stream("x"))
    async with AsyncTranslator(server.address) as asynchronous:
        with pytest.raises(ServerError, match=message):
            [piece async for piece in asynchronous.stream("x")]


def test_text_that_cannot_be_sent_is_refused_at_once() -> None:
    with Translator() as translator, pytest.raises(InvalidRequestError, match="lone surrogate"):
        translator.stream("\udc80")
