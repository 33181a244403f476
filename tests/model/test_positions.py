import math

import pytest
import torch

from dragoman_model.positions import sinusoidal_positions
from dragoman_model.transformer import Transformer
from tests.models import tiny_config

LAYOUTS = ["interleaved", "concatenated"]


def position_by_hand(position, d_model, layout):
    angles = [position / 10000 ** (2 * i / d_model) for i in range(d_model // 2)]
    if layout == "interleaved":
        return [f(angle) for angle in angles for f in (math.sin, math.cos)]
    return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_position_is_the_formula(layout):
    table = sinusoidal_positions(300, 6, layout)
    assert table.shape == (300, 6)
    assert table.dtype == torch.float32
    for position in (0, 1, 2, 17, 299):
        assert table[position].tolist() == pytest.approx(position_by_hand(position, 6, layout), abs=6e-8)


def test_small_values_by_hand():
    assert sinusoidal_positions(2, 4).tolist() == [
        [0.0, 1.0, 0.0, 1.0],
        pytest.approx([0.841471, 0.540302, 0.0099998, 0.99995], abs=1e-6),
    ]
    assert sinusoidal_positions(1, 4, "concatenated").tolist() == [[0.0, 0.0, 1.0, 1.0]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shift", [1, 5, 40])
def test_a_shift_is_one_rotation_for_all_positions(layout, shift):
    d_model = 8
    table = sinusoidal_positions(200, d_model, layout).double()
    # The linear map is found from a few positions and must then hold for all others.
    few = 60
    solution = torch.linalg.lstsq(table[:few], table[shift : few + shift], driver="gelsd").solution
    torch.testing.assert_close(table[:-shift] @ solution, table[shift:], rtol=0, atol=1e-4)
    rotation = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(d_model // 2):
        angle = shift / 10000 ** (2 * i / d_model)
        sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d_model // 2)
        rotation[sine, sine] = rotation[cosine, cosine] = math.cos(angle)
        rotation[sine, cosine], rotation[cosine, sine] = math.sin(angle), -math.sin(angle)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(d_model).double())
    torch.testing.assert_close(table[:-shift] @ rotation.T, table[shift:], rtol=0, atol=1e-6)


def test_both_layouts_hold_the_same_numbers():
    interleaved, concatenated = (sinusoidal_positions(9, 6, layout) for layout in LAYOUTS)
    assert interleaved[:, 0::2].equal(concatenated[:, :3])
    assert interleaved[:, 1::2].equal(concatenated[:, 3:])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_encoder_is_permutation_equivariant_without_positions_and_not_with_them(norm):
    torch.manual_seed(0)
    transformer = Transformer(tiny_config(norm=norm)).double().eval()
    src_ids = torch.randint(4, 384, (3, 7))
    order = torch.tensor([3, 0, 6, 1, 2, 5, 4])
    real = torch.ones(3, 7, dtype=torch.bool)
    with torch.no_grad():
        with_positions = transformer.encode(src_ids, real)[:, order]
        moved_with_positions = transformer.encode(src_ids[:, order], real)
        transformer.positions.zero_()
        without = transformer.encode(src_ids, real)[:, order]
        moved_without = transformer.encode(src_ids[:, order], real)
    torch.testing.assert_close(moved_without, without, rtol=0, atol=1e-12)
    assert (moved_with_positions - with_positions).abs().max() > 0.1
