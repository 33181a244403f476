import pytest

from dragoman_model.plan import BatchOutput, PhaseStats
from dragoman_server.sentences import Lane
from dragoman_server.speed import MIN_MEASURED_STEPS, Average, RowSteps, Speed


def step(seconds: float, *, rows: int = 4, prefill_seconds: float = 0.0, tokens: int = 10) -> BatchOutput:
    prefill = PhaseStats(prefill_seconds, 2, tokens - 3, 3) if prefill_seconds else None
    return BatchOutput([], [], prefill, PhaseStats(seconds, rows, rows, 0))


def test_an_average_follows_what_changes_and_outlives_a_hiccup():
    average = Average(8)
    for _ in range(20):
        average.add(1.0)
    average.add(1000.0)
    assert average.value < 1.5
    for _ in range(60):
        average.add(2.0)
    assert average.value == pytest.approx(2.0, abs=0.01)


def test_nothing_is_known_before_enough_steps_and_a_whole_sentence():
    speed = Speed(4)
    speed.observe_sentence(10)
    for _ in range(MIN_MEASURED_STEPS - 1):
        speed.observe(step(0.01))
    assert not speed.is_known
    speed.observe(step(0.01))
    assert speed.is_known

    without_sentence = Speed(4)
    for _ in range(2 * MIN_MEASURED_STEPS):
        without_sentence.observe(step(0.01))
    assert not without_sentence.is_known


def test_rows_come_free_as_fast_as_sentences_end():
    speed = Speed(4)
    for _ in range(MIN_MEASURED_STEPS):
        speed.observe(step(0.006, prefill_seconds=0.004))
        speed.observe_sentence(20)
    # Four rows, each busy for 20 steps of 10 ms: one comes free every 50 ms.
    assert speed.row_wait(12) == pytest.approx(0.6)


def test_what_goes_on_beside_the_passes_takes_time_too():
    speed = Speed(4)
    for _ in range(MIN_MEASURED_STEPS):
        speed.observe(step(0.006, prefill_seconds=0.004), elapsed=0.02)
        speed.observe_sentence(20)
    assert speed.row_wait(12) == pytest.approx(1.2)


def test_what_small_batches_take_says_little_of_a_full_one():
    speed = Speed(64)
    speed.observe_sentence(16)
    for _ in range(MIN_MEASURED_STEPS):
        speed.observe(step(0.001, rows=3))
    assert speed.row_wait(64) == pytest.approx(0.016)  # until some have been seen
    for _ in range(100):
        speed.observe(step(0.006, rows=64))
    for _ in range(100):
        speed.observe(step(0.001, rows=3))
    assert speed.row_wait(64) == pytest.approx(0.096, rel=0.01)


def test_rows_that_stand_still_take_no_step():
    steps = RowSteps()
    steps.begin(1, Lane.INTERACTIVE)
    steps.begin(2, Lane.BULK)
    steps.count({Lane.INTERACTIVE, Lane.BULK})
    steps.begin(3, Lane.BULK)
    for _ in range(3):
        steps.count({Lane.INTERACTIVE})
    assert [steps.since(sentence_id) for sentence_id in (1, 2, 3)] == [4, 1, 0]
    steps.end(1)
    assert steps.since(1) == 0


def test_rows_come_free_more_slowly_among_few_of_them():
    speed = Speed(64)
    for _ in range(MIN_MEASURED_STEPS):
        speed.observe(step(0.01, rows=64))
        speed.observe_sentence(20)
    assert speed.row_wait(16) == pytest.approx(0.05)
    assert speed.row_wait(16, 8) == pytest.approx(0.4)


def test_the_cost_of_encoding_a_token_is_measured_with_its_padding():
    speed = Speed(4)
    assert speed.prefill_token_seconds == 0
    speed.observe(step(0.006, prefill_seconds=0.004, tokens=40))
    assert speed.prefill_token_seconds == pytest.approx(0.0001)
