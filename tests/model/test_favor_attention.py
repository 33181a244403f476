import math

import pytest
import torch

from dragoman_model.attention import Mechanism
from dragoman_model.favor_attention import FavorAttention, orthogonal_directions
from dragoman_model.transformer import Transformer
from tests.model.memory import largest_tensor
from tests.models import tiny_config

B, H, T, S, K = 3, 2, 5, 7, 8


def random_inputs(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, K, generator=generator, dtype=dtype).requires_grad_() for n in (T, S, S)]


def make_attention(num_features=11, seed=0):
    torch.manual_seed(seed)
    return FavorAttention(num_features, K)


PADDING = (torch.arange(S) < torch.tensor([[7], [4], [1]]))[:, None, None]  # (B, 1, 1, S)


# The formula


def weights_by_hand(directions, queries, keys, allowed):
    """The weights of one head in plain Python: lists of rows, no tensors."""

    def features(x):
        x = [value / K**0.25 for value in x]
        square = sum(value * value for value in x)
        return [
            math.exp(sum(w * v for w, v in zip(direction, x)) - square / 2) / math.sqrt(len(directions))
            for direction in directions
        ]

    rows = []
    for query in queries:
        products = [sum(a * b for a, b in zip(features(query), features(key))) for key in keys]
        products = [product * may for product, may in zip(products, allowed)]
        rows.append([product / sum(products) for product in products])
    return rows


@pytest.mark.parametrize("mask", [None, PADDING])
def test_weights_and_output_equal_the_formula_in_plain_python(mask):
    attention = make_attention()
    queries, keys, values = inputs = random_inputs()
    output, weights = attention(*inputs, mask, need_weights=True)
    linear, nothing = attention(*inputs, mask)
    assert nothing is None
    for b in range(B):
        allowed = [True] * S if mask is None else mask[b, 0, 0].tolist()
        for h in range(H):
            rows = weights_by_hand(
                attention.directions.tolist(), queries[b, h].tolist(), keys[b, h].tolist(), allowed
            )
            expected = torch.tensor(rows, dtype=torch.float64)
            torch.testing.assert_close(weights[b, h], expected, rtol=0, atol=1e-13)
            torch.testing.assert_close(output[b, h], expected @ values[b, h], rtol=0, atol=1e-13)
            torch.testing.assert_close(linear[b, h], expected @ values[b, h], rtol=0, atol=1e-13)


def test_the_gradient_is_that_of_differences():
    attention, inputs = make_attention(5), [x[:2, :1, :3].detach().requires_grad_() for x in random_inputs()]
    mask = torch.tensor([[True, True, False], [True, False, False]])[:, None, None]
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask)[0], inputs)
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask, need_weights=True)[1], inputs)


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_a_distribution_however_large_the_scores(dtype, size):
    attention = make_attention(16)
    queries, keys, values = (x.detach() * size for x in random_inputs(dtype))
    output, weights = attention(queries, keys, values, PADDING, need_weights=True)
    linear, _ = attention(queries, keys, values, PADDING)
    assert weights.dtype == torch.float32
    assert linear.dtype == output.dtype == dtype
    assert linear.isfinite().all()
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T), rtol=0, atol=1e-5)
    torch.testing.assert_close(linear.float(), weights @ values.float(), rtol=0, atol=size / 20)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_masked_position_has_weight_zero_exactly_and_no_influence(need_weights):
    attention = make_attention()
    queries, keys, values = (x.detach() for x in random_inputs(torch.float32))
    output, weights = attention(queries, keys, values, PADDING, need_weights=need_weights)
    masked = ~PADDING.expand(B, H, 1, S)[:, :, 0]
    keys[masked], values[masked] = 50.0, -50.0
    again, _ = attention(queries, keys, values, PADDING, need_weights=need_weights)
    assert again.equal(output)
    if need_weights:
        assert (weights[~PADDING.expand_as(weights)] == 0).all()


def test_without_any_token_there_is_nothing_and_no_gradient():
    attention, inputs = make_attention(), random_inputs()
    mask = PADDING.clone()
    mask[1] = False
    output, weights = attention(*inputs, mask, need_weights=True)
    linear, _ = attention(*inputs, mask)
    for result in (output, weights, linear):
        assert (result[1] == 0).all()
        assert (result[0] != 0).any()
    linear.pow(2).sum().backward()
    for x in inputs:
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()


# The estimate


def test_the_error_against_softmax_falls_as_the_root_of_the_number_of_features():
    # Products of features are log-normal: the larger the scores, the more features it takes until the law shows.
    queries, keys, values = (x.detach() * 0.4 for x in random_inputs())
    exact, exact_weights = Mechanism()(queries, keys, values, PADDING, need_weights=True)
    sizes, errors, weight_errors = [64, 256, 1024, 4096], [], []
    for num_features in sizes:
        squares = []
        for seed in range(20):
            out, weights = make_attention(num_features, seed)(
                queries, keys, values, PADDING, need_weights=True
            )
            squares.append([(out - exact).square().mean(), (weights - exact_weights).square().mean()])
        error, weight_error = torch.tensor(squares).mean(0).sqrt().tolist()
        errors.append(error)
        weight_errors.append(weight_error)
    for measured in (errors, weight_errors):
        assert slope(sizes, measured) == pytest.approx(-0.5, abs=0.05)
    assert weight_errors[-1] < 0.002


def slope(x, y):
    """The exponent b of y = a · x^b, fitted in logarithms."""
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (x, y))
    x, y = x - x.mean(), y - y.mean()
    return ((x * y).sum() / x.square().sum()).item()


def kernel_errors(draw, num_draws=2000):
    """Errors of the estimate of exp(x · y) for one pair, drawn anew each time."""
    torch.manual_seed(0)
    x, y = torch.randn(2, K).double() * 0.5
    errors = []
    for _ in range(num_draws):
        w = draw().double()
        features = [(w @ v - v @ v / 2).exp() for v in (x, y)]
        errors.append((features[0] * features[1]).mean() - (x @ y).exp())
    return torch.stack(errors)


def test_the_estimate_has_no_bias_and_orthogonal_directions_err_less_than_independent_ones():
    orthogonal = kernel_errors(lambda: orthogonal_directions(K, K))
    independent = kernel_errors(lambda: torch.randn(K, K))
    for errors in (orthogonal, independent):
        assert errors.mean().abs() < 4 * errors.std() / math.sqrt(len(errors))
    assert orthogonal.var() < 0.9 * independent.var()


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    torch.manual_seed(0)
    directions = orthogonal_directions(8 * 250 + 3, 8)
    assert directions.shape == (2003, 8)
    blocks = directions[:2000].unflatten(0, (250, 8)).double()
    products = blocks @ blocks.transpose(1, 2)
    lengths = products.diagonal(dim1=1, dim2=2)
    assert (products - lengths.diag_embed()).abs().max() < 1e-5
    assert lengths.mean().item() == pytest.approx(8, rel=0.05)  # χ² with 8 degrees of freedom
    assert lengths.var().item() == pytest.approx(16, rel=0.15)
    assert directions.mean().abs() < 0.03
    assert directions.var(0).tolist() == pytest.approx([1.0] * 8, rel=0.15)


# In a model


@pytest.mark.parametrize("trained", [True, False])
def test_memory_grows_as_the_length_and_not_as_its_square(trained):
    largest = [largest_tensor(FavorAttention(16, 5), length, trained=trained) for length in (50, 200, 400)]
    assert largest[1] == 4 * largest[0]
    assert largest[2] == 8 * largest[0]


def test_a_seed_draws_the_features_and_each_layer_its_own():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        transformer = Transformer(tiny_config(encoder_attention="favor", attention_features=9))
        drawn.append([layer.self_attention.mechanism.directions for layer in transformer.encoder])
    assert drawn[0][0].shape == (9, 8)
    assert drawn[0][0].equal(drawn[1][0])
    assert not drawn[0][0].equal(drawn[0][1])
    assert not drawn[0][0].equal(drawn[2][0])
