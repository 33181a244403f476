"""Steps are taken one by one, with a batch that needs no model and a clock that stands still."""

from __future__ import annotations

import pytest

from dragoman_model.plan import FinishReason
from dragoman_server.errors import InternalError, QueueFullError
from dragoman_server.request import Attend, Call
from dragoman_server.room import check_room
from tests.server.fakes import EOS
from tests.server.scheduler_stage import Stage, by_call, decode, looked_back_at, wide


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


def test_single_sentences_that_come_without_end_do_not_overtake_a_wide_search_whose_turn_it_is():
    stage = Stage(max_batch_size=8)
    stage.add(*[4 + i for i in range(8)])
    stage.step()
    stage.scheduler.add(waiting := Call(work=(wide(8, 3),), arrived=stage.clock.now))
    steps = 0
    while waiting not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.step()
        stage.add(2)  # which would end before it by even sharing
        steps += 1
        assert steps <= 11 + 3


def test_single_sentences_that_come_without_end_let_a_wide_search_have_its_turn():
    stage = Stage(max_batch_size=8)
    for _ in range(30):
        stage.add(2)
    stage.step()
    stage.scheduler.add(waiting := Call(work=(wide(8, 3),), arrived=stage.clock.now))
    steps = 0
    while waiting not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        for _ in range(4):
            stage.add(2)
        stage.step()
        steps += 1
        # By even sharing among all who wait and come, its turn ends after 112 steps; then rows come free, and it has its own.
        assert steps <= 112 + 2 + 3


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
        check_room(stage.scheduler.limits, stage.scheduler.queue_state(), 2)
    check_room(stage.scheduler.limits, stage.scheduler.queue_state(), 1)
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


def test_where_an_eighth_of_the_rows_runs_sentences_join_in_groups_or_after_the_limit():
    stage = Stage(max_batch_size=32, max_gathering_delay=6)
    for _ in range(4):
        stage.add(60)
    assert len(stage.step().admit) == 4  # nothing runs: they join at once
    stage.add(60)
    joins = [len(stage.step().admit) for _ in range(7)]
    assert joins == [0] * 6 + [1]
    joins = []
    for _ in range(4):
        stage.add(60)
        joins.append(len(stage.step().admit))
    assert joins == [0, 0, 0, 4]


def test_where_little_runs_a_sentence_joins_at_the_next_step():
    stage = Stage(max_batch_size=32, max_gathering_delay=6)
    for _ in range(3):
        stage.add(60)
        assert len(stage.step().admit) == 1


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


@pytest.mark.parametrize("failure", [None, RuntimeError("out of memory")])
def test_attention_sampled_for_the_metrics_is_not_counted_in_them(failure: Exception | None):
    stage = Stage()
    stage.batch.attention_failure = failure
    attend = Attend(source_ids=(10, EOS), target_ids=(EOS,))
    stage.scheduler.add(Call(work=(attend,), arrived=stage.clock.now, is_sample=True))
    stage.run_until_idle()
    (outcome,) = stage.scheduler.take_outcomes()
    assert (outcome.error is None) == (failure is None)
    for reason in ("attention", "error"):
        assert stage.value("sentences_total", finish_reason=reason) == 0
    assert stage.value("source_tokens_total") == stage.value("queue_wait_seconds_count") == 0


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


def test_attention_that_fails_takes_its_call_along():
    stage = Stage()
    stage.batch.attention_failure = RuntimeError("out of memory")
    stage.scheduler.add(Call(work=(looked_back_at(3), decode(5)), arrived=stage.clock.now))

    stage.run_until_idle()

    (outcome,) = stage.scheduler.take_outcomes()
    assert isinstance(outcome.error, InternalError)
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
