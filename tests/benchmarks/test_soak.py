"""What a soak says of memory that rises and falls with what runs."""

import random

import pytest
from soak import MAX_GROWTH, growth


def samples(leak: float) -> list[tuple[int, int]]:
    """Returns a hundred samples that scatter by 4 %, above a leak of so many bytes a request."""
    draw = random.Random(0)
    return [(done, round(400e6 + leak * done + draw.gauss(0, 16e6))) for done in range(5_000, 50_000, 450)]


def test_memory_that_scatters_without_a_trend_has_not_grown():
    assert growth(samples(0)) == pytest.approx(1, abs=0.01)


def test_a_leak_is_seen_through_the_scatter():
    assert growth(samples(400)) == pytest.approx(1.045, abs=0.01)
    assert growth(samples(400)) > MAX_GROWTH
