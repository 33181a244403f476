"""Callers beside bulk work: who gets rows, and after how many steps."""

from __future__ import annotations

import pytest

from dragoman_server.errors import InvalidArgumentError, QueueFullError
from dragoman_server.request import Call, Decode, new_id
from tests.server.scheduler_stage import Stage, decode, wide


def add_work(stage: Stage, *work: Decode, stream: int | None = None) -> Call:
    call = Call(work=work, arrived=stage.clock.now, stream=stream)
    stage.scheduler.add(call)
    return call


def steps_until_done(stage: Stage, call: Call) -> int:
    steps = 0
    while call not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.step()
        steps += 1
        assert steps < 1000
    return steps


def test_a_caller_beside_a_call_of_256_texts_joins_at_the_next_step_and_never_waits():
    stage = Stage(max_batch_size=64)
    stage.add(*[30] * 256)
    for _ in range(7):
        stage.step()
    interactive = stage.add(5)
    assert len(stage.step().admit) == 1
    assert steps_until_done(stage, interactive) == 5 - 1


def test_bulk_rows_stand_still_most_of_the_time_where_they_make_steps_long():
    stage = Stage(max_batch_size=64)
    stage.batch.row_seconds = 0.0005
    stage.add(*[60] * 256)
    stage.add(*[60] * 4)
    for _ in range(3):
        stage.step()
    seconds = []
    for _ in range(60):
        interactive = stage.add(10)
        while interactive not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
            plan = stage.scheduler.schedule()
            output = stage.batch.run(plan)
            stage.scheduler.update(output)
            seconds.append(output.decode.seconds)
    # Alone a step takes 1.5 to 3.5 ms, with all rows beside it 33 ms.
    assert sum(seconds) / len(seconds) < 2 * 0.003
    assert max(seconds) > 0.02  # they do get their turns
    assert stage.value("sentences_total", finish_reason="eos") > 60


def test_a_bulk_call_alone_never_stands_still():
    stage = Stage(max_batch_size=64)
    stage.batch.row_seconds = 0.0005
    stage.add(*[9] * 100)
    assert all(plan.hold == frozenset() for plan in stage.run_until_idle())


def test_bulk_leaves_an_eighth_of_the_rows_free():
    stage = Stage(max_batch_size=32)
    stage.add(*[30] * 100)
    assert len(stage.step().admit) == 28
    for _ in range(4):
        stage.add(3)
    assert len(stage.step().admit) == 4


def test_a_crowd_of_callers_leaves_an_eighth_of_the_rows_to_bulk():
    stage = Stage(max_batch_size=32)
    for _ in range(100):
        stage.add(20)
    stage.step()
    bulk = stage.add(*[3] * 9)
    for _ in range(40):
        stage.step()
    for _ in range(300):
        stage.add(20)
    assert steps_until_done(stage, bulk) < 60  # behind the crowd it would be over 180


def test_rows_are_shared_and_not_sentences():
    stage = Stage(max_batch_size=64)
    beams, greedy = new_id(), new_id()
    for _ in range(100):
        add_work(stage, decode(30), stream=greedy)
    for _ in range(30):
        add_work(stage, wide(8, 30), stream=beams)
    rows = [sequence.options.num_rows for sequence in stage.step().admit]
    assert sum(rows) == 56
    assert abs(sum(n for n in rows if n == 8) - rows.count(1)) <= 8


def test_a_call_of_fewer_rows_is_first_and_not_one_of_fewer_sentences():
    stage = Stage(max_batch_size=64)
    add_work(stage, *[wide(8, 30)] * 30)
    stage.add(*[30] * 100)
    assert [sequence.options.num_rows for sequence in stage.step().admit] == [1] * 56


def test_the_items_of_two_streams_share_the_rows_evenly():
    stage = Stage(max_batch_size=64)
    for length in (30, 31):
        stream = new_id()
        for _ in range(100):
            add_work(stage, decode(length), stream=stream)
    lengths = [len(sequence.source_ids) for sequence in stage.step().admit]
    assert lengths.count(30) == lengths.count(31) == 28
    interactive = stage.add(5)
    assert steps_until_done(stage, interactive) == 5


def test_the_items_of_a_stream_are_one_caller():
    stage = Stage(max_batch_size=64)
    stream = new_id()
    for _ in range(100):
        add_work(stage, decode(30), stream=stream)
    stage.add(*[31] * 60)
    lengths = [len(sequence.source_ids) for sequence in stage.step().admit]
    # By even sharing both have had 60 when the call ends, and it doesn't end later here.
    assert lengths == [30] * 56
    admitted = [len(sequence.source_ids) for plan in stage.run_until_idle() for sequence in plan.admit]
    assert admitted == [30] * 4 + [31] * 60 + [30] * 40


@pytest.mark.parametrize("num_rows", [1, 8])
def test_calls_that_are_alike_end_in_the_order_in_which_they_came(num_rows: int):
    """However many wait; shared evenly, all would end late."""
    stage = Stage(max_batch_size=64)
    calls, ended = [], []
    for _ in range(100):
        calls += [stage.add(*[9] * num_rows) for _ in range(16 // num_rows)]
        stage.step()
        ended += [outcome.call for outcome in stage.scheduler.take_outcomes()]
    assert stage.value("waiting_requests") > 512
    stage.run_until_idle()
    ended += [outcome.call for outcome in stage.scheduler.take_outcomes()]
    assert ended == calls


def test_a_cancelled_item_of_a_stream_takes_no_other_with_it():
    stage = Stage(max_batch_size=8)
    stream = new_id()
    items = [add_work(stage, decode(4), stream=stream) for _ in range(20)]
    stage.step()
    for item in items[::2]:
        stage.scheduler.cancel(item.id)
    stage.run_until_idle()
    assert [outcome.call for outcome in stage.scheduler.take_outcomes()] == items[1::2]


@pytest.mark.parametrize("max_batch_size", [8, 9, 16])
def test_a_wide_bulk_sentence_gets_its_rows_beside_a_crowd_of_callers(max_batch_size: int):
    stage = Stage(max_batch_size=max_batch_size)
    bulk = add_work(stage, wide(8, 3), wide(8, 3), wide(8, 3))
    steps = 0
    while bulk not in [outcome.call for outcome in stage.scheduler.take_outcomes()]:
        stage.add(9)
        stage.step()
        steps += 1
        assert steps < 200


@pytest.mark.parametrize("max_batch_size", [8, 9, 16])
def test_a_caller_with_a_wide_search_gets_its_rows_beside_bulk(max_batch_size: int):
    stage = Stage(max_batch_size=max_batch_size)
    stage.add(*[9] * 200)
    stage.step()
    assert steps_until_done(stage, add_work(stage, wide(8, 3))) <= 9 + 3


def test_a_sentence_wider_than_the_batch_is_refused_and_holds_up_nobody():
    stage = Stage(max_batch_size=4)
    with pytest.raises(InvalidArgumentError, match="takes 8 rows of the batch; it has 4"):
        add_work(stage, wide(2, 3), wide(8, 3))
    stage.add(3)
    stage.run_until_idle()
    assert len(stage.scheduler.take_outcomes()) == 1


def test_bulk_calls_leave_places_in_the_queue_to_others():
    stage = Stage(max_batch_size=8, max_queue_size=64)
    stage.add(*[9] * 64)  # the first may be as large as the queue
    for _ in range(30):
        stage.step()
    waiting = int(stage.value("waiting_requests"))
    assert 0 < waiting < 56
    with pytest.raises(QueueFullError, match=f"{waiting} sentences wait, at most 56 may"):
        stage.add(*[9] * (57 - waiting))
    for _ in range(64 - waiting):
        stage.add(9)


def test_encoding_in_one_step_takes_no_longer_than_its_limit():
    stage = Stage(max_batch_size=64, max_prefill_seconds=0.002)  # 200 tokens at the speed of this batch
    stage.add(20)
    stage.run_until_idle()
    stage.add(*[20] * 100)
    assert 5 <= len(stage.step().admit) <= 10
    stage.scheduler.fail_all(QueueFullError(""))
