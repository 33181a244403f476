"""Deadlines that pass, deadlines that can't be met, waits that are too long, and when a refused caller is told to come back."""

from __future__ import annotations

import dataclasses

import pytest

from dragoman_server.errors import DeadlineError, DeadlineUnreachableError, QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.request import Attend, Call
from dragoman_server.room import QueueState, Room, check_room
from dragoman_server.sentences import Lane
from dragoman_server.statuses import retry_milliseconds, status_message
from tests.server.scheduler_stage import Stage, decode, wide


def measured(num_steps: int = 50, **limits: float) -> Stage:
    """Returns a stage that has run so many steps: sentences of 10 steps, each of 1 ms and a little encoding."""
    stage = Stage(**limits)
    for _ in range(num_steps // 10):
        stage.add(10)
        stage.run_until_idle()
    stage.scheduler.take_outcomes()
    return stage


def fill(stage: Stage, num_calls: int) -> None:
    """Lets calls of one sentence run, as many as fit, and the others wait."""
    num_rows = stage.scheduler.limits.max_batch_size
    for _ in range(min(num_calls, num_rows)):
        stage.add(10)
    stage.step()
    for _ in range(num_calls - num_rows):
        stage.add(10)


def test_a_deadline_that_the_queue_leaves_no_time_for_is_refused_at_once():
    stage = measured(max_batch_size=4)
    fill(stage, 44)
    # 40 wait. A row comes free every 2.5 ms, so that the next caller's turn comes after 102.5 ms.
    with pytest.raises(
        DeadlineUnreachableError, match=r"0\.05 s are left.*take 0\.10 s at the measured speed"
    ):
        stage.add(10, deadline=stage.clock.now + 0.05)
    assert stage.value("waiting_requests") == 40
    assert stage.value("sentences_total", finish_reason="deadline") == 0
    stage.add(10, deadline=stage.clock.now + 0.15)
    assert stage.value("waiting_requests") == 41


def test_no_deadline_is_refused_before_enough_steps_were_measured():
    stage = measured(40, max_batch_size=4)
    fill(stage, 44)
    stage.add(10, deadline=stage.clock.now + 0.001)
    assert stage.value("waiting_requests") == 41


def test_a_deadline_is_not_refused_while_rows_are_free():
    stage = measured(max_batch_size=4)
    fill(stage, 3)
    stage.add(10, deadline=stage.clock.now + 1e-6)


def test_what_a_call_itself_needs_counts():
    stage = measured(max_batch_size=4)
    with pytest.raises(DeadlineUnreachableError):
        stage.add(*[10] * 44, deadline=stage.clock.now + 0.05)
    stage.add(*[10] * 44, deadline=stage.clock.now + 0.15)


def test_bulk_work_that_waits_refuses_no_interactive_deadline():
    stage = measured(max_batch_size=64)
    stage.add(*[10] * 900)
    stage.step()
    stage.add(10, deadline=stage.clock.now + 0.001)
    with pytest.raises(DeadlineUnreachableError):
        stage.add(*[10] * 50, deadline=stage.clock.now + 0.001)


def test_attention_has_a_queue_of_its_own():
    stage = measured(max_batch_size=4)
    fill(stage, 44)
    attend = Attend(source_ids=(10, 2), target_ids=(2,))
    stage.scheduler.add(Call(work=(attend,), arrived=0.0, deadline=stage.clock.now + 0.001))
    assert len(stage.step().attend) == 1


def test_attention_does_not_wait_for_rows_however_long_others_do():
    stage = measured(max_batch_size=4, max_queue_seconds=0.12)
    fill(stage, 4 + 32)
    with pytest.raises(QueueFullError):
        stage.add(10)
    attend = Attend(source_ids=(10, 2), target_ids=(2,))
    stage.scheduler.add(Call(work=(attend,), arrived=stage.clock.now))
    assert len(stage.step().attend) == 1


@pytest.mark.parametrize("beam_size", [1, 2, 8])
def test_a_deadline_that_passes_frees_all_rows_of_a_search_at_the_next_step(beam_size: int):
    stage = Stage(max_batch_size=16)
    work = (wide(beam_size, 50),) * (16 // beam_size - 1)
    call = Call(work=work, arrived=stage.clock.now, deadline=stage.clock.now + 1)
    stage.scheduler.add(call)
    admitted = stage.step().admit
    assert stage.value("running_rows") == stage.batch.num_rows > 0
    stage.clock.now += 1
    plan = stage.step()
    assert set(plan.remove) == {sequence.id for sequence in admitted}
    assert stage.value("running_rows") == stage.batch.num_rows == 0
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is call
    assert isinstance(outcome.error, DeadlineError)
    assert not stage.scheduler.has_work


def test_a_held_row_misses_its_deadline_like_any_other():
    stage = Stage(max_batch_size=64)
    stage.batch.row_seconds = 0.001
    stage.add(*[60] * 20, deadline=stage.clock.now + 1)
    stage.step()
    interactive = stage.add(50)
    assert stage.step().hold
    stage.clock.now += 1
    assert len(stage.step().remove) == 20
    assert stage.batch.num_rows == 1
    stage.run_until_idle()
    ended = [outcome.call for outcome in stage.scheduler.take_outcomes()]
    assert ended[-1] is interactive


def test_a_call_that_would_wait_for_too_long_is_refused():
    stage = measured(max_batch_size=4, max_queue_seconds=0.12)
    fill(stage, 4 + 31)
    # A row comes free every 2.5 ms; calls are let in while what waits takes two thirds of the bound, 80 ms.
    stage.add(10)
    with pytest.raises(
        QueueFullError,
        match=r"takes 0\.08 s at the measured speed.* for more than 0\.12 s \(--max-queue-seconds\)",
    ) as caught:
        stage.add(10)
    assert caught.value.retry_seconds == pytest.approx(0.1)
    assert stage.value("waiting_requests") == 32


def test_no_call_waits_for_longer_than_it_may():
    stage = Stage(max_batch_size=1, max_queue_seconds=0.5)
    running = stage.add(30, 30)
    stage.step()
    waiting = stage.add(10)
    stage.clock.now += 0.5
    stage.step()
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is waiting
    assert isinstance(outcome.error, QueueFullError)
    assert "waited for 0.5 s" in str(outcome.error)
    assert retry_milliseconds(status_message(outcome.error, "id")) == pytest.approx(500, rel=0.25)
    # Refused, as if it had never come; but whoever has been begun with is not left half done.
    assert sum(stage.value("sentences_total", finish_reason=reason) for reason in ("deadline", "error")) == 0
    stage.clock.now += 10
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes() if not outcome.error] == [running]


def test_a_call_that_nobody_is_before_is_served_however_late_the_engine_looks():
    stage = Stage(max_batch_size=4, max_queue_seconds=0.5)
    call = stage.add(10)
    stage.clock.now += 2  # the whole server stood still, or the bound is shorter than a step
    stage.run_until_idle()
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is call
    assert outcome.error is None


def test_a_bulk_call_gets_through_beside_interactive_ones_that_fill_their_queue():
    stage = measured(max_batch_size=64, max_queue_seconds=0.12)
    for _ in range(64):
        stage.add(10)
    stage.step()
    while stage.scheduler.queue_state().interactive_seconds < 0.08:
        stage.add(10)
    with pytest.raises(QueueFullError):
        stage.add(10)
    bulk = stage.add(*[10] * 60)
    with pytest.raises(QueueFullError):  # one at a time, in the eighth of the rows that is left to bulk
        stage.add(*[10] * 60)
    for _ in range(20):
        stage.step()
    assert stage.scheduler._calls[bulk.id].has_started


def test_the_items_of_a_stream_wait_for_as_long_as_it_takes():
    stage = Stage(max_batch_size=1, max_queue_seconds=0.5)
    stage.add(30)
    stage.step()
    item = Call(work=(decode(10),), arrived=stage.clock.now, stream=7)
    stage.scheduler.add(item)
    stage.clock.now += 100
    stage.run_until_idle()
    outcomes = stage.scheduler.take_outcomes()
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert outcomes[-1].call is item


def test_a_bulk_call_waits_for_as_much_as_even_sharing_lets_go_first():
    stage = measured(max_batch_size=64, max_queue_size=4096, max_queue_seconds=0.12)
    stage.add(*[10] * 900)  # a row every sixth of a millisecond, so that this takes 150
    stage.step()
    num_callers = 1
    while stage.scheduler.queue_state().wait_seconds(Lane.BULK, 20) < 0.08:
        stage.add(*[10] * 20)  # each of which has 20 rows of each other before it
        num_callers += 1
    assert 20 < num_callers < 30
    with pytest.raises(QueueFullError, match="at the measured speed"):
        stage.add(*[10] * 20)
    stage.add(*[10] * 10)
    stage.add(10)  # interactive


def test_a_stream_that_keeps_its_place_filled_refuses_nobody():
    stage = measured(max_batch_size=64, max_queue_seconds=0.12)
    for _ in range(256 * 3):
        stage.scheduler.add(Call(work=(decode(10),), arrived=stage.clock.now, stream=7))
    stage.step()
    stage.add(*[10] * 20)


def test_an_idle_time_counts_for_no_step():
    stage = measured(max_batch_size=1)
    before = stage.scheduler._speed.row_wait(1)
    stage.add(10)
    waiting = stage.add(10)
    for _ in range(10):
        stage.step()
    stage.scheduler.cancel(waiting.id)
    stage.clock.now += 1000
    stage.add(10)
    stage.run_until_idle()
    assert stage.scheduler._speed.row_wait(1) == pytest.approx(before, rel=0.02)


def test_a_door_that_was_shut_opens_when_an_eighth_of_the_time_is_free():
    limits = SchedulerLimits(max_queue_seconds=0.3)
    seconds = 0.19
    room = Room(limits, lambda: QueueState(100, False, interactive_seconds=seconds))
    assert room.find_refusal() is None
    seconds = 0.21
    assert room.find_refusal() is not None
    seconds = 0.18
    assert room.find_refusal() is not None
    seconds = 0.17
    assert room.find_refusal() is None
    seconds = 0.19
    assert room.find_refusal() is None


def test_steps_that_a_search_takes_beyond_its_translation_count():
    stage = Stage(max_batch_size=1)
    for _ in range(5):
        stage.add(10)
        for _ in range(9):
            stage.step()
        plan = stage.scheduler.schedule()
        output = stage.batch.run(plan)
        (finished,) = output.finished
        best = dataclasses.replace(finished.best, token_ids=finished.best.token_ids[:5])
        shorter = dataclasses.replace(finished, hypotheses=(best,))
        stage.scheduler.update(dataclasses.replace(output, finished=[shorter]))
    assert stage.scheduler._speed.row_wait(1) == pytest.approx(0.01, rel=0.2)  # ten steps of a millisecond


def test_a_refused_caller_comes_back_when_the_queue_has_been_worked_off():
    stage = measured(max_batch_size=4, max_queue_size=400)
    fill(stage, 404)
    with pytest.raises(QueueFullError) as caught:
        stage.add(10)
    assert caught.value.retry_seconds == pytest.approx(1.0, rel=0.2)  # 400 sentences, one every 2.5 ms


def test_without_measurements_half_a_second_has_to_do():
    stage = Stage(max_batch_size=1, max_queue_size=1)
    stage.add(10)
    with pytest.raises(QueueFullError) as caught:
        stage.add(10)
    assert retry_milliseconds(status_message(caught.value, "id")) == pytest.approx(500, rel=0.25)


def test_however_long_the_queue_a_refused_caller_looks_again():
    stage = measured(max_batch_size=1, max_queue_size=1000)
    for _ in range(50):
        stage.scheduler._speed.observe_sentence(1000)
    fill(stage, 1001)
    with pytest.raises(QueueFullError) as caught:
        check_room(stage.scheduler.limits, stage.scheduler.queue_state(), 1)
    assert caught.value.retry_seconds == 30
