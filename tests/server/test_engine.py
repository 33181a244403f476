"""The engine's thread with a batch that needs no model; every wait is for an event."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from dragoman_server.engine import MAX_FAILED_STEPS
from dragoman_server.errors import (
    DeadlineError,
    DrainingError,
    EngineGoneError,
    InternalError,
    QueueFullError,
)
from dragoman_server.limits import SchedulerLimits
from dragoman_server.request import Call
from tests.integration.servers import until
from tests.server.fakes import FakeBatch, ManualClock, Start, next_plan
from tests.server.scheduler_stage import decode


def call(*lengths: int, deadline: float | None = None, request_id: str = "") -> Call:
    return Call(work=tuple(map(decode, lengths)), arrived=100.0, deadline=deadline, request_id=request_id)


async def test_callers_get_their_own_results(start: Start):
    engine = start()
    calls = [call(*range(1, 2 + i)) for i in range(20)]
    for sent, results in zip(calls, await asyncio.gather(*map(engine.submit, calls))):
        assert [result.best.token_ids for result in results] == [work.source_ids for work in sent.work]


async def test_sentences_of_two_callers_share_a_step(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start()
    first = asyncio.create_task(engine.submit(call(9)))
    assert len((await next_plan(batch)).admit) == 1
    second = asyncio.create_task(engine.submit(call(2)))
    await asyncio.sleep(0)  # lets it queue
    batch.gate.release()
    assert len((await next_plan(batch)).admit) == 1
    assert len(batch.rows) == 1
    batch.gate.release(100)
    await asyncio.gather(first, second)


async def test_a_cancelled_call_frees_its_rows_at_the_next_step(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start()
    task = asyncio.create_task(engine.submit(call(50, 50)))
    admitted = (await next_plan(batch)).admit
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    batch.gate.release()
    plan = await next_plan(batch)
    assert plan.remove == tuple(sequence.id for sequence in admitted)
    batch.gate.release()
    other = asyncio.create_task(engine.submit(call(1)))
    batch.gate.release()
    assert len(await other) == 1
    assert batch.rows == {}


async def test_a_deadline_is_honoured_between_steps(start: Start, batch: FakeBatch, clock: ManualClock):
    batch.gate = threading.Semaphore(0)
    engine = start()
    task = asyncio.create_task(engine.submit(call(50, deadline=clock.now + 1)))
    await next_plan(batch)
    clock.now += 1
    batch.gate.release()
    with pytest.raises(DeadlineError):
        await task
    assert len((await next_plan(batch)).remove) == 1


async def test_a_full_queue_refuses_without_waiting(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=1, max_queue_size=1))
    running = asyncio.create_task(engine.submit(call(3)))
    await next_plan(batch)
    waiting = asyncio.create_task(engine.submit(call(3)))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await engine.submit(call(3))
    with pytest.raises(QueueFullError), engine.room.hold(1):
        pass
    batch.gate.release(100)
    await asyncio.gather(running, waiting)


async def test_calls_in_preparation_hold_no_more_than_the_queue_could_take(start: Start):
    engine = start(SchedulerLimits(max_queue_size=3))
    with engine.room.hold(2):
        with pytest.raises(QueueFullError), engine.room.hold(2):
            pass
        with engine.room.hold(1):
            pass
    with engine.room.hold(3):  # what was held is free again
        pass
    assert len(await engine.submit(call(1, 1, 1))) == 3


async def test_a_bulk_call_is_refused_before_its_texts_are_prepared(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start(SchedulerLimits(max_batch_size=8, max_queue_size=32))
    running = asyncio.create_task(engine.submit(call(*[3] * 8)))
    await next_plan(batch)
    waiting = asyncio.create_task(engine.submit(call(*[3] * 26)))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError), engine.room.hold(3):  # an eighth of the places is for others
        pass
    with engine.room.hold(1), engine.room.hold(1), engine.room.hold(1):
        with pytest.raises(QueueFullError), engine.room.hold(3):
            pass
        assert engine.room.find_refusal() is None  # the others can still have what is kept for them
        with engine.room.hold(1):
            pass
    batch.gate.release(100)
    await asyncio.gather(running, waiting)


async def test_a_queue_that_was_full_lets_calls_in_again_when_an_eighth_of_it_is_free(start: Start):
    engine = start(SchedulerLimits(max_queue_size=16))
    with engine.room.hold(14):
        with engine.room.hold(1):
            with engine.room.hold(1):
                assert "16" in str(engine.room.find_refusal())
            assert engine.room.find_refusal() is not None  # one place is free
        assert engine.room.find_refusal() is None  # two are
        with engine.room.hold(1):
            assert engine.room.find_refusal() is None  # as long as it hasn't been full again
            with pytest.raises(QueueFullError), engine.room.hold(2):
                pass
            assert engine.room.find_refusal() is not None


async def test_a_failed_step_fails_its_calls_is_logged_once_and_the_loop_goes_on(
    start: Start, batch: FakeBatch, caplog: pytest.LogCaptureFixture
):
    batch.gate = threading.Semaphore(0)
    batch.failure = RuntimeError("A user's text")
    engine = start()
    with caplog.at_level(logging.INFO):
        failing = [asyncio.create_task(engine.submit(call(5, request_id=f"id-{i}"))) for i in range(2)]
        await asyncio.sleep(0)
        batch.gate.release()
        batch.gate.release(100)
        failures = await asyncio.gather(*failing, return_exceptions=True)
    assert any(isinstance(failure, InternalError) for failure in failures)
    (record,) = [record for record in caplog.records if record.message == "model step failed"]
    assert "id-0" in record.fields["request_ids"]
    assert record.fields["exception"] == "RuntimeError"
    assert "A user's text" not in str(record.fields)
    assert len(await engine.submit(call(3))) == 1
    assert engine.is_alive


async def test_an_idle_engine_runs_no_steps(start: Start, batch: FakeBatch):
    engine = start()
    await engine.submit(call(3))
    steps = batch.plans.qsize()
    assert steps == 3
    await engine.submit(call(1))
    assert batch.plans.qsize() == steps + 1


async def test_an_engine_is_silent_while_a_step_does_not_return(
    start: Start, batch: FakeBatch, clock: ManualClock
):
    batch.gate = threading.Semaphore(0)
    engine = start()
    task = asyncio.create_task(engine.submit(call(3)))
    await next_plan(batch)
    clock.now += 61
    assert engine.heartbeat.silence_seconds == 61
    assert engine.is_alive  # and may go on
    batch.gate.release()
    await next_plan(batch)
    assert engine.heartbeat.silence_seconds == 0
    batch.gate.release(100)
    await task


async def test_an_engine_without_work_is_not_silent(start: Start, clock: ManualClock):
    engine = start()
    clock.now += 61
    await until(lambda: engine.heartbeat.silence_seconds == 0)


async def test_stopping_ends_the_calls_that_still_run(start: Start, batch: FakeBatch):
    batch.gate = threading.Semaphore(0)
    engine = start()
    task = asyncio.create_task(engine.submit(call(50)))
    await next_plan(batch)
    batch.gate.release(100)
    engine.stop(DrainingError())
    with pytest.raises(DrainingError):
        await task
    assert not engine.is_alive
    with pytest.raises(DrainingError):  # as for a call whose texts were being prepared meanwhile
        await engine.submit(call(1))


async def test_a_model_that_fails_at_every_step_is_given_up(start: Start, batch: FakeBatch):
    failed = asyncio.Event()
    engine = start(on_failure=failed.set)
    for round_ends_well in (True, False):
        for _ in range(MAX_FAILED_STEPS - round_ends_well):
            assert engine.is_alive
            batch.failure = RuntimeError()
            with pytest.raises(InternalError):
                await engine.submit(call(3))
        if round_ends_well:
            assert len(await engine.submit(call(3))) == 1  # one that succeeds and the count begins anew
    await asyncio.wait_for(failed.wait(), 10)
    assert not engine.is_alive


async def test_a_broken_loop_fails_every_call_and_says_so(start: Start, batch: FakeBatch):
    failed = asyncio.Event()
    engine = start(on_failure=failed.set)

    def broken() -> None:
        raise ZeroDivisionError

    batch.failure = RuntimeError()
    batch.clear = broken  # type: ignore[method-assign]
    with pytest.raises(InternalError):
        await engine.submit(call(3))
    await asyncio.wait_for(failed.wait(), 10)
    assert not engine.is_alive
    with pytest.raises(EngineGoneError):
        await engine.submit(call(3))
