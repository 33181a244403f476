"""How translations to be scored go through the queue: like those to be written."""

from __future__ import annotations

import pytest

from dragoman_server.errors import DeadlineError, QueueFullError
from dragoman_server.request import Call, Decode
from tests.server.fakes import EOS
from tests.server.scheduler_stage import Stage, decode


def given(source_length: int, target_length: int) -> Decode:
    return Decode(
        source_ids=(*range(10, 9 + source_length), EOS),
        max_length=target_length,
        prefix_ids=(*range(50, 49 + target_length), EOS),
        is_given=True,
    )


def add(stage: Stage, *work: Decode, deadline: float | None = None) -> Call:
    call = Call(work=work, arrived=stage.clock.now, deadline=deadline)
    stage.scheduler.add(call)
    return call


def test_scores_come_in_the_order_of_their_call():
    stage = Stage()
    call = add(stage, given(3, 4), given(5, 2), given(1, 1))
    stage.run_until_idle()
    ((outcome),) = stage.scheduler.take_outcomes()
    assert [result.best.token_ids for result in outcome.results] == [work.prefix_ids for work in call.work]


def test_what_is_only_scored_is_counted_so_and_says_nothing_of_the_models_translations():
    stage = Stage()
    add(stage, given(3, 4), given(5, 2))
    stage.run_until_idle()
    assert stage.value("sentences_total", finish_reason="score") == 2
    assert stage.value("sentences_total", finish_reason="eos") == 0
    assert stage.value("source_tokens_total") == 8
    assert stage.value("target_tokens_total") == 0
    assert stage.value("token_log_probability_count") == 0
    assert stage.value("length_ratio_count") == 0
    assert stage.value("time_to_first_token_seconds_count") == 0
    assert stage.value("queue_wait_seconds_count") == 2


def test_scores_wait_for_rows_like_any_work():
    stage = Stage(max_batch_size=2, max_queue_size=3)
    stage.add(9)
    stage.step()
    add(stage, *[given(3, 3)] * 3)
    with pytest.raises(QueueFullError):
        stage.scheduler.add(Call(work=(decode(2),), arrived=stage.clock.now))
    stage.step()
    assert stage.value("running_rows") == 2
    assert stage.value("waiting_requests") == 2


def test_scores_that_wait_are_given_up_at_their_deadline_or_when_their_caller_leaves():
    stage = Stage(max_batch_size=1)
    late = add(stage, *[given(2, 2)] * 8, deadline=stage.clock.now + 1)
    left = add(stage, *[given(2, 2)] * 8)
    stage.step()
    stage.scheduler.cancel(left.id)
    stage.clock.now += 2
    stage.run_until_idle()
    ((outcome),) = stage.scheduler.take_outcomes()
    assert outcome.call is late
    assert isinstance(outcome.error, DeadlineError)
    assert stage.value("waiting_requests") == 0
