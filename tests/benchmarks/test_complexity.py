"""Growth, reach and chains: what a wrong table would come from."""

import pytest
import torch
from benchmarks.complexity import growth_exponent
from benchmarks.layers_compared import (
    longest_chain,
    make_layers,
    path_length,
    peak_bytes,
    positions_reached,
    sequential_steps,
)

N = 130  # positions: past two windows


@pytest.fixture(scope="module")
def layers():
    return {
        layer.name.split(",")[-1 if "full" in layer.name else 0].strip(): layer for layer in make_layers()
    }


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, -0.5])
def test_the_exponent_of_a_power_is_found_whatever_its_factor(exponent):
    lengths = [64, 256, 1024]
    assert growth_exponent(lengths, [7.5 * n**exponent for n in lengths]) == pytest.approx(exponent)


def test_the_exponent_is_that_of_the_nearest_line_in_logarithms():
    assert growth_exponent([1, 2, 4], [1.0, 4.0, 4.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "reach"),
    [
        ("LSTM", lambda t, s: 0 <= t - s <= 1),
        ("convolution", lambda t, s: abs(t - s) <= 4),
        ("explicit", lambda t, s: True),
        ("fused", lambda t, s: True),
        ("sliding window", lambda t, s: abs(t - s) < 64),
        ("linear (FAVOR+)", lambda t, s: True),
    ],
)
def test_a_gradient_reaches_what_the_layer_lets_it_reach(layers, name, reach):
    reached = positions_reached(layers[name].update, N)
    assert reached.tolist() == [[reach(t, s) for s in range(N)] for t in range(N)]


@pytest.mark.parametrize(("reach", "expected"), [(1, 12), (2, 6), (5, 3), (11, 2), (12, 1), (40, 1), (0, 0)])
def test_the_path_is_as_long_as_it_takes_from_the_first_position_to_the_last(reach, expected):
    positions = torch.arange(13)
    assert path_length((positions[:, None] - positions).abs() <= reach) == expected


@pytest.mark.parametrize(
    ("name", "steps"),
    [("LSTM", 66), ("convolution", 1), ("explicit", 1), ("sliding window", 1), ("linear (FAVOR+)", 1)],
)
def test_only_what_recurs_has_to_wait_for_every_position(layers, name, steps):
    assert sequential_steps(layers[name].apply, 66) == steps


def test_a_chain_counts_operators_that_read_one_another_and_no_views():
    assert longest_chain(lambda x: x.transpose(1, 2)[0], 3) == 0
    assert longest_chain(lambda x: x.sin() + x.cos(), 3) == 2
    assert longest_chain(lambda x: x.sin().cos().add_(1).exp(), 3) == 4


def test_peak_memory_is_what_was_held_at_once():
    kilobyte = 256 * 4
    assert peak_bytes(lambda x: x.sin().cos(), 4) == 2 * kilobyte  # 4 × 64 floats are 1 KiB
    assert peak_bytes(lambda x: [x.sin(), x.cos(), x.exp()], 4) == 3 * kilobyte
    assert peak_bytes(lambda x: x.sin(), 8) == 2 * kilobyte
