"""`translate_batch` of both clients, against a server that follows a script."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
from google.rpc import status_pb2

from dragoman import v1
from dragoman_client import (
    AsyncTranslator,
    DecodingOptions,
    FinishReason,
    InvalidRequestError,
    ServerError,
    Translator,
)
from dragoman_client.bulk import MAX_ITEMS_PER_MESSAGE, MAX_TEXT_BYTES, Bulk, MessageBuilder
from tests.client.bulk_runs import Run, sent
from tests.client.failures import failure
from tests.client.scripted_server import DIGEST, ScriptedServer


def test_results_come_in_the_order_of_the_texts_with_all_there_is_of_each(run: Run) -> None:
    texts = [f"text {number}" for number in range(1000)]

    results = run(iter(texts))

    assert [result.unwrap().text for result in results] == [f"<{text}>" for text in texts]
    assert [(result.index, result.source) for result in results] == list(enumerate(texts))
    first = results[0].unwrap()
    assert (first.score, first.model, first.model_digest) == (-1.5, "en-de", DIGEST)
    assert {result.precision for result in results} == {"float32"}


def test_results_may_come_as_they_finish(run: Run) -> None:
    texts = [f"text {number}" for number in range(300)]

    results = run(texts, ordered=False)

    assert sorted(result.index for result in results) == list(range(300))
    assert [result.index for result in results] != list(range(300))  # the server answers a message backwards
    assert all(result.unwrap().text == f"<{texts[result.index]}>" for result in results)


def test_nothing_in_gives_nothing_out_without_a_call(run: Run, server: ScriptedServer) -> None:
    assert run([]) == []
    assert server.script.batch_calls == []


def test_all_texts_travel_in_one_call_whose_first_message_says_how(run: Run, server: ScriptedServer) -> None:
    run(
        [f"text {number}" for number in range(200)],
        source_language="en",
        target_language="de",
        model="en-de",
        options=DecodingOptions(beam_size=2),
        target_prefix="Das",
        include_tokens=True,
        split="none",
    )

    [[first, *others]] = server.script.batch_calls
    assert (first.model, first.source_language_code, first.target_language_code) == ("en-de", "en", "de")
    assert first.options == v1.DecodingOptions(beam_size=2)
    assert first.split == v1.TextSplit.TEXT_SPLIT_NONE
    assert first.output.include_tokens
    assert others
    for message in others:
        assert message == v1.TranslateBatchRequest(items=message.items)
    for message in (first, *others):
        assert 1 <= len(message.items) <= MAX_ITEMS_PER_MESSAGE
        assert all(item.target_prefix == "Das" for item in message.items)


def test_each_text_may_have_a_prefix_of_its_own(run: Run, server: ScriptedServer) -> None:
    run(["a", "b"], target_prefix=iter(["x", "y"]))

    assert [(item.text, item.target_prefix) for item in server.script.batch_calls[0][0].items] in (
        [("a", "x"), ("b", "y")],
        [("a", "x")],  # then the other follows in a message of its own
    )
    with pytest.raises(ValueError, match="fewer target prefixes"):
        run(["a", "b"], target_prefix=["x"])


def test_text_that_is_refused_has_its_error_and_the_others_go_on(run: Run, server: ScriptedServer) -> None:
    status, _ = failure(
        grpc.StatusCode.INVALID_ARGUMENT,
        "300 tokens, at most 256",
        reason="INVALID_ARGUMENT",
        violations={"text": "300 tokens"},
    )
    server.script.item_failures["bad"] = status

    good, bad, surrogate, huge, last = run(["good", "bad", "\udc80", "x" * (MAX_TEXT_BYTES + 1), ""])

    assert good.unwrap().text == "<good>"
    assert isinstance(bad.error, InvalidRequestError)
    assert (bad.translation, bad.error.reason) == (None, "INVALID_ARGUMENT")
    assert str(bad.error) == "300 tokens, at most 256"
    assert bad.error.field_violations[0].field == "text"
    with pytest.raises(InvalidRequestError, match="300 tokens"):
        bad.unwrap()
    assert "lone surrogate" in str(surrogate.error)
    assert "at most 900,000" in str(huge.error)
    assert last.unwrap().finish_reason is FinishReason.BLANK
    assert sent(server) == [["good", "bad", ""]]


def test_status_of_a_text_without_a_message_is_named_by_its_code(run: Run, server: ScriptedServer) -> None:
    server.script.item_failures["bad"] = status_pb2.Status(code=13)

    [result] = run(["bad"])

    assert isinstance(result.error, ServerError)
    assert "INTERNAL" in str(result.error)


def test_texts_are_never_read_further_ahead_than_allowed(server: ScriptedServer) -> None:
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for number in range(500):
            taken += 1
            yield str(number)

    done = 0
    with Translator(server.address) as translator:
        for _ in translator.translate_batch(counted(), max_pending=10):
            done += 1
            assert taken <= done + 10
    assert done == 500


async def test_asynchronous_texts_are_never_read_further_ahead_than_allowed(server: ScriptedServer) -> None:
    taken = 0

    async def counted() -> AsyncIterator[str]:
        nonlocal taken
        for number in range(500):
            taken += 1
            yield str(number)

    done = 0
    async with AsyncTranslator(server.address) as translator:
        async for _ in translator.translate_batch(counted(), max_pending=10):
            done += 1
            assert taken <= done + 10
    assert done == 500


def test_texts_without_end_are_read_only_as_they_are_asked_for(server: ScriptedServer) -> None:
    counter = itertools.count()
    with Translator(server.address) as translator:
        results = translator.translate_batch((str(number) for number in counter), max_pending=8)
        assert [next(results).index for _ in range(20)] == list(range(20))
        results.close()

    assert next(counter) <= 29
    assert server.script.stream_ended.wait(10)


@pytest.mark.parametrize("field", ["text", "target_prefix"])
def test_message_is_one_that_every_server_reads_whatever_makes_it_long(field: str) -> None:
    builder = MessageBuilder(v1.TranslateBatchRequest())
    largest = 0
    for number in range(MAX_ITEMS_PER_MESSAGE):
        builder.add(v1.BatchItem(id=str(number), **{field: "🙂" * 15_000}))
        if builder.is_full:
            largest = max(largest, builder.take().ByteSize())

    assert 0 < largest < 1 << 20


def test_long_texts_wait_for_each_other(server: ScriptedServer) -> None:
    bulk = Bulk(ordered=True, max_pending=100)
    added = 0
    while bulk.has_room:
        bulk.add("x" * 300_000, "")
        added += 1

    assert added == 4


def test_a_slow_first_text_holds_no_answer_up_where_order_does_not_matter(server: ScriptedServer) -> None:
    second_is_read = threading.Event()

    def second_first(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        for item in reversed(request.items):
            if item.text == "first":
                assert second_is_read.wait(10)
            answer = v1.TranslateBatchResponse()
            answer.results.add(id=item.id, translation=v1.Translation(text=item.text))
            yield answer

    server.script.batch = second_first
    texts = iter(["first", "second"])
    with Translator(server.address) as translator:
        # Both are in one message, so that the server has a choice.
        results = translator.translate_batch(texts, ordered=False)
        server.script.batch = _in_one_message(2, second_first)
        assert next(results).source == "second"
        second_is_read.set()
        assert next(results).source == "first"


def _in_one_message(
    count: int, answer: Callable[[v1.TranslateBatchRequest], Iterator[v1.TranslateBatchResponse]]
) -> Callable[[v1.TranslateBatchRequest], Iterator[v1.TranslateBatchResponse]]:
    """Answers when so many texts are there, as if they had come together."""
    together = v1.TranslateBatchRequest()

    def collect(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        together.items.extend(request.items)
        if len(together.items) == count:
            yield from answer(together)

    return collect


async def test_text_that_is_waited_for_holds_no_answer_up(server: ScriptedServer) -> None:
    typed: asyncio.Queue[str] = asyncio.Queue()

    async def keyboard() -> AsyncIterator[str]:
        while (text := await typed.get()) != "end":
            yield text

    async with AsyncTranslator(server.address) as translator:
        results = translator.translate_batch(keyboard())
        for text in ("first", "second"):
            typed.put_nowait(text)
            assert (await anext(results)).unwrap().text == f"<{text}>"
        typed.put_nowait("end")
        assert [result async for result in results] == []


def test_failing_input_is_told_after_the_results_of_what_came_before(server: ScriptedServer) -> None:
    def broken() -> Iterator[str]:
        yield "a"
        yield "b"
        raise LookupError("the rest is lost")

    with Translator(server.address) as translator:
        results = translator.translate_batch(broken())
        assert [next(results).source, next(results).source] == ["a", "b"]
        with pytest.raises(LookupError, match="the rest"):
            next(results)


async def test_failing_asynchronous_input_is_told_after_the_results_of_what_came_before(
    server: ScriptedServer,
) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "a"
        raise LookupError("the rest is lost")

    async with AsyncTranslator(server.address) as translator:
        results = translator.translate_batch(broken())
        assert (await anext(results)).source == "a"
        with pytest.raises(LookupError, match="the rest"):
            await anext(results)


async def test_closed_generator_leaves_no_task_behind(server: ScriptedServer) -> None:
    async with AsyncTranslator(server.address) as translator:
        results = translator.translate_batch(str(number) for number in itertools.count())
        await anext(results)
        await results.aclose()
        assert await asyncio.to_thread(server.script.stream_ended.wait, 10)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_caller_cancels_the_call(server: ScriptedServer) -> None:
    released, arrived = threading.Event(), threading.Event()

    def silent(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        arrived.set()
        released.wait(10)
        return iter(())

    server.script.batch = silent
    async with AsyncTranslator(server.address) as translator:

        async def translate() -> None:
            async for _ in translator.translate_batch(["a"]):
                pass

        task = asyncio.create_task(translate())
        await asyncio.to_thread(arrived.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.script.stream_ended.wait, 10)
    released.set()


def test_misuse_is_refused_before_anything_is_sent(server: ScriptedServer) -> None:
    with Translator(server.address) as translator:
        with pytest.raises(TypeError, match="one str"):
            translator.translate_batch("Hello")
        with pytest.raises(ValueError, match="max_pending is 0"):
            translator.translate_batch(["a"], max_pending=0)
        with pytest.raises(ValueError, match="max_outage_seconds is nan"):
            translator.translate_batch(["a"], max_outage_seconds=float("nan"))
        with pytest.raises(ValueError, match="timeout"):
            translator.translate_batch(["a"], timeout=-1)
        with pytest.raises(TypeError, match="is of type bytes"):
            list(translator.translate_batch([b"Hello"]))  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="closed"):
        translator.translate_batch(["a"])
