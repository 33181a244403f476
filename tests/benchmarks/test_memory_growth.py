"""What is said of memory that rises and falls with what runs."""

import random
import statistics

import pytest
from memory_growth import MAX_GROWTH, growth, growth_check, settled_growth


def samples(leak: float, seed: int = 0) -> list[tuple[float, float]]:
    """Returns a hundred samples that scatter by 4 %, above a leak of so many bytes a request."""
    draw = random.Random(seed)
    return [(done, round(400e6 + leak * done + draw.gauss(0, 16e6))) for done in range(5_000, 50_000, 450)]


def test_memory_that_scatters_without_a_trend_has_not_grown():
    assert growth(samples(0)).ratio == pytest.approx(1, abs=0.01)


def test_a_leak_is_seen_through_the_scatter():
    assert growth(samples(400)).ratio == pytest.approx(1.045, abs=0.01)
    assert growth(samples(400)).ratio > MAX_GROWTH


def test_the_standard_error_is_how_much_the_growth_scatters():
    found = [growth(samples(400, seed)) for seed in range(200)]
    scatter = statistics.stdev(one.ratio for one in found)
    assert statistics.mean(one.standard_error for one in found) == pytest.approx(scatter, rel=0.15)


def test_memory_on_a_line_has_no_error():
    found = growth([(0, 100.0), (1, 110.0), (5, 150.0)])
    assert found.ratio == pytest.approx(1.5)
    assert found.standard_error == pytest.approx(0, abs=1e-9)


def test_what_a_process_takes_to_find_its_size_is_no_growth():
    found = settled_growth([(0, 50.0), (5, 90.0), *((done, 100.0) for done in range(11, 101))])
    assert found is not None
    assert found.ratio == pytest.approx(1)


@pytest.mark.parametrize("few", [[], [(0, 1.0)], [(0, 1.0), (10, 1.0), (20, 1.0)], [(7, 1.0)] * 5])
def test_growth_that_cannot_be_told_does_not_hold(few):
    assert settled_growth(few) is None
    assert not growth_check("memory", settled_growth(few)).holds
