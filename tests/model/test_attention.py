import itertools
import math

import pytest
import torch
from torch import nn

from dragoman_model.attention import MultiHeadAttention, causal_mask, explicit_attention, fused_attention

B, T, S, H, K = 3, 5, 7, 2, 3


def random_inputs(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, n, K, generator=generator, dtype=dtype) for n in (T, S, S)]


def random_mask(seed=1):
    """Some keys for every query."""
    mask = torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    return mask


def fused_and_explicit(queries, keys, values, mask=None):
    return fused_attention(queries, keys, values, mask), explicit_attention(queries, keys, values, mask)[0]


def attention_by_hand(queries, keys, values, allowed=None):
    """Scaled dot-product attention of one head in plain Python: lists of rows, no tensors."""
    outputs, all_weights = [], []
    for t, query in enumerate(queries):
        scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(len(query)) for key in keys]
        exps = [
            math.exp(score) if allowed is None or allowed[t][s] else 0.0 for s, score in enumerate(scores)
        ]
        weights = [e / sum(exps) for e in exps]
        outputs.append([sum(w * v[j] for w, v in zip(weights, values)) for j in range(len(values[0]))])
        all_weights.append(weights)
    return outputs, all_weights


# The formula


def test_three_tokens_by_hand():
    queries = keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    output, weights = explicit_attention(queries, keys, values)
    assert weights[0].tolist() == pytest.approx([0.401, 0.198, 0.401], abs=5e-4)
    assert weights[2, 2].item() == pytest.approx(0.503, abs=5e-4)
    assert output[0].tolist() == pytest.approx([0.602, 0.398], abs=5e-4)
    fused = fused_attention(queries[None, None], keys[None, None], values[None, None])[0, 0]
    assert fused[0].tolist() == pytest.approx([0.602, 0.398], abs=5e-4)


@pytest.mark.parametrize("masked", [False, True])
def test_both_forms_equal_the_formula_in_plain_python(masked):
    queries, keys, values = random_inputs()
    mask = random_mask() if masked else None
    output, weights = explicit_attention(queries, keys, values, mask)
    fused = fused_attention(queries, keys, values, mask)
    for b in range(B):
        allowed = mask[b, 0].tolist() if masked else None
        for h in range(H):
            by_hand = attention_by_hand(*(x[b, h].tolist() for x in (queries, keys, values)), allowed)
            expected_output, expected_weights = (torch.tensor(x, dtype=torch.float64) for x in by_hand)
            torch.testing.assert_close(weights[b, h], expected_weights, rtol=0, atol=1e-14)
            torch.testing.assert_close(output[b, h], expected_output, rtol=0, atol=1e-14)
            torch.testing.assert_close(fused[b, h], expected_output, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_weights_of_a_query_sum_to_one_in_any_precision(dtype):
    queries, keys, values = random_inputs(dtype)
    for mask in (None, random_mask()):
        weights = explicit_attention(queries * 5, keys * 5, values, mask)[1]
        assert weights.dtype == torch.promote_types(dtype, torch.float32)
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("mask", [None, "random", "padding", "causal"])
def test_fused_equals_explicit(dtype, tolerance, mask):
    queries, keys, values = random_inputs(dtype)
    if mask == "causal":
        keys, values = keys[:, :, :T], values[:, :, :T]
    masks = {
        "random": random_mask(),
        "padding": (torch.arange(S) < torch.tensor([[7], [4], [1]]))[:, None, None],
        "causal": causal_mask(T),
        None: None,
    }
    fused, explicit = fused_and_explicit(queries, keys, values, masks[mask])
    torch.testing.assert_close(fused, explicit, rtol=0, atol=tolerance)


def test_gradients_of_both_forms_are_equal():
    gradients = []
    for form in (fused_attention, lambda *a: explicit_attention(*a)[0]):
        inputs = [x.requires_grad_() for x in random_inputs()]
        form(*inputs, random_mask()).pow(2).sum().backward()
        gradients.append([x.grad for x in inputs])
    for fused, explicit in zip(*gradients):
        torch.testing.assert_close(fused, explicit, rtol=0, atol=1e-13)


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_of_explicit_attention_is_that_of_its_differences(masked):
    inputs = [x[:1].requires_grad_() for x in random_inputs()]
    mask = random_mask()[:1] if masked else None
    assert torch.autograd.gradcheck(lambda *x: explicit_attention(*x, mask), inputs)


# Masks


def test_a_masked_position_has_weight_zero_exactly_and_no_influence():
    queries, keys, values = random_inputs(torch.float32)
    mask = torch.ones(S, dtype=torch.bool)
    mask[2] = mask[6] = False
    output, weights = explicit_attention(queries, keys, values, mask[None])
    fused = fused_attention(queries, keys, values, mask[None])
    assert (weights[..., ~mask] == 0).all()
    assert (weights[..., mask] > 0).all()
    keys[:, :, ~mask], values[:, :, ~mask] = 1e4, -1e4
    assert explicit_attention(queries, keys, values, mask[None])[0].equal(output)
    assert fused_attention(queries, keys, values, mask[None]).equal(fused)


@pytest.mark.parametrize("form", ["explicit", "fused"])
def test_a_masked_position_has_no_weight_however_low_the_scores_of_the_others(form):
    queries, values = torch.ones(1, 1, 1, K), torch.tensor([1.0, 2.0, 3.0])[:, None].expand(1, 1, 3, K)
    keys = torch.tensor([-1e7, 0.0, -1e7])[:, None].expand(1, 1, 3, K)
    mask = torch.tensor([[True, False, True]])
    attend = fused_attention if form == "fused" else lambda *inputs: explicit_attention(*inputs)[0]
    assert attend(queries, keys, values, mask).flatten().tolist() == pytest.approx([2.0] * K)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_may_attend_to_nothing_gets_zero_in_both_forms(dtype):
    queries, keys, values = (x.requires_grad_() for x in random_inputs(dtype))
    mask = random_mask()
    mask[1] = False  # a whole sentence
    mask[0, :, 3] = False  # one query
    output, weights = explicit_attention(queries, keys, values, mask)
    fused = fused_attention(queries, keys, values, mask)
    for result in (weights, output, fused):
        assert not result.isnan().any()
        assert (result[1] == 0).all()
        assert (result[0, :, 3] == 0).all()
        assert (result[2] != 0).any()


@pytest.mark.parametrize("form", ["explicit", "fused"])
def test_a_query_that_may_attend_to_nothing_has_no_gradient(form):
    queries, keys, values = (x.requires_grad_() for x in random_inputs())
    mask = random_mask()
    mask[1] = False
    if form == "explicit":
        output, weights = explicit_attention(queries, keys, values, mask)
        (output.pow(2).sum() + weights.pow(2).sum()).backward()
    else:
        fused_attention(queries, keys, values, mask).pow(2).sum().backward()
    for x in (queries, keys, values):
        assert x.grad.isfinite().all()
        assert (x.grad[1] == 0).all()
        assert (x.grad[0] != 0).any()


def test_the_causal_mask_lets_each_position_see_itself_and_what_is_before_it():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


# The reason for 1 / √d_k


@pytest.mark.parametrize("width", [2, 16, 128])
def test_the_variance_of_a_dot_product_is_its_width_and_one_once_scaled(width):
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(20_000, width, generator=generator, dtype=torch.float64) for _ in range(2))
    products = (queries * keys).sum(-1)
    assert products.var().item() == pytest.approx(width, rel=0.05)
    # Scores are the logarithms of the weights but for a constant: two keys a query, differences of two scores.
    pairs = keys.unflatten(0, (-1, 2))
    weights = explicit_attention(queries[: len(pairs), None], pairs, pairs)[1]
    differences = weights.log().diff(dim=-1)
    assert differences.var().item() == pytest.approx(2.0, rel=0.05)  # twice the variance of one score


def test_scores_that_are_not_scaled_saturate_the_softmax_as_the_width_grows():
    generator = torch.Generator().manual_seed(0)
    gradients = {"scaled": [], "unscaled": []}
    largest = {"scaled": [], "unscaled": []}
    for width in (2, 8, 32, 128, 512):
        queries, keys = (torch.randn(500, n, width, generator=generator) for n in (1, 10))
        for kind, factor in (("scaled", 1.0), ("unscaled", math.sqrt(width))):
            weights = explicit_attention(queries * factor, keys, keys)[1]
            # d softmax_i / d score_i = p (1 − p)
            gradients[kind].append((weights * (1 - weights)).mean().item())
            largest[kind].append(weights.max(-1).values.mean().item())
    assert gradients["unscaled"] == sorted(gradients["unscaled"], reverse=True)
    assert gradients["unscaled"][-1] < gradients["unscaled"][0] / 5
    assert largest["unscaled"][-1] > 0.9
    assert min(gradients["scaled"]) > 0.8 * max(gradients["scaled"])
    assert max(largest["scaled"]) < 0.5


# Several heads


def make_heads(d_model=6, num_heads=2, seed=3):
    torch.manual_seed(seed)
    attention = MultiHeadAttention(d_model, num_heads).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    return attention


def multi_head_by_hand(attention, x, memory, allowed=None):
    """Multi-head attention of one sentence in plain Python, a loop over the heads."""

    def project(linear, rows):
        weight, bias = linear.weight.tolist(), linear.bias.tolist()
        return [[sum(w * v for w, v in zip(ws, row)) + b for ws, b in zip(weight, bias)] for row in rows]

    q, k, v = (
        project(linear, rows.tolist())
        for linear, rows in ((attention.q_proj, x), (attention.k_proj, memory), (attention.v_proj, memory))
    )
    width = len(q[0]) // attention.num_heads
    heads, weights = [], []
    for head in range(attention.num_heads):
        columns = slice(head * width, (head + 1) * width)
        output, head_weights = attention_by_hand(
            *([row[columns] for row in rows] for rows in (q, k, v)), allowed
        )
        heads.append(output)
        weights.append(head_weights)
    concatenated = [list(itertools.chain.from_iterable(head[t] for head in heads)) for t in range(len(q))]
    return torch.tensor(project(attention.out_proj, concatenated)).double(), torch.tensor(weights).double()


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_multi_head_attention_equals_a_loop_over_heads_in_plain_python(num_heads):
    torch.set_default_dtype(torch.float64)
    try:
        attention = make_heads(num_heads=num_heads)
        x, memory = torch.randn(B, T, 6), torch.randn(B, S, 6)
        mask = random_mask()
        with torch.no_grad():
            output, weights = attention(x, memory, mask, need_weights=True)
            fused, nothing = attention(x, memory, mask)
        assert nothing is None
        for b in range(B):
            expected, expected_weights = multi_head_by_hand(attention, x[b], memory[b], mask[b, 0].tolist())
            torch.testing.assert_close(output[b], expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(fused[b], expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(weights[b], expected_weights, rtol=0, atol=1e-12)
    finally:
        torch.set_default_dtype(torch.float32)


def test_cross_attention_is_rectangular():
    attention = make_heads()
    x, memory = torch.randn(B, T, 6).double(), torch.randn(B, S, 6).double()
    output, weights = attention(x, memory, need_weights=True)
    assert output.shape == (B, T, 6)
    assert weights.shape == (B, 2, T, S)


def test_training_and_inference_give_the_same_output():
    attention = make_heads()
    x, memory, mask = torch.randn(B, T, 6).double(), torch.randn(B, S, 6).double(), random_mask()
    trained = attention(x, memory, mask)[0]
    with torch.inference_mode():
        served = attention(x, memory, mask)[0]
    assert trained.requires_grad
    torch.testing.assert_close(trained, served, rtol=0, atol=1e-13)


@pytest.mark.parametrize("self_attention", [True, False])
def test_the_same_weights_in_torchs_multi_head_attention_give_the_same(self_attention):
    ours = make_heads()
    theirs = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        projections = (ours.q_proj, ours.k_proj, ours.v_proj)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(B, T, 6).double()
    memory = x if self_attention else torch.randn(B, S, 6).double()
    lengths = torch.tensor([memory.size(1), 3, 1])
    real = torch.arange(memory.size(1)) < lengths[:, None]
    output, weights = ours(x, memory, real[:, None, None], need_weights=True)
    expected, expected_weights = theirs(
        x, memory, memory, key_padding_mask=~real, need_weights=True, average_attn_weights=False
    )
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-13)


def test_the_gradient_of_multi_head_attention_is_that_of_its_differences():
    attention = make_heads(d_model=4)
    x, memory = (torch.randn(1, n, 4).double().requires_grad_() for n in (2, 3))
    parameters = list(attention.parameters())
    mask = torch.tensor([True, True, False])

    def output(*_):
        return attention(x, memory, mask)[0]

    assert torch.autograd.gradcheck(output, [x, memory, *parameters])
