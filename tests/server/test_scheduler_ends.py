"""How calls end before their time, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import dataclasses
import random

import pytest

from dragoman_model.plan import FinishedSentence
from dragoman_server.errors import DeadlineError, DeadlineUnreachableError, InternalError, QueueFullError
from dragoman_server.request import Attend, Call, Decode, Work
from dragoman_server.sentences import Outcome
from tests.server.fakes import EOS
from tests.server.scheduler_stage import Stage, by_call, decode, looked_back_at, wide


def test_a_deadline_that_passes_while_waiting_ends_the_call():
    stage = Stage(max_batch_size=1)
    running = stage.add(50)
    waiting = stage.add(3, 3, deadline=stage.clock.now + 1)
    stage.step()
    stage.clock.now += 1
    stage.step()
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is waiting
    assert isinstance(outcome.error, DeadlineError)
    assert stage.value("sentences_total", finish_reason="deadline") == 2
    assert stage.value("waiting_requests") == 0
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [running]


def test_a_deadline_that_passes_while_running_frees_the_rows_at_the_next_step():
    stage = Stage(max_batch_size=2)
    call = stage.add(50, 50, 50, deadline=stage.clock.now + 1)
    admitted = stage.step().admit
    stage.clock.now += 1
    plan = stage.step()
    assert plan.remove == tuple(sequence.id for sequence in admitted)
    assert plan.admit == ()
    assert stage.batch.rows == {}
    assert by_call(stage.scheduler.take_outcomes())[call.id].error is not None
    assert not stage.scheduler.has_work


def test_an_ended_call_is_not_ended_again_by_its_deadline():
    stage = Stage()
    stage.add(2, deadline=stage.clock.now + 1)
    stage.run_until_idle()
    assert len(stage.scheduler.take_outcomes()) == 1
    stage.clock.now += 5
    stage.scheduler.schedule()
    assert stage.scheduler.take_outcomes() == []


def test_deadlines_of_ended_calls_do_not_pile_up():
    stage = Stage()
    for _ in range(1000):
        stage.add(1, deadline=stage.clock.now + 3600)
        stage.run_until_idle()
    assert len(stage.scheduler._deadlines) < 200


def test_a_cancelled_call_frees_its_rows_at_the_next_step_and_is_counted():
    stage = Stage(max_batch_size=2)
    cancelled = stage.add(50, 50, 50)
    stage.step()
    other = stage.add(2)
    stage.scheduler.cancel(cancelled.id)
    assert stage.value("running_rows") == 0
    plan = stage.step()
    assert len(plan.remove) == 2
    assert len(plan.admit) == 1
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [other]
    assert stage.value("sentences_total", finish_reason="cancelled") == 3


@pytest.mark.parametrize(
    ("deadline", "reason"), [(None, "cancelled"), (5.0, "cancelled"), (0.05, "deadline"), (-0.05, "deadline")]
)
def test_a_caller_that_leaves_at_its_deadline_is_counted_so(deadline: float | None, reason: str):
    stage = Stage()
    call = stage.add(50, deadline=None if deadline is None else stage.clock.now + deadline)
    stage.scheduler.cancel(call.id)
    assert stage.value("sentences_total", finish_reason=reason) == 1


def test_a_call_cancelled_during_its_last_step_leaves_nothing_behind():
    stage = Stage()
    call = stage.add(1)
    output = stage.batch.run(stage.scheduler.schedule())
    stage.scheduler.cancel(call.id)
    stage.scheduler.update(output)
    assert stage.scheduler.take_outcomes() == []
    assert not stage.scheduler.has_work


def test_cancelling_an_ended_call_changes_nothing():
    stage = Stage()
    call = stage.add(1)
    stage.run_until_idle()
    stage.scheduler.cancel(call.id)
    assert len(stage.scheduler.take_outcomes()) == 1
    assert stage.value("sentences_total", finish_reason="cancelled") == 0


def test_a_failed_step_ends_the_calls_in_the_batch_and_no_others():
    stage = Stage(max_batch_size=1)
    failing = stage.add(50, 50, 50)
    waiting = stage.add(2)
    stage.scheduler.schedule()
    stage.scheduler.fail_running(InternalError())
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is failing
    assert stage.value("sentences_total", finish_reason="error") == 3
    assert stage.step().remove == ()
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [waiting]


def test_a_sentence_that_fails_ends_its_call_alone_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    stage = Stage(max_batch_size=8)
    stage.batch.poisoned = 77
    others = [stage.add(3), stage.add(9)]
    poison = Decode(source_ids=(77, 10, EOS), max_length=99)
    poisoned = Call(work=(decode(50), poison, poison), arrived=stage.clock.now, request_id="id-7")
    stage.scheduler.add(poisoned)
    stage.step()
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is poisoned
    assert isinstance(outcome.error, InternalError)
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == others
    assert stage.batch.rows == {}
    assert stage.value("running_rows") == 0
    assert stage.value("sentences_total", finish_reason="error") == 3
    (record,) = [record for record in caplog.records if record.message == "sentence failed"]
    assert record.fields["request_id"] == "id-7"


def test_a_search_that_ends_with_nothing_fails_its_call_alone():
    stage = Stage()
    empty, other = stage.add(1), stage.add(4)
    output = stage.batch.run(stage.scheduler.schedule())
    (finished,) = output.finished
    stage.scheduler.update(dataclasses.replace(output, finished=[FinishedSentence(finished.id, ())]))
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.call is empty
    assert isinstance(outcome.error, InternalError)
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [other]


def test_random_ends_of_every_kind_leave_nothing_behind():
    stage = Stage(max_batch_size=16, max_queue_size=200)
    stage.batch.poisoned, stage.batch.row_seconds = 77, 0.0005
    rng = random.Random(5)
    calls: list[Call] = []
    outcomes: list[Outcome] = []
    cancelled = 0
    for _ in range(2000):
        for _ in range(rng.choice((0, 0, 0, 1, 3))):
            kind = rng.random()
            if kind < 0.1:
                work: tuple[Work, ...] = (Attend(source_ids=(10, EOS), target_ids=(EOS,)),)
            elif kind < 0.13:
                work = (looked_back_at(rng.randint(1, 9)),) * rng.randint(1, 4)
            elif kind < 0.15:
                work = (Decode(source_ids=(77, EOS), max_length=9), decode(5))
            elif kind < 0.4:
                work = (wide(rng.randint(2, 8), rng.randint(1, 20)),) * rng.randint(1, 4)
            else:
                work = tuple(decode(rng.randint(1, 30)) for _ in range(rng.choice((1, 1, 20))))
            deadline = None if rng.random() < 0.7 else stage.clock.now + rng.random()
            stream = rng.choice((None, None, -1, -2))
            call = Call(work=work, arrived=stage.clock.now, deadline=deadline, stream=stream)
            with contextlib.suppress(QueueFullError, DeadlineUnreachableError):
                stage.scheduler.add(call)
                calls.append(call)
        if calls and rng.random() < 0.3:
            stage.scheduler.cancel(calls[rng.randrange(max(0, len(calls) - 30), len(calls))].id)
            cancelled += 1
        stage.clock.now += 0.01
        if rng.random() < 0.01:
            stage.scheduler.schedule()
            stage.batch.clear()
            stage.scheduler.fail_running(InternalError())
        elif stage.scheduler.has_work:
            stage.step()
        assert stage.batch.num_rows <= 16
        outcomes += stage.scheduler.take_outcomes()
    stage.run_until_idle()
    outcomes += stage.scheduler.take_outcomes()
    assert cancelled > 400
    assert len({outcome.call.id for outcome in outcomes}) == len(outcomes) > 500
    assert {type(outcome.error) for outcome in outcomes} == {type(None), DeadlineError, InternalError}
    scheduler = stage.scheduler
    roster = scheduler._roster
    held = (
        scheduler._calls,
        scheduler._records._first_step,
        scheduler._attention,
        scheduler._attention._num_translated,
        roster._running,
        roster._attending,
        roster._abandoned,
        roster._row_steps._begun,
    )
    assert not any(held)
    for lane in scheduler._admission._lanes.values():
        assert (lane.num_rows, lane.num_waiting_rows, len(lane.queue)) == (0, 0, 0)
        assert lane.queue.num_callers == 0
    assert stage.batch.rows == {}
