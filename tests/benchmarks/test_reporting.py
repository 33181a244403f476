"""Percentiles and verdicts: what would go unnoticed if it were wrong."""

import statistics

import pytest
from benchmarks.reporting import Bar, bars_table, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.9, 4.6), (0.99, 4.96), (1, 5.0)]
)
def test_percentiles_lie_between_neighbours_in_proportion(share, expected):
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], share) == pytest.approx(expected)


def test_percentiles_are_the_standard_librarys_inclusive_ones():
    values = [float(value * value % 101) for value in range(57)]
    expected = statistics.quantiles(values, n=100, method="inclusive")
    assert [percentile(values, number / 100) for number in range(1, 100)] == pytest.approx(expected)


def test_the_percentile_of_one_value_is_that_value():
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(
    ("value", "higher_is_better", "verdict"),
    [
        (1.3, True, "aim"),
        (1.29, True, "must"),
        (0.9, True, "must"),
        (0.89, True, "missed"),
        (None, True, "not measured"),
        (0.89, False, "aim"),
        (1.0, False, "must"),
        (1.31, False, "missed"),
    ],
)
def test_a_verdict_goes_by_must_and_aim(value, higher_is_better, verdict):
    must, aim = (0.9, 1.3) if higher_is_better else (1.3, 0.9)
    bar = Bar(what="speed", value=value, must=must, aim=aim, higher_is_better=higher_is_better)
    assert bar.verdict == verdict


def test_the_table_shows_the_spread_and_why_nothing_was_measured():
    measured = Bar(what="speed", value=1.0, must=0.9, aim=1.3, values=(0.95, 1.0, 1.2))
    missing = Bar(what="latency", value=None, must=1.5, aim=1.0, higher_is_better=False, note="no int8 here")
    rows = bars_table([measured, missing]).splitlines()[2:]
    assert rows == [
        "| speed | ≥ 0.9 | ≥ 1.3 | 1.00 | 0.95–1.20 | must |",
        "| latency | ≤ 1.5 | ≤ 1 | — |  | not measured (no int8 here) |",
    ]
