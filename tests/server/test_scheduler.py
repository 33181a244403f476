"""Steps are taken one by one, with a batch that needs no model and a clock that stands still."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dragoman_model.options import DecodingOptions
from dragoman_model.plan import FinishedSentence, FinishReason, Plan
from dragoman_server.errors import DeadlineError, DeadlineUnreachableError, InternalError, QueueFullError
from dragoman_server.limits import SchedulerLimits
from dragoman_server.metrics import Metrics
from dragoman_server.request import Attend, Call, Decode, Work
from dragoman_server.scheduler import Scheduler
from dragoman_server.sentences import Outcome
from tests.server.fakes import EOS, FakeBatch, ManualClock


class Stage:
    """A scheduler with all that it needs around it."""

    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry).of_model("m")
        self.scheduler = Scheduler(SchedulerLimits(**limits), metrics, self.clock)
        self.batch = FakeBatch()

    def add(self, *lengths: int, deadline: float | None = None, max_length: int = 99) -> Call:
        """Queues a call with a sentence of each length, end-of-sentence included."""
        work = tuple(decode(length, max_length) for length in lengths)
        call = Call(work=work, arrived=self.clock.now, deadline=deadline)
        self.scheduler.add(call)
        return call

    def step(self) -> Plan:
        plan = self.scheduler.schedule()
        self.scheduler.update(self.batch.run(plan))
        return plan

    def run_until_idle(self) -> list[Plan]:
        plans = []
        while self.scheduler.has_work:
            plans.append(self.step())
            assert len(plans) < 10_000
        return plans

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"dragoman_{name}", {"model": "m", **labels})
        return value or 0.0


def decode(length: int, max_length: int = 99) -> Decode:
    return Decode(source_ids=(*range(10, 9 + length), EOS), max_length=max_length)


def wide(beam_size: int, length: int) -> Decode:
    return Decode(
        source_ids=(*range(10, 9 + length), EOS), max_length=99, options=DecodingOptions(beam_size=beam_size)
    )


def by_call(outcomes: list[Outcome]) -> dict[int, Outcome]:
    return {outcome.call.id: outcome for outcome in outcomes}


def test_each_call_gets_its_own_sentences_in_their_order():
    stage = Stage(max_batch_size=3)
    calls = [stage.add(5, 2, 7), stage.add(1), stage.add(3, 3)]
    stage.run_until_idle()
    outcomes = by_call(stage.scheduler.take_outcomes())
    for call in calls:
        assert [result.best.token_ids for result in outcomes[call.id].results] == [
            w.source_ids for w in call.work
        ]
        assert all(result.best.finish_reason is FinishReason.EOS for result in outcomes[call.id].results)
        assert all(len(r.best.log_probabilities) == len(r.best.token_ids) for r in outcomes[call.id].results)


def test_a_sentence_joins_at_the_next_step_and_leaves_when_it_ends():
    stage = Stage(max_batch_size=8)
    stage.add(6)
    stage.step()
    short = stage.add(2)
    assert len(stage.step().admit) == 1
    assert stage.scheduler.take_outcomes() == []
    stage.step()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [short]
    assert stage.value("running_rows") == 1


def test_never_more_rows_run_than_the_batch_holds():
    stage = Stage(max_batch_size=4)
    stage.add(*range(1, 30))
    rows = 0
    while stage.scheduler.has_work:
        stage.step()
        rows = max(rows, len(stage.batch.rows))
        assert rows <= 4
    assert rows == 4


def test_a_wide_search_counts_for_all_its_rows():
    stage = Stage(max_batch_size=8)
    stage.scheduler.add(Call(work=(wide(4, 3), wide(3, 3), wide(2, 3), wide(1, 3)), arrived=stage.clock.now))
    assert len(stage.step().admit) == 2
    assert stage.value("running_rows") == stage.batch.num_rows == 7
    rows = [7]
    while stage.scheduler.has_work:
        stage.step()
        rows.append(stage.batch.num_rows)
    assert max(rows) <= 8
    assert stage.value("running_rows") == 0
    assert len(stage.scheduler.take_outcomes()) == 1


def test_a_cancelled_wide_search_frees_all_its_rows():
    stage = Stage(max_batch_size=8)
    call = Call(work=(wide(8, 30),), arrived=stage.clock.now)
    stage.scheduler.add(call)
    stage.step()
    stage.scheduler.cancel(call.id)
    assert stage.value("running_rows") == 0
    for _ in range(8):
        stage.add(3)
    assert len(stage.step().admit) == 8


def test_a_wide_search_that_waits_is_not_overtaken():
    stage = Stage(max_batch_size=8)
    stage.add(*[4 + i for i in range(8)])
    stage.step()
    stage.scheduler.add(waiting := Call(work=(wide(8, 3),), arrived=stage.clock.now))
    stage.add(*[2] * 50)  # each would fit long before eight rows are free at once
    steps = 0
    while waiting not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.step()
        steps += 1
    assert steps <= 11 + 3  # the longest of those that ran, then its own


def test_an_interactive_call_is_not_starved_by_a_bulk_call():
    stage = Stage(max_batch_size=2)
    bulk = stage.add(*[3] * 200)
    for _ in range(4):
        stage.step()
    interactive = stage.add(3)
    steps = 0
    while interactive not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.step()
        steps += 1
    # At worst it lets one of the bulk call's sentences go first, then runs its own three steps.
    assert steps <= 3 + 3
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [bulk]


def test_a_full_queue_refuses_at_once_and_takes_nothing():
    stage = Stage(max_batch_size=1, max_queue_size=3)
    stage.add(4, 4)
    with pytest.raises(QueueFullError):
        stage.add(4, 4)
    with pytest.raises(QueueFullError):
        stage.scheduler.check_room(2)
    stage.scheduler.check_room(1)
    assert stage.value("waiting_requests") == 2


def test_prefill_of_one_step_is_capped_by_the_tokens_that_are_encoded():
    stage = Stage(max_batch_size=64, max_prefill_tokens=20)
    stage.add(5, 5, 5, 5, 9, 2, 2)
    plans = stage.run_until_idle()
    groups = [[len(sequence.source_ids) for sequence in plan.admit] for plan in plans if plan.admit]
    assert groups == [[5, 5, 5, 5], [9, 2, 2]]


def test_a_sentence_above_the_prefill_cap_still_runs_alone():
    stage = Stage(max_prefill_tokens=4)
    call = stage.add(30, 2)
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == [call]


def test_with_more_waiting_than_fits_sentences_join_in_groups():
    stage = Stage(max_batch_size=32)
    stage.add(*[60 - i for i in range(32)], *[5] * 40)
    plans = stage.run_until_idle()
    # One row comes free at each step from the 29th on; four join together, an eighth of the batch.
    joins = [len(plan.admit) for plan in plans[1:] if plan.admit]
    assert joins[:2] == [4, 4]


def test_no_sentence_is_held_back_longer_than_the_limit():
    stage = Stage(max_batch_size=32, max_admission_delay=4)
    stage.add(1, *[60] * 31, *[5] * 40)
    plans = stage.run_until_idle()
    first_join = next(index for index, plan in enumerate(plans[1:], start=1) if plan.admit)
    assert first_join == 1 + 4
    assert len(plans[first_join].admit) == 1


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


def test_attention_work_is_bounded_in_the_queue_and_in_each_step():
    stage = Stage(max_attention_queue_size=3, max_attends_per_step=2)
    attend = Attend(source_ids=(10, EOS), target_ids=(11, 12, EOS))
    call = Call(work=(attend,) * 3, arrived=stage.clock.now)
    stage.scheduler.add(call)
    with pytest.raises(QueueFullError):
        stage.scheduler.add(Call(work=(attend,), arrived=stage.clock.now))
    assert [len(plan.attend) for plan in stage.run_until_idle()] == [2, 1]
    (outcome,) = stage.scheduler.take_outcomes()
    assert [tuple(result.cross.shape) for result in outcome.results] == [(1, 1, 3, 2)] * 3


def test_attention_of_long_sentences_is_computed_one_by_one():
    stage = Stage(max_attends_per_step=4, max_attend_tokens=20)
    short = Attend(source_ids=(10,) * 4 + (EOS,), target_ids=(11,) * 4 + (EOS,))
    long = Attend(source_ids=(10,) * 30 + (EOS,), target_ids=(11, EOS))
    stage.scheduler.add(Call(work=(short, short, short, long, short), arrived=stage.clock.now))
    plans = stage.run_until_idle()
    assert [[len(one.source_ids) for one in plan.attend] for plan in plans] == [[5, 5], [5], [31], [5]]


def test_attention_runs_beside_decoding():
    stage = Stage()
    stage.add(5)
    stage.scheduler.add(
        Call(work=(Attend(source_ids=(10, EOS), target_ids=(EOS,)),), arrived=stage.clock.now)
    )
    plan = stage.step()
    assert len(plan.admit) == 1
    assert len(plan.attend) == 1


def looked_back_at(length: int, max_length: int = 99) -> Decode:
    return dataclasses.replace(decode(length, max_length), attention_heads=((0, 0), (0, 1)))


def test_a_translation_whose_attention_is_wanted_brings_it_along():
    stage = Stage()
    call = Call(work=(looked_back_at(3), decode(2), looked_back_at(5)), arrived=stage.clock.now)
    stage.scheduler.add(call)
    plans = stage.run_until_idle()
    (outcome,) = stage.scheduler.take_outcomes()
    assert [result.best.token_ids for result in outcome.results] == [w.source_ids for w in call.work]
    shapes = [result.attention and tuple(result.attention.cross.shape) for result in outcome.results]
    assert shapes == [(1, 1, 3, 3), None, (1, 1, 5, 5)]
    assert {forced.heads for plan in plans for forced in plan.attend} == {((0, 0), (0, 1))}
    assert stage.value("sentences_total", finish_reason="eos") == 3
    assert stage.value("sentences_total", finish_reason="attention") == 0
    assert stage.value("source_tokens_total") == 10


def test_the_attention_of_a_cut_translation_has_a_row_that_read_its_last_word():
    stage = Stage()
    stage.scheduler.add(Call(work=(looked_back_at(9, max_length=4),), arrived=stage.clock.now))
    (forced,) = [forced for plan in stage.run_until_idle() for forced in plan.attend]
    assert forced.target_ids == (10, 11, 12, 13, EOS)


def test_attention_for_the_metrics_is_of_no_chosen_heads():
    stage = Stage()
    work = dataclasses.replace(looked_back_at(3), needs_attention=False)
    stage.scheduler.add(Call(work=(work,), arrived=stage.clock.now))
    (forced,) = [forced for plan in stage.run_until_idle() for forced in plan.attend]
    assert forced.heads == ()


def test_a_translation_let_in_with_its_attention_is_never_refused_it():
    stage = Stage(max_attention_queue_size=1, max_attends_per_step=1)
    stage.scheduler.add(Call(work=(looked_back_at(2),) * 5, arrived=stage.clock.now))
    stage.step()
    stage.step()
    attend = Attend(source_ids=(10, EOS), target_ids=(EOS,))
    stage.scheduler.add(Call(work=(attend,), arrived=stage.clock.now))  # which four that wait don't keep out
    with pytest.raises(QueueFullError):
        stage.scheduler.add(Call(work=(attend,), arrived=stage.clock.now))
    stage.run_until_idle()
    assert [outcome.error for outcome in stage.scheduler.take_outcomes()] == [None, None]


def test_a_call_cancelled_while_it_waits_for_attention_is_forgotten():
    stage = Stage(max_attends_per_step=1)
    call = Call(work=(looked_back_at(2),) * 3, arrived=stage.clock.now)
    stage.scheduler.add(call)
    stage.step()
    stage.step()
    stage.scheduler.cancel(call.id)
    assert not stage.scheduler.has_work
    assert stage.scheduler.take_outcomes() == []
    assert stage.value("sentences_total", finish_reason="eos") == 3
    assert stage.value("sentences_total", finish_reason="cancelled") == 0


@pytest.mark.parametrize("needs_attention", [False, True])
def test_attention_that_fails_takes_only_a_translation_along_that_needs_it(needs_attention: bool):
    stage = Stage()
    stage.batch.attention_failure = RuntimeError("out of memory")
    work = dataclasses.replace(looked_back_at(3), needs_attention=needs_attention)
    stage.scheduler.add(Call(work=(work, decode(5)), arrived=stage.clock.now))

    stage.run_until_idle()

    (outcome,) = stage.scheduler.take_outcomes()
    if needs_attention:
        assert isinstance(outcome.error, InternalError)
    else:
        assert [len(result.best.token_ids) for result in outcome.results] == [3, 5]
        assert [result.attention for result in outcome.results] == [None, None]
    assert not stage.scheduler.has_work


def test_a_translation_that_reaches_its_limit_says_so():
    stage = Stage()
    stage.add(9, max_length=4)
    stage.run_until_idle()
    (outcome,) = stage.scheduler.take_outcomes()
    assert outcome.results[0].best.finish_reason is FinishReason.LENGTH
    assert len(outcome.results[0].best.token_ids) == 4


def test_the_time_to_the_first_token_begins_when_the_call_came_and_the_wait_when_it_was_queued():
    stage = Stage()
    stage.scheduler.add(Call(work=(decode(3),), arrived=stage.clock.now - 2))  # it was tokenised meanwhile
    stage.run_until_idle()
    assert stage.value("time_to_first_token_seconds_sum") == 2
    assert stage.value("queue_wait_seconds_sum") == 0


def test_waits_tokens_and_ends_are_measured():
    stage = Stage(max_batch_size=1)
    stage.add(3, 4)
    stage.clock.now += 0.3
    stage.run_until_idle()
    assert stage.value("queue_wait_seconds_count") == 2
    assert stage.value("queue_wait_seconds_bucket", le="0.25") == 0
    assert stage.value("queue_wait_seconds_bucket", le="0.5") == 2
    assert stage.value("time_to_first_token_seconds_count") == 1
    assert stage.value("source_tokens_total") == 7
    assert stage.value("target_tokens_total") == 7
    assert stage.value("sentences_total", finish_reason="eos") == 2
    assert stage.value("step_rows_count") == 7
    assert stage.value("step_seconds_count", phase="decode") == 7
    assert stage.value("step_seconds_count", phase="prefill") == 2
    assert stage.value("step_tokens_total", phase="prefill", kind="real") == 7
    assert stage.value("step_tokens_total", phase="prefill", kind="padding") == 2
    assert stage.value("step_tokens_total", phase="decode", kind="real") == 7
    assert stage.value("token_log_probability_bucket", le="-0.5") == 2
    assert stage.value("length_ratio_bucket", le="1.0") == 2
    assert stage.value("row_slots") == 1
    assert stage.value("queue_slots") == 1024
    assert stage.value("running_rows") == stage.value("waiting_requests") == 0


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
    held = (
        scheduler._calls,
        scheduler._running,
        scheduler._attending,
        scheduler._abandoned,
        scheduler._first_step,
        scheduler._waiting_attention,
        scheduler._num_looking_back,
    )
    assert not any(held)
    for lane in scheduler._admission._lanes.values():
        assert (lane.num_rows, lane.num_waiting_rows, len(lane.queue)) == (0, 0, 0)
        assert not lane.queue._rows
    assert stage.batch.rows == {}
