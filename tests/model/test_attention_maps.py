"""Each function against plain loops over lists."""

import pytest
import torch

from dragoman_model.attention_maps import (
    average_rows,
    cross_rollout,
    keep,
    largest,
    max_over,
    mean_over,
    quantise,
    renormalise,
    rollout,
    sum_columns,
)

L, H, T, S = 3, 2, 5, 7
COLUMN_GROUPS = [[0], [1, 2, 4], [3], [5, 6]]
ROW_GROUPS = [[0, 2], [1], [3, 4]]


def attention(*shape, seed=0, causal=False):
    """Returns weights whose rows sum to 1."""
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if causal:
        scores = scores.masked_fill(torch.ones(shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)


def assert_rows_sum_to_one(weights):
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-12)


def product(a, b):
    return [[sum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]


def rollout_by_hand(layers):
    size = len(layers[0])
    rolled = [[float(i == j) for j in range(size)] for i in range(size)]
    for layer in layers:
        step = [[0.5 * layer[i][j] + 0.5 * (i == j) for j in range(size)] for i in range(size)]
        rolled = product(step, rolled)
    return rolled


@pytest.mark.parametrize("axis", [0, 1])
def test_mean_and_maximum_over_an_axis_are_taken_place_by_place(axis):
    weights = attention(L, H, T, S)
    listed = weights.movedim(axis, 0).tolist()
    others = H if axis == 0 else L
    places = [(i, r, c) for i in range(others) for r in range(T) for c in range(S)]
    for place in places:
        i, r, c = place
        values = [one[i][r][c] for one in listed]
        assert mean_over(weights, axis)[place].item() == pytest.approx(sum(values) / len(values), abs=1e-14)
        assert max_over(weights, axis)[place].item() == max(values)
    assert_rows_sum_to_one(mean_over(weights, axis))


def test_rollout_is_the_product_of_layers_that_pass_half_on_as_it_is():
    layers = attention(L, S, S)
    close(rollout(layers), rollout_by_hand(layers.tolist()))
    assert_rows_sum_to_one(rollout(layers))


def test_rollout_of_layers_that_look_elsewhere_keeps_what_the_residual_connection_carries():
    shift = torch.roll(torch.eye(4, dtype=torch.float64), 1, 1)  # each position looks at the next alone
    binomial = rollout(torch.stack([shift] * 3))[0].tolist()
    assert binomial == [1 / 8, 3 / 8, 3 / 8, 1 / 8]


def test_rollout_of_causal_layers_is_zero_exactly_where_all_are_masked():
    rolled = rollout(attention(L, T, T, causal=True))
    assert (rolled.triu(1) == 0).all()
    assert (rolled.tril() > 0).sum() == T * (T + 1) // 2


def test_rollout_of_cross_attention_reaches_through_the_encoder():
    cross, layers = attention(T, S, seed=1), attention(L, S, S, seed=2)
    expected = product(cross.tolist(), rollout_by_hand(layers.tolist()))
    close(cross_rollout(cross, rollout(layers)), expected)
    assert_rows_sum_to_one(cross_rollout(cross, rollout(layers)))


def test_attention_to_a_word_is_the_sum_of_that_to_its_pieces():
    weights = attention(H, T, S)
    expected = [
        [[sum(row[c] for c in columns) for columns in COLUMN_GROUPS] for row in head]
        for head in weights.tolist()
    ]
    close(sum_columns(weights, COLUMN_GROUPS), expected)
    assert_rows_sum_to_one(sum_columns(weights, COLUMN_GROUPS))


def test_attention_from_a_word_is_the_mean_of_that_from_its_pieces():
    weights = attention(H, T, S)
    expected = [
        [[sum(head[r][c] for r in rows) / len(rows) for c in range(S)] for rows in ROW_GROUPS]
        for head in weights.tolist()
    ]
    close(average_rows(weights, ROW_GROUPS), expected)
    assert_rows_sum_to_one(average_rows(weights, ROW_GROUPS))


def test_no_groups_leave_no_columns_and_no_rows():
    weights = attention(H, T, S)
    assert sum_columns(weights, []).shape == (H, T, 0)
    assert average_rows(weights, []).shape == (H, 0, S)


def test_what_is_kept_of_a_row_sums_to_one_again():
    weights = attention(H, T, S)
    rows, columns = [0, 3, 4], [1, 2, 5]
    expected = [
        [[head[r][c] / sum(head[r][k] for k in columns) for c in columns] for r in rows]
        for head in weights.tolist()
    ]
    close(keep(weights, rows, columns), expected)
    assert_rows_sum_to_one(keep(weights, rows, columns))


def test_a_row_that_loses_all_its_weight_is_zero_and_never_nan():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    assert keep(weights, [0, 1], [1, 2]).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    assert keep(weights, [0], []).shape == (1, 0)
    assert keep(weights, [], [1]).shape == (0, 1)
    assert renormalise(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("count", [1, 3, S, S + 4])
def test_the_largest_weights_of_a_row_come_largest_first(count):
    weights = attention(H, T, S)
    indices, values = largest(weights, count)
    assert indices.dtype == torch.int32
    for head, head_indices, head_values in zip(weights.tolist(), indices.tolist(), values.tolist()):
        for row, row_indices, row_values in zip(head, head_indices, head_values):
            expected = sorted(range(S), key=lambda column: -row[column])[:count]
            assert row_indices == expected
            assert row_values == [row[column] for column in expected]


def test_of_equal_weights_the_lower_column_comes_first():
    indices, _ = largest(torch.tensor([[0.25] * 4, [0.0, 0.5, 0.0, 0.5]]), 3)
    assert indices.tolist() == [[0, 1, 2], [1, 3, 0]]


def test_a_quantised_weight_is_off_by_half_a_step_at_most():
    weights = torch.linspace(0, 1, 1001)
    quantised = quantise(weights)
    assert quantised.dtype == torch.uint8
    assert [quantised[0], quantised[-1]] == [0, 255]
    for weight, value in zip(weights.tolist(), quantised.tolist()):
        assert abs(value / 255 - weight) <= 1 / 510 + 1e-7
