"""What becomes of a bulk translation when the server, the connection or an answer fails."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import v1
from dragoman_client import (
    AsyncTranslator,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    ServerError,
    Translator,
    UnavailableError,
)
from dragoman_client.bulk import Outage
from tests.client.bulk_runs import Run, run_asyncio, run_blocking, sent
from tests.client.failures import failure
from tests.client.scripted_server import ScriptedServer, serve


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_connection_that_is_lost_is_made_anew_and_nothing_is_lost_or_repeated(
    run: Run, server: ScriptedServer, code: grpc.StatusCode
) -> None:
    server.script.batch_failures = [(2, failure(code, "away", retry_seconds=0.001))] * 3
    texts = [f"text {number}" for number in range(1000)]

    results = run(texts, max_pending=100)

    assert [result.unwrap().text for result in results] == [f"<{text}>" for text in texts]
    assert len(server.script.batch_calls) == 4
    assert all(messages[0].model == "" for messages in server.script.batch_calls)
    by_call = dict(zip(server.script.request_ids, server.script.batch_calls, strict=True))
    for result in results:
        asked = [item.text for message in by_call[result.request_id] for item in message.items]
        assert result.source in asked  # of the call that answered


def test_every_call_of_a_bulk_translation_says_how_to_translate(run: Run, server: ScriptedServer) -> None:
    server.script.batch_failures = [(1, failure(grpc.StatusCode.UNAVAILABLE, "away", retry_seconds=0.001))]

    run([f"text {number}" for number in range(300)], model="en-de", max_pending=50)

    assert [messages[0].model for messages in server.script.batch_calls] == ["en-de", "en-de"]


def test_text_that_the_server_gives_back_undone_is_sent_again(run: Run, server: ScriptedServer) -> None:
    status, _ = failure(grpc.StatusCode.UNAVAILABLE, "draining", retry_seconds=0.001)

    def give_back_once(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        server.script.batch = None
        answer = v1.TranslateBatchResponse()
        for item in request.items:
            answer.results.add(id=item.id, error=status)
        yield answer

    server.script.batch = give_back_once

    results = run(["a", "b", "c"])

    assert [result.unwrap().text for result in results] == ["<a>", "<b>", "<c>"]


AWAY = failure(grpc.StatusCode.UNAVAILABLE, "away", reason="DRAINING", retry_seconds=0.01)


def test_server_that_stays_away_is_given_up_after_the_results_that_are_there(server: ScriptedServer) -> None:
    server.script.batch_failures = [(1, AWAY), *[(0, AWAY)] * 99]
    seen = []

    def read(translator: Translator) -> None:
        texts = map(str, range(200))
        seen.extend(result.index for result in translator.translate_batch(texts, max_outage_seconds=0.1))

    with Translator(server.address) as translator, pytest.raises(UnavailableError, match="away"):
        read(translator)

    assert seen == list(range(len(seen)))
    assert len(seen) == len(sent(server)[0])
    assert 1 < len(server.script.batch_calls) < 20


async def test_asynchronous_client_gives_up_in_the_same_way(server: ScriptedServer) -> None:
    server.script.batch_failures = [(1, AWAY), *[(0, AWAY)] * 99]
    seen = []

    async def read(translator: AsyncTranslator) -> None:
        texts = map(str, range(200))
        async for result in translator.translate_batch(texts, max_outage_seconds=0.1):
            seen.append(result.index)  # noqa: PERF401 - what came before the error counts

    async with AsyncTranslator(server.address) as translator:
        with pytest.raises(UnavailableError, match="away"):
            await read(translator)

    assert seen == list(range(len(seen)))
    assert len(seen) == len(sent(server)[0])
    assert 1 < len(server.script.batch_calls) < 20


@pytest.mark.parametrize("run_with", [run_blocking, run_asyncio])
def test_server_that_never_was_there_is_reported_soon(run_with: Run) -> None:
    with serve() as gone:
        pass

    with pytest.raises(UnavailableError, match="start one with `dragoman-server`"):
        run_with(gone, ["a"])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequestError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.INTERNAL, ServerError),
        (grpc.StatusCode.UNIMPLEMENTED, InvalidRequestError),
    ],
)
def test_what_fails_all_texts_is_raised_at_once(
    run: Run, server: ScriptedServer, code: grpc.StatusCode, kind: type[Exception]
) -> None:
    server.script.batch_failures = [(0, failure(code, "no", reason="X"))] * 9

    with pytest.raises(kind, match="no"):
        run([str(number) for number in range(2000)])
    assert len(server.script.batch_calls) == 1


def test_silent_server_is_given_up_when_the_timeout_has_passed(run: Run, server: ScriptedServer) -> None:
    released = threading.Event()

    def silent(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        released.wait(10)
        return iter(())

    server.script.batch = silent
    with pytest.raises(DeadlineExceededError, match=r"within 0\.1 seconds"):
        run(["a"], timeout=0.1)
    released.set()


@pytest.fixture
def hold_answer(server: ScriptedServer) -> Iterator[tuple[threading.Event, threading.Event]]:
    """What the server was asked, and what lets it answer."""
    asked, released = threading.Event(), threading.Event()

    def answer(request: v1.TranslateBatchRequest) -> Iterator[v1.TranslateBatchResponse]:
        asked.set()
        assert released.wait(10)
        (item,) = request.items
        translation = v1.Translation(text=f"<{item.text}>")
        yield v1.TranslateBatchResponse(results=[v1.BatchResult(id=item.id, translation=translation)])

    server.script.batch = answer
    yield asked, released
    released.set()


async def test_process_that_was_held_up_gives_the_server_its_time_once_more(
    server: ScriptedServer,
    hold_answer: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, released = hold_answer
    loop = asyncio.get_running_loop()
    real = loop.time
    async with AsyncTranslator(server.address, timeout=60) as translator:
        results = translator.translate_batch(["a"])
        result = asyncio.ensure_future(anext(results))
        await asyncio.to_thread(asked.wait, 10)
        monkeypatch.setattr(loop, "time", lambda: real() + 1000)  # as after Ctrl-Z and a long pause
        for _ in range(5):  # every timer that was running has gone off
            await asyncio.sleep(0)
        released.set()

        assert (await result).unwrap().text == "<a>"
        await results.aclose()


def test_blocking_process_that_was_held_up_gives_the_server_its_time_once_more(
    server: ScriptedServer,
    hold_answer: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, released = hold_answer
    readings = itertools.count(step=1000)

    def monotonic() -> float:
        reading = next(readings)
        if reading:  # of the clock after a wait in vain
            released.set()
        return float(reading)

    clock = SimpleNamespace(monotonic=monotonic, sleep=time.sleep)
    monkeypatch.setattr("dragoman_client.bulk_blocking.time", clock)
    assert [result.unwrap().text for result in run_blocking(server, ["a"], timeout=0.05)] == ["<a>"]
    assert next(readings) > 1000


async def test_waiting_for_the_input_counts_as_no_timeout(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        yield "a"
        await answered.wait()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + 1000)  # every timer that runs now is due
        for _ in range(3):
            await asyncio.sleep(0)
        yield "b"

    results = []
    async with AsyncTranslator(server.address, timeout=60) as translator:
        async for result in translator.translate_batch(slow()):
            results.append(result)
            answered.set()

    assert [result.unwrap().text for result in results] == ["<a>", "<b>"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (v1.BatchResult(id="7", translation=v1.Translation()), "'7'"),
        (v1.BatchResult(id="x", translation=v1.Translation()), "'x'"),
        (v1.BatchResult(id="0"), "'0'"),
    ],
)
def test_answer_to_nothing_that_was_asked_is_the_servers_fault(
    run: Run, server: ScriptedServer, answer: v1.BatchResult, message: str
) -> None:
    server.script.batch = lambda request: iter([v1.TranslateBatchResponse(results=[answer])])

    with pytest.raises(ServerError, match=message):
        run(["a"])


def test_call_that_ends_before_all_is_answered_is_the_servers_fault(run: Run, server: ScriptedServer) -> None:
    server.script.batch = lambda request: iter(())

    with pytest.raises(ServerError, match="before every text was answered"):
        run(["a"])


def test_call_that_fails_when_all_is_answered_has_not_failed(run: Run, server: ScriptedServer) -> None:
    server.script.batch_failures = [(1, failure(grpc.StatusCode.INTERNAL, "oops", reason="X"))]

    assert [result.unwrap().text for result in run(["a"])] == ["<a>"]


async def test_connection_that_is_lost_while_nothing_is_asked_is_made_anew_when_something_is(
    server: ScriptedServer,
) -> None:
    server.script.batch_failures = [(1, failure(grpc.StatusCode.INTERNAL, "oops", reason="X"))] * 2
    typed: asyncio.Queue[str | None] = asyncio.Queue()

    async def keyboard() -> AsyncIterator[str]:
        while (text := await typed.get()) is not None:
            yield text

    async with AsyncTranslator(server.address) as translator:
        results = translator.translate_batch(keyboard(), max_outage_seconds=0)
        for text in ("a", "b", "c"):
            server.script.stream_ended.clear()
            typed.put_nowait(text)
            assert (await anext(results)).unwrap().text == f"<{text}>"
            if text != "c":
                assert await asyncio.to_thread(server.script.stream_ended.wait, 10)
                await asyncio.to_thread(wait_for_threads)
        typed.put_nowait(None)
        assert [result async for result in results] == []


def wait_for_threads() -> None:
    """Returns when the client has heard that its call is over."""
    for thread in threading.enumerate():
        if thread.name == "dragoman-batch":
            thread.join(10)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    texts=st.lists(st.text(max_size=5), max_size=60),
    breaks=st.lists(st.integers(0, 4), max_size=4),
    max_pending=st.integers(1, 20),
    ordered=st.booleans(),
)
def test_whatever_breaks_each_text_has_one_result(
    server: ScriptedServer, texts: list[str], breaks: list[int], max_pending: int, ordered: bool
) -> None:
    away = failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "away", retry_seconds=0.0001)
    server.script.batch_failures = [(after, away) for after in breaks]

    for run_with in (run_blocking, run_asyncio):
        results = run_with(server, texts, max_pending=max_pending, ordered=ordered)
        if not ordered:
            results.sort(key=lambda result: result.index)
        assert [(result.index, result.source) for result in results] == list(enumerate(texts))
        for result in results:
            surrogate = any("\ud800" <= character <= "\udfff" for character in result.source)
            assert (result.error is not None) == surrogate


def test_outage_is_waited_for_longer_and_longer_and_ends_with_an_answer() -> None:
    outage = Outage(10)
    outage.answer()
    away = UnavailableError("away")
    now, delays = 0.0, []
    for _ in range(8):
        delays.append(outage.delay(away, now))
        now += delays[-1]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2])
    with pytest.raises(UnavailableError):
        outage.delay(away, now)

    outage.answer()
    assert outage.delay(away, 100) == 0.1
    assert outage.delay(OverloadedError("full", retry_after_seconds=5), 100) == 5
    with pytest.raises(ServerError):
        outage.delay(ServerError("no"), 100)


def test_call_that_a_stopping_server_cut_off_is_made_again() -> None:
    outage = Outage(10)
    outage.answer()
    assert outage.delay(ServerError("cut off", code=grpc.StatusCode.CANCELLED), 0) == 0.1
    with pytest.raises(ServerError):
        outage.delay(ServerError("no", code=grpc.StatusCode.CANCELLED, reason="CANCELLED"), 0)


def test_server_that_never_answered_is_waited_for_only_where_it_says_that_it_is_busy() -> None:
    with pytest.raises(UnavailableError):
        Outage(30).delay(UnavailableError("x", retry_after_seconds=2), 0)

    assert Outage(30).delay(OverloadedError("x", retry_after_seconds=2), 0) == 2
