"""What the engine says of a call while it runs, and how it makes bulk calls wait; every wait is for an event."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dragoman_server.errors import DrainingError, EngineGoneError, InternalError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.request import Call
from dragoman_server.sentences import SentenceProgress
from tests.server.fakes import FakeBatch, Start, next_plan
from tests.server.scheduler_stage import decode


def streamed(*lengths: int) -> Call:
    return Call(work=tuple(map(decode, lengths)), arrived=100.0, reports_progress=True)


def bulk(length: int) -> Call:
    return Call(work=(decode(length, max_length=10_000),), arrived=100.0, stream=7)


async def test_what_is_sure_is_said_step_by_step_and_the_whole_before_the_result(start: Start):
    engine = start()
    heard: list[SentenceProgress] = []
    call = streamed(4, 2)
    results = await engine.submit(call, heard.append)
    assert len(results) == 2
    for index, work in enumerate(call.work):
        (*running, last) = [progress for progress in heard if progress.index == index]
        assert [progress.token_ids for progress in running] == [
            work.source_ids[:length] for length in range(1, len(work.source_ids))
        ]
        assert not any(progress.is_complete for progress in running)
        assert last.is_complete
        assert last.token_ids == work.source_ids


async def test_nothing_is_computed_or_said_of_calls_that_nobody_streams(
    start: Start,
    batch: FakeBatch,
):
    engine = start()
    heard: list[SentenceProgress] = []
    await engine.submit(Call(work=(decode(4),), arrived=100.0), heard.append)
    assert heard == []
    assert not any(sequence.report_progress for sequence in (await next_plan(batch)).admit)


async def test_a_listener_that_left_hears_no_more(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start()
    heard: list[SentenceProgress] = []
    task = asyncio.create_task(engine.submit(streamed(9), heard.append))
    await next_plan(batch)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    batch.gate.release(100)
    await engine.submit(Call(work=(decode(2),), arrived=100.0))
    assert heard == []


async def test_bulk_calls_wait_for_room_in_their_order(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=1, max_queue_size=1))
    queued: list[int] = []

    async def run(name: int) -> None:
        results = await engine.submit_bulk(bulk(2))
        queued.append(name)
        await results

    tasks = [asyncio.create_task(run(name)) for name in range(6)]
    await next_plan(batch)
    assert len(queued) <= 2
    batch.gate.release(100)
    await asyncio.gather(*tasks)
    assert queued == list(range(6))


async def test_a_bulk_call_that_no_longer_waits_lets_the_next_one_wait(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=1, max_queue_size=1))
    running = await engine.submit_bulk(bulk(2))
    await next_plan(batch)
    waiting = await engine.submit_bulk(bulk(2))
    impatient = asyncio.create_task(engine.submit_bulk(bulk(2)))
    patient = asyncio.create_task(engine.submit_bulk(bulk(2)))
    await asyncio.sleep(0)
    impatient.cancel()
    batch.gate.release(100)
    for results in (running, waiting, await patient):
        assert len(await results) == 1
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_cancelled_call_makes_room(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=1, max_queue_size=1))
    running = await engine.submit_bulk(bulk(9))
    await next_plan(batch)
    waiting = await engine.submit_bulk(bulk(9))
    next_one = asyncio.create_task(engine.submit_bulk(bulk(2)))
    await asyncio.sleep(0)
    assert not next_one.done()
    waiting.cancel()
    results = await asyncio.wait_for(next_one, 10)  # while no step ends
    running.cancel()
    batch.gate.release(100)
    assert len(await results) == 1


@pytest.mark.parametrize("stops", [True, False])
async def test_who_waits_for_room_learns_that_there_is_none_to_come(
    start: Start,
    batch: FakeBatch,
    stops: bool,
):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=1, max_queue_size=1))
    results = [await engine.submit_bulk(bulk(5000))]
    await next_plan(batch)
    results.append(await engine.submit_bulk(bulk(5000)))
    waiting = asyncio.create_task(engine.submit_bulk(bulk(5000)))
    await asyncio.sleep(0)

    def broken() -> None:
        raise ZeroDivisionError

    if not stops:
        batch.failure = RuntimeError()
        batch.clear = broken  # type: ignore[method-assign]
    batch.gate.release(100_000)
    if stops:
        engine.stop(DrainingError())
    for future in results:
        with pytest.raises(DrainingError if stops else InternalError):
            await future
    with pytest.raises(DrainingError if stops else EngineGoneError):
        await waiting
