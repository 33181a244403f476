"""Deadlines that pass, deadlines that can't be met, and when a refused caller is told to come back."""

from __future__ import annotations

import pytest

from dragoman_server.errors import DeadlineError, DeadlineUnreachableError, QueueFullError
from dragoman_server.request import Attend, Call
from dragoman_server.room import check_room
from dragoman_server.speed import MIN_MEASURED_STEPS
from tests.server.scheduler_stage import Stage, wide


def measured(num_steps: int = MIN_MEASURED_STEPS, **limits: int) -> Stage:
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
    stage = measured(MIN_MEASURED_STEPS - 10, max_batch_size=4)
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
    assert caught.value.retry_seconds == 0.5


def test_however_long_the_queue_a_refused_caller_looks_again():
    stage = measured(max_batch_size=1, max_queue_size=1000)
    for _ in range(MIN_MEASURED_STEPS):
        stage.scheduler._speed.observe_sentence(1000)
    fill(stage, 1001)
    with pytest.raises(QueueFullError) as caught:
        check_room(stage.scheduler.limits, stage.scheduler.queue_state(), 1)
    assert caught.value.retry_seconds == 30
