"""How translations to be scored go through the queue: like any other work, but without a row."""

from __future__ import annotations

import pytest

from dragoman_model.plan import ScoreOutput
from dragoman_server.errors import DeadlineError, QueueFullError
from dragoman_server.request import Call, Score
from tests.server.fakes import EOS
from tests.server.test_scheduler import Stage, decode


def score(source_length: int, target_length: int) -> Score:
    return Score(
        source_ids=(*range(10, 9 + source_length), EOS), target_ids=(*range(10, 9 + target_length), EOS)
    )


def add(stage: Stage, *work: Score, deadline: float | None = None) -> Call:
    call = Call(work=work, arrived=stage.clock.now, deadline=deadline)
    stage.scheduler.add(call)
    return call


def test_scores_come_in_the_order_of_their_call():
    stage = Stage()
    call = add(stage, score(3, 4), score(5, 2), score(1, 1))
    stage.run_until_idle()
    ((outcome),) = stage.scheduler.take_outcomes()
    assert outcome.call is call
    assert all(isinstance(result, ScoreOutput) for result in outcome.results)
    assert [len(result.log_probabilities) for result in outcome.results] == [4, 2, 1]
    assert stage.value("sentences_total", finish_reason="score") == 3
    assert stage.value("step_seconds_count", phase="prefill") == 1
    assert stage.value("source_tokens_total") == 9


def test_scores_need_no_free_row():
    stage = Stage(max_batch_size=2)
    stage.add(9, 9)
    stage.step()
    add(stage, score(3, 3))
    plan = stage.step()
    assert len(plan.score) == 1
    assert stage.value("running_rows") == 2


def test_what_is_scored_at_one_step_is_capped_together_with_what_is_encoded():
    stage = Stage(max_prefill_tokens=20)
    add(stage, score(5, 5), score(5, 5), score(4, 4), score(30, 30))
    plans = stage.run_until_idle()
    assert [len(plan.score) for plan in plans] == [2, 1, 1]


def test_scores_fill_the_queue_like_any_work():
    stage = Stage(max_queue_size=3)
    add(stage, score(2, 2), score(2, 2))
    with pytest.raises(QueueFullError):
        add(stage, score(2, 2), score(2, 2))
    with pytest.raises(QueueFullError):
        stage.scheduler.add(Call(work=(decode(2), decode(2)), arrived=stage.clock.now))


def test_scores_that_wait_are_given_up_at_their_deadline_or_when_their_caller_leaves():
    stage = Stage(max_prefill_tokens=4)
    late = add(stage, *[score(2, 2)] * 8, deadline=stage.clock.now + 1)
    left = add(stage, *[score(2, 2)] * 8)
    stage.step()
    stage.scheduler.cancel(left.id)
    stage.clock.now += 2
    stage.step()
    ((outcome),) = stage.scheduler.take_outcomes()
    assert outcome.call is late
    assert isinstance(outcome.error, DeadlineError)
    assert not stage.scheduler.has_work
    assert stage.value("waiting_requests") == 0


def test_a_caller_is_not_overtaken_for_ever_by_scores():
    stage = Stage(max_prefill_tokens=8)
    add(stage, *[score(4, 4)] * 100)
    caller = stage.add(2)
    steps = 0
    while caller not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.step()
        steps += 1
    assert steps <= 4
