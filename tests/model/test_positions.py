import math

import pytest
import torch

from dragoman_model.attention import MultiHeadAttention
from dragoman_model.errors import UnknownPositionError
from dragoman_model.inference import InferenceModel
from dragoman_model.positions import rotate, rotation, sinusoidal_positions
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


# Rotary


def test_a_rotation_turns_pairs_of_coordinates_by_the_formula():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    turned = rotate(x, *rotation(torch.tensor([0, 1, 41]), 6, torch.float64))
    for row, position in enumerate((0, 1, 41)):
        for i in range(3):
            angle = position * 10000 ** (-2 * i / 6)
            first, second = x[row, 2 * i].item(), x[row, 2 * i + 1].item()
            assert turned[row, 2 * i : 2 * i + 2].tolist() == pytest.approx(
                [
                    first * math.cos(angle) - second * math.sin(angle),
                    first * math.sin(angle) + second * math.cos(angle),
                ],
                abs=1e-14,
            )
    torch.testing.assert_close(turned.norm(dim=1), x.norm(dim=1))


@pytest.mark.parametrize("shift", [1, 7, 10_000])
def test_rotary_scores_depend_on_the_offset_alone(shift):
    generator = torch.Generator().manual_seed(1)
    queries, keys = (torch.randn(9, 8, generator=generator, dtype=torch.float64) for _ in range(2))

    def scores(start):
        turns = rotation(torch.arange(start, start + 9), 8, torch.float64)
        return rotate(queries, *turns) @ rotate(keys, *turns).T

    torch.testing.assert_close(scores(shift), scores(0), rtol=0, atol=1e-10)
    assert (scores(0) - queries @ keys.T).abs().max() > 0.1  # they do depend on the offset


def test_rotary_self_attention_is_that_of_turned_queries_and_keys():
    torch.manual_seed(0)
    plain = MultiHeadAttention(8, 2).double()
    rotary = MultiHeadAttention(8, 2, is_rotary=True).double()
    rotary.load_state_dict(plain.state_dict())
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    turns = rotation(torch.arange(5), 4, torch.float64)
    keys, values = plain.project_keys_values(x)
    expected = plain.attend(rotate(plain.project_queries(x), *turns), rotate(keys, *turns), values, None)[0]
    torch.testing.assert_close(rotary(x, x)[0], expected)
    assert (rotary(x, x)[0] - plain(x, x)[0]).abs().max() > 1e-3


# Lengths beyond those of the configuration


def encode_both(transformer, length):
    """Returns the memory of a long source, and its cross-attention keys and values in the form that serves."""
    generator = torch.Generator().manual_seed(0)
    src_ids = torch.randint(4, 384, (1, length), generator=generator)
    with torch.no_grad():
        memory = transformer.encode(src_ids, transformer.source_mask(src_ids))
        served = InferenceModel(transformer).encode(src_ids.tolist()).keys_values
        keys, _ = transformer.decoder[0].cross_attention.project_keys_values(memory)
    torch.testing.assert_close(served[:, 0, 0], keys[0].transpose(0, 1), rtol=0, atol=1e-10)
    return memory


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_positions_by_a_formula_go_beyond_the_configured_length(positions):
    memories = []
    for limit in (9, 64):
        torch.manual_seed(0)
        config = tiny_config(positions=positions, max_source_length=limit, max_target_length=limit)
        transformer = Transformer(config).double().eval()
        memories.append(encode_both(transformer, 40))
        with torch.no_grad():
            tgt_ids = torch.full((1, 40), 5)
            logits = transformer.decode(tgt_ids, memories[-1], torch.ones(1, 40, dtype=torch.bool))
        assert logits.isfinite().all()
    # Within the table, sines are rounded to float32 alike.
    torch.testing.assert_close(memories[0], memories[1], rtol=0, atol=1e-6)


def test_learned_positions_refuse_lengths_they_never_had():
    config = tiny_config(positions="learned", max_source_length=9, max_target_length=6)
    transformer = Transformer(config).double().eval()
    memory = encode_both(transformer, 9)
    real = torch.ones(1, 9, dtype=torch.bool)
    assert transformer.decode(torch.full((1, 6), 5), memory, real).isfinite().all()
    with pytest.raises(UnknownPositionError, match=r"a target of 7 tokens.*learnt for 6.*max_target_length"):
        transformer.decode(torch.full((1, 7), 5), memory, real)
    with pytest.raises(UnknownPositionError, match=r"a source of 10 tokens.*learnt for 9.*max_source_length"):
        transformer.encode(torch.full((1, 10), 5), torch.ones(1, 10, dtype=torch.bool))
    with pytest.raises(UnknownPositionError, match="a source of 10 tokens"):
        InferenceModel(transformer).encode([[5] * 10])


def test_each_learned_position_is_its_row_scaled_as_embeddings_are():
    transformer = Transformer(tiny_config(positions="learned"))
    assert transformer.source_positions(7).equal(transformer.source_position_embedding[:7] * 4)
    assert transformer.target_positions(7).equal(transformer.target_position_embedding[:7] * 4)
    assert not transformer.source_positions(7).equal(transformer.target_positions(7))
