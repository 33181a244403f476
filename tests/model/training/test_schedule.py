import pytest

from dragoman_model.training.schedule import learning_rate, run_progress


@pytest.mark.parametrize(
    ("step", "warmup_steps", "progress", "expected"),
    [
        (1, 4, 0.0, 0.5),
        (2, 4, 0.0, 1.0),
        (4, 4, 0.0, 2.0),
        (5, 4, 0.0, 2.0),
        (1, 0, 0.0, 2.0),
        (100, 4, 0.5, 1.0),
        (100, 4, 0.75, 0.5),
        (100, 4, 1.0, 0.0),
        (100, 4, 1.2, 0.0),
        (2, 4, 0.5, 0.5),
    ],
)
def test_the_rate_rises_in_warm_up_and_falls_to_zero_with_the_budget(step, warmup_steps, progress, expected):
    assert learning_rate(2.0, step, warmup_steps, progress) == pytest.approx(expected)


def test_the_rate_is_highest_at_the_end_of_warm_up_and_never_rises_after_it():
    rates = [learning_rate(1e-3, step, 10, run_progress(step - 1, 200, 0.0, None)) for step in range(1, 202)]
    assert max(rates) == rates[9] == pytest.approx(1e-3 * (1 - 9 / 200))
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == 0.0


@pytest.mark.parametrize(
    ("step", "seconds", "max_seconds", "expected"),
    [
        (0, 0.0, None, 0.0),
        (30, 1e9, None, 0.3),
        (100, 0.0, None, 1.0),
        (30, 10.0, 20.0, 0.5),
        (60, 10.0, 20.0, 0.6),
        (30, 25.0, 20.0, 1.0),
        (0, 0.0, 0.0, 1.0),
    ],
)
def test_progress_is_the_share_of_updates_or_of_time_whichever_is_more(step, seconds, max_seconds, expected):
    assert run_progress(step, 100, seconds, max_seconds) == pytest.approx(expected)
