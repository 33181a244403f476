"""What callers that leave and requests that fail leave behind: nothing, and no trace in anybody else's call."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import grpc
import pytest
from benchmarks.mixed_requests import mixed_requests, run_calls, run_cancelled_calls

from dragoman.v1 import BatchItem, TranslateBatchRequest, TranslateTextRequest, translation_pb2
from dragoman_model import beams
from dragoman_model.batch import RunningBatch
from dragoman_model.checkpoint import LoadedModel
from dragoman_model.plan import BatchOutput, Plan
from dragoman_server.errors import EngineGoneError
from tests.integration.holdings import engine_of, held, until_nothing_is_held
from tests.integration.servers import SENTENCES, RunningServer, refusal, serving, until

METHODS = translation_pb2.DESCRIPTOR.services_by_name["TranslationService"].methods_by_name
# The test, gRPC's own loop and the watch over the engines; a call's tasks end a little after its caller has its answer.
NUM_IDLE_TASKS = 3


@pytest.mark.slow
async def test_after_500_random_cancellations_nothing_is_held(model: LoadedModel):
    async with serving(model, max_batch_size=32, max_queue_size=256) as server:
        make = mixed_requests(SENTENCES, 11)
        await run_calls(server.stub, make, 20, num_callers=4)
        await until_nothing_is_held(server)
        await until(lambda: len(asyncio.all_tasks()) == NUM_IDLE_TASKS)
        rng = random.Random(11)

        async def pause() -> None:
            waits_for_work = rng.random() < 0.5
            for _ in range(500):
                if not waits_for_work or held(server)["sentences"]:
                    break
                await asyncio.sleep(0)
            for _ in range(rng.choice((0, 1, 5, 30, 100))):
                await asyncio.sleep(0)

        num_cancelled = await run_cancelled_calls(server.stub, make, 800, num_callers=30, pause=pause)
        assert num_cancelled >= 500
        await until_nothing_is_held(server)
        await until(lambda: len(asyncio.all_tasks()) == NUM_IDLE_TASKS)
        ends = {
            reason: server.value("dragoman_sentences_total", model="en-de", finish_reason=reason)
            for reason in ("cancelled", "error")
        }
        assert ends["cancelled"] > 20  # not all of them left before their work began
        assert ends["error"] == 0
        await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))


@pytest.mark.slow
async def test_2000_mixed_requests_end_as_they_should_and_leave_nothing_behind(model: LoadedModel):
    # With many rows few steps are enough.
    async with serving(model, max_batch_size=256, max_queue_size=4096) as server:
        make = mixed_requests(["He sings!", "No.", "Where is it?"], 12)
        ends, wrong = await run_calls(server.stub, make, 2000, num_callers=100)
        assert not wrong
        assert ends.total() == 2000
        assert {end.split()[0] for end in ends} == set(METHODS)
        await until_nothing_is_held(server)
        assert server.value("dragoman_sentences_total", model="en-de", finish_reason="error") == 0


async def test_an_injected_fault_fails_its_request_alone(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    request = TranslateTextRequest(texts=SENTENCES, options={"min_decoding_length": 40})
    expected = await server.stub.TranslateText(request)
    advance = beams.RowSearch.advance

    def fail_at_the_tenth_token(search: Any, *args: Any) -> None:
        if search.sequence.options.min_length == 41 and search.num_steps == 10:
            raise ZeroDivisionError
        advance(search, *args)

    monkeypatch.setattr(beams.RowSearch, "advance", fail_at_the_tenth_token)
    poisoned = TranslateTextRequest(texts=SENTENCES, options={"min_decoding_length": 41})
    good, bad = server.stub.TranslateText(request), server.stub.TranslateText(poisoned)
    error = await refusal(bad)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert [text.text for text in (await good).translations] == [text.text for text in expected.translations]
    await until_nothing_is_held(server)


async def test_a_failed_step_fails_its_batch_and_the_server_goes_on(server: RunningServer):
    step = engine_of(server)._batch._step
    failed = False

    def fail_once(*args: Any) -> Any:
        nonlocal failed
        if not failed:
            failed = True
            raise RuntimeError
        return step(*args)

    engine_of(server)._batch._step = fail_once
    error = await refusal(server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES)))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert len((await server.stub.TranslateText(TranslateTextRequest(texts=SENTENCES))).translations) == 5
    await until_nothing_is_held(server)
    assert server.app.health.is_alive


async def test_a_stream_ends_with_the_engine_when_more_of_it_comes_and_so_does_a_new_one(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise RuntimeError

    def message(number: int) -> TranslateBatchRequest:
        return TranslateBatchRequest(items=[BatchItem(id=str(number), text="He sings!")])

    running = server.stub.TranslateBatch()
    await running.write(message(0))
    assert (await running.read()).results[0].translation.text
    monkeypatch.setattr(RunningBatch, "run", broken)
    monkeypatch.setattr(RunningBatch, "clear", broken)
    await running.write(message(1))
    assert (await running.read()).results[0].error.code == grpc.StatusCode.INTERNAL.value[0]
    await until(lambda: not server.app.health.is_alive)
    await running.write(message(2))
    assert (await refusal(running.read())).code() is grpc.StatusCode.UNAVAILABLE
    new = server.stub.TranslateBatch(iter([message(3)]))
    assert (await refusal(new.read())).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_that_ends_with_the_engine_leaves_no_text_that_was_inside_without_an_answer(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
):
    engine, goes_on, is_gone = engine_of(server), threading.Event(), asyncio.Event()
    run = engine._batch.run

    def wait_and_run(plan: Plan) -> BatchOutput:
        assert goes_on.wait(30)
        return run(plan)

    def refuse() -> None:
        is_gone.set()
        raise EngineGoneError("en-de")

    monkeypatch.setattr(engine._batch, "run", wait_and_run)
    stream = server.stub.TranslateBatch()
    await stream.write(TranslateBatchRequest(items=[BatchItem(id="inside", text="He sings!")]))
    await until(lambda: held(server)["rows"] == 1)
    # That it broke may be seen before its calls have ended.
    monkeypatch.setattr(engine, "check_running", refuse)
    await stream.write(TranslateBatchRequest(items=[BatchItem(id="later", text="He sings!")]))
    await asyncio.wait_for(is_gone.wait(), 10)
    goes_on.set()
    assert [result.id for result in (await stream.read()).results] == ["inside"]
    assert (await refusal(stream.read())).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_deadline_that_the_queue_leaves_no_time_for_is_refused(model: LoadedModel):
    async with serving(model, max_batch_size=1) as server:
        long = TranslateTextRequest(texts=["He sings!"], options={"min_decoding_length": 200})
        await server.stub.TranslateText(long)  # more than 50 steps
        waiting = [server.stub.TranslateText(long) for _ in range(120)]
        await until(lambda: server.value("dragoman_waiting_requests", model="en-de") > 110)
        error = await refusal(server.stub.TranslateText(long, timeout=2))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "at the measured speed" in error.details()
        assert server.value("dragoman_refused_total", reason="DEADLINE_UNREACHABLE") == 1
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await until_nothing_is_held(server)
